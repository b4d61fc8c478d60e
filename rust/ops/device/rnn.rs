//! Recurrent layers: one product and one launch for each time, and products over all times.

mod backward;

pub use self::backward::{Gradients, backward};
use super::dense::{Layout, Product};
use super::reduce::fold_functions;
use super::{FLOATS, KernelsOf};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::rnn::{Cell, Weights};
use crate::operator::property::{backward_on, forward_on};
use crate::operator::{Call, Compare, Grid, HeldMemory, Kernel, Launcher, Match, RandomKey};
use crate::ops::nn::rnn::RnnParam;
use std::ops::Range;
use std::sync::Arc;

/// Numbers of the functions, in the order of [`functions`].
const MATMUL: usize = 0;
const STEP: usize = 1;
const STEP_BACK: usize = 2;
const DROP: usize = 3;
const FOLD: usize = 4;
const PROJECT: usize = 7;
const PROJECT_BACK: usize = 8;
const LENGTHS: usize = 9;

/// The functions of every run; `all` has those for projections and lengths as well.
fn functions(all: bool) -> Vec<String> {
    let of = |name: &str| format!("{name}<$0>");
    let mut names = ["matmul", "rnn_step", "rnn_step_back", "rnn_drop"].map(of).to_vec();
    names.extend(fold_functions("SumFold<$0>"));
    if all {
        names.extend(["rnn_project", "rnn_project_back"].map(of));
        names.push("sequence_lengths".into());
    }
    names
}

type RunFn = fn(&Call<'_>, &mut dyn Launcher) -> Result<()>;

/// The kernel of plain layers, and that of layers with projections or lengths.
fn kernels(run: RunFn) -> Vec<Kernel> {
    let is = |name: &str, value: &str| Match::Attr(name.into(), Compare::Eq, value.into());
    let whole = is("use_sequence_length", "False");
    let plain = Match::And(Box::new(is("projection_size", "None")), Box::new(whole));
    let make = |all: bool| {
        let names = functions(all);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let made = Kernel::cuda("rnn", &names, &[("data", FLOATS)], run);
        made.multiplies().only_writes()
    };
    vec![make(false).only(plain.clone()), make(true).only(Match::Not(Box::new(plain)))]
}

pub const TABLE: &[KernelsOf] =
    &[("RNN", || kernels(forward_on)), ("_backward_RNN", || kernels(backward_on))];

/// The operands of a run, on the device.
pub struct RnnOperands<'a> {
    pub param: &'a RnnParam,
    pub dtype: DType,
    pub time: usize,
    pub batch: usize,
    pub first: usize,
    pub x: *mut u8,
    pub weights: *mut u8,
    pub state: *mut u8,
    pub cell: *mut u8,
    pub lengths: Option<(*mut u8, DType)>,
    pub key: RandomKey,
    pub train: bool,
}

/// The memory that a forward run leaves for the backward one, with the sizes and the dtype that it
/// is valid for.
pub struct Recorded {
    memory: Arc<dyn HeldMemory>,
    sizes: [usize; 3],
    dtype: DType,
}

/// The recorded values of a layer in one direction: see `kernels::rnn::Tape`.
#[derive(Clone)]
struct Tape {
    gates: *mut u8,
    inner: *mut u8,
    states: *mut u8,
    cells: *mut u8,
    full: *mut u8,
}

/// The addresses of all recorded values within one block of memory.
struct TapeRecord {
    /// By layer and direction.
    tapes: Vec<Tape>,
    /// The inputs of all layers but the first.
    inputs: Vec<*mut u8>,
    bytes: usize,
}

/// Hands out parts of one block of memory.
struct Parts {
    from: *mut u8,
    next: usize,
}

impl Parts {
    const ALIGN: usize = 256;

    fn take(&mut self, bytes: usize) -> *mut u8 {
        let at = self.from.wrapping_add(self.next);
        self.next += bytes.next_multiple_of(Self::ALIGN);
        at
    }
}

/// One layer in one direction.
struct LayerPlace {
    at: usize,
    layer: usize,
    direction: usize,
}

impl RnnOperands<'_> {
    fn rows(&self) -> usize {
        self.time * self.batch
    }

    /// Elements of a row of gates.
    fn width(&self) -> usize {
        self.param.cell().gates() * self.param.hidden()
    }

    fn bytes(&self, elements: usize) -> usize {
        elements * self.dtype.size()
    }

    /// The address of an element; of what there is not, null.
    fn at(&self, base: *mut u8, element: usize) -> *mut u8 {
        if base.is_null() { base } else { base.wrapping_add(self.bytes(element)) }
    }

    fn has_cell(&self, cell: Cell) -> bool {
        self.param.cell() == cell
    }

    fn is_projected(&self) -> bool {
        self.param.projection_size.is_some()
    }

    /// Elements of the states of one layer in one direction, and of its cell states.
    fn state_sizes(&self) -> [usize; 2] {
        [self.batch * self.param.state(), self.batch * self.param.hidden()]
    }

    /// Elements of an output row of a layer, of all directions.
    fn out_width(&self) -> usize {
        self.param.directions() * self.param.state()
    }

    fn places(&self, layer: usize) -> impl DoubleEndedIterator<Item = LayerPlace> + use<> {
        let directions = self.param.directions();
        (0..directions).map(move |direction| LayerPlace {
            at: layer * directions + direction,
            layer,
            direction,
        })
    }

    /// Times in the order of a direction.
    fn times(&self, place: &LayerPlace) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let (time, reverse) = (self.time, place.direction == 1);
        (0..time).map(move |s| if reverse { time - 1 - s } else { s })
    }

    /// The numbers of the states before and after a time, as in `kernels::rnn::Layer`.
    fn around(&self, place: &LayerPlace, time: usize) -> (usize, usize) {
        if place.direction == 1 { (time + 1, time) } else { (time, time + 1) }
    }

    fn lay_out(&self, from: *mut u8) -> TapeRecord {
        let mut parts = Parts { from, next: 0 };
        let (rows, hid, st) = (self.rows(), self.param.hidden(), self.param.state());
        let mut take = |elements: usize| parts.take(self.bytes(elements));
        let mut if_so = |so: bool, elements: usize| match so {
            true => take(elements),
            false => std::ptr::null_mut(),
        };
        let count = self.param.layers() * self.param.directions();
        let tapes = (0..count)
            .map(|_| Tape {
                gates: if_so(true, rows * self.width()),
                inner: if_so(self.has_cell(Cell::Gru), rows * hid),
                states: if_so(true, (rows + self.batch) * st),
                cells: if_so(self.has_cell(Cell::Lstm), (rows + self.batch) * hid),
                full: if_so(self.is_projected(), rows * hid),
            })
            .collect();
        let inputs = (1..self.param.layers()).map(|_| take(rows * self.out_width())).collect();
        TapeRecord { tapes, inputs, bytes: parts.next }
    }

    fn input_of(&self, record: &TapeRecord, layer: usize) -> *mut u8 {
        if layer == 0 { self.x } else { record.inputs[layer - 1] }
    }

    fn sizes(&self) -> [usize; 3] {
        [self.time, self.batch, self.first]
    }

    /// The lengths as whole numbers, null if there are none.
    fn lengths(&self, launcher: &mut dyn Launcher) -> Result<*mut u8> {
        let Some((from, dtype)) = self.lengths else { return Ok(std::ptr::null_mut()) };
        let to = launcher.memory().take(8 * self.batch)?;
        let mut args = args![self.batch as i64, from, dtype as i32, to];
        launcher.launch(LENGTHS, Grid::over(self.batch), &mut args)?;
        Ok(to)
    }

    /// Multiplies by the factors of dropout what a layer reads, or its gradient.
    fn drop(&self, launcher: &mut dyn Launcher, layer: usize, x: *mut u8, n: usize) -> Result<()> {
        let p = self.param.p;
        if layer == 0 || p == 0.0 || !self.train || n == 0 {
            return Ok(());
        }
        let mut args = args![n as i64, x, self.key, (layer as i64) << 40, 1.0 - p];
        launcher.launch(DROP, Grid::over(n.div_ceil(4)), &mut args)
    }

    fn cell_number(&self) -> i32 {
        match self.param.cell() {
            Cell::Relu => 0,
            Cell::Tanh => 1,
            Cell::Lstm => 2,
            Cell::Gru => 3,
        }
    }

    /// 1 if the cell states are clipped, with the limits.
    fn limits(&self) -> (i32, f64, f64) {
        self.param.clip().map_or((0, 0.0, 0.0), |(low, high)| (1, low, high))
    }

    /// `c (m, n) = a (m, depth) b`, with `b` as (n, depth).
    fn rows_by_rows(
        &self,
        launcher: &mut dyn Launcher,
        [m, n, depth]: [usize; 3],
        [a, b, c]: [*mut u8; 3],
    ) -> Result<()> {
        let of = |at| (at, Layout::rows(depth as i64, 0));
        Product::new(self.dtype, [m, n, depth], 1, of(a), of(b), c).issue(launcher, MATMUL, 0)
    }

    /// `c (m, n) = a (m, depth) b (depth, n)`, or adds it.
    fn rows_by_columns(
        &self,
        launcher: &mut dyn Launcher,
        [m, n, depth]: [usize; 3],
        [a, b, c]: [*mut u8; 3],
        add: bool,
    ) -> Result<()> {
        let (a, b) = ((a, Layout::rows(depth as i64, 0)), (b, Layout::columns(n as i64, 0)));
        let product = Product::new(self.dtype, [m, n, depth], 1, a, b, c);
        product.issue(launcher, MATMUL, i32::from(add))
    }

    /// `c (m, n) = aᵀ b`, with `a` as (depth, m) and `b` as (depth, n).
    fn columns_by_columns(
        &self,
        launcher: &mut dyn Launcher,
        [m, n, depth]: [usize; 3],
        [a, b, c]: [*mut u8; 3],
    ) -> Result<()> {
        let (a, b) = ((a, Layout::columns(m as i64, 0)), (b, Layout::columns(n as i64, 0)));
        Product::new(self.dtype, [m, n, depth], 1, a, b, c).issue(launcher, MATMUL, 0)
    }

    /// The parts of the parameters, or of their gradients.
    fn weights(&self, of: *mut u8, ranges: &Weights<Range<usize>>) -> Weights<*mut u8> {
        let at = |range: &Range<usize>| self.at(of, range.start);
        Weights {
            input: at(&ranges.input),
            recurrent: at(&ranges.recurrent),
            projection: at(&ranges.projection),
            input_bias: at(&ranges.input_bias),
            recurrent_bias: at(&ranges.recurrent_bias),
        }
    }
}

/// The addresses of the results of a forward run; null where they are not wanted.
pub struct Results {
    pub out: *mut u8,
    pub states: *mut u8,
    pub cells: *mut u8,
}

/// Runs forward. What it returns is for [`backward`], if `keep` is set.
pub fn forward(
    launcher: &mut dyn Launcher,
    of: &RnnOperands<'_>,
    results: &Results,
    keep: bool,
) -> Result<Option<Recorded>> {
    let bytes = of.lay_out(std::ptr::null_mut()).bytes;
    if !keep {
        let memory = launcher.memory().take(bytes)?;
        run(launcher, of, &of.lay_out(memory), results)?;
        return Ok(None);
    }
    let memory = launcher.hold(bytes)?;
    run(launcher, of, &of.lay_out(memory.at()), results)?;
    Ok(Some(Recorded { memory, sizes: of.sizes(), dtype: of.dtype }))
}

fn run(
    launcher: &mut dyn Launcher,
    of: &RnnOperands<'_>,
    record: &TapeRecord,
    results: &Results,
) -> Result<()> {
    let (ranges, _) = of.param.ranges(of.first);
    let lengths = of.lengths(launcher)?;
    let all = of.rows() * of.out_width();
    let last = match results.out.is_null() {
        true => launcher.memory().take(of.bytes(all))?,
        false => results.out,
    };
    let recurrent = launcher.memory().take(of.bytes(of.batch * of.width()))?;
    for layer in 0..of.param.layers() {
        let x = of.input_of(record, layer);
        let out = record.inputs.get(layer).copied().unwrap_or(last);
        for place in of.places(layer) {
            let weights = of.weights(of.weights, &ranges[place.at]);
            let pass = LayerPass { of, place: &place, tape: &record.tapes[place.at], lengths };
            pass.forward(launcher, x, &weights, out, recurrent)?;
            pass.end(launcher, results)?;
        }
        if layer + 1 < of.param.layers() {
            of.drop(launcher, layer + 1, out, all)?;
        }
    }
    Ok(())
}

/// A pass over one layer in one direction.
struct LayerPass<'a> {
    of: &'a RnnOperands<'a>,
    place: &'a LayerPlace,
    tape: &'a Tape,
    lengths: *mut u8,
}

impl LayerPass<'_> {
    /// The states (or cell states) that the tape keeps as number `at`.
    fn state(&self, at: usize) -> *mut u8 {
        self.of.at(self.tape.states, at * self.of.state_sizes()[0])
    }

    fn cell(&self, at: usize) -> *mut u8 {
        self.of.at(self.tape.cells, at * self.of.state_sizes()[1])
    }

    /// The rows of one time of an array with `width` elements in a row.
    fn rows(&self, of: *mut u8, time: usize, width: usize) -> *mut u8 {
        self.of.at(of, time * self.of.batch * width)
    }

    /// The columns of this direction in the rows of one time of outputs, or of their gradients.
    fn columns(&self, of: *mut u8, time: usize) -> *mut u8 {
        let rows = self.rows(of, time, self.of.out_width());
        self.of.at(rows, self.place.direction * self.of.param.state())
    }

    fn forward(
        &self,
        launcher: &mut dyn Launcher,
        x: *mut u8,
        w: &Weights<*mut u8>,
        out: *mut u8,
        recurrent: *mut u8,
    ) -> Result<()> {
        let (of, tape, param) = (self.of, self.tape, self.of.param);
        let (hid, st, batch, width) = (param.hidden(), param.state(), of.batch, of.width());
        let [states, cells] = of.state_sizes();
        let first = if self.place.direction == 1 { of.time } else { 0 };
        let own = of.at(of.state, self.place.at * states);
        launcher.copy(self.state(first), own, of.bytes(states))?;
        if of.has_cell(Cell::Lstm) {
            let own = of.at(of.cell, self.place.at * cells);
            launcher.copy(self.cell(first), own, of.bytes(cells))?;
        }
        let input = param.input(self.place.layer, of.first);
        of.rows_by_rows(launcher, [of.rows(), width, input], [x, w.input, tape.gates])?;
        if batch == 0 {
            return Ok(());
        }
        let projected = i32::from(of.is_projected());
        let (clips, low, high) = of.limits();
        for t in of.times(self.place) {
            let (before, after) = of.around(self.place, t);
            let sizes = [batch, width, st];
            of.rows_by_rows(launcher, sizes, [self.state(before), w.recurrent, recurrent])?;
            let made = match of.is_projected() {
                true => self.rows(tape.full, t, hid),
                false => self.state(after),
            };
            let mut args = args![
                batch as i64,
                hid as i64,
                of.cell_number(),
                self.rows(tape.gates, t, width),
                recurrent,
                w.input_bias,
                w.recurrent_bias,
                self.state(before),
                made,
                self.cell(before),
                self.cell(after),
                self.rows(tape.inner, t, hid),
                self.columns(out, t),
                of.out_width() as i64,
                projected,
                self.lengths,
                t as i64,
                clips,
                low,
                high
            ];
            launcher.launch(STEP, Grid::over(batch * hid), &mut args)?;
            if of.is_projected() {
                let state = self.state(after);
                of.rows_by_rows(launcher, [batch, st, hid], [made, w.projection, state])?;
                let mut args = args![
                    batch as i64,
                    st as i64,
                    self.state(before),
                    state,
                    self.columns(out, t),
                    of.out_width() as i64,
                    self.lengths,
                    t as i64
                ];
                launcher.launch(PROJECT, Grid::over(batch * st), &mut args)?;
            }
        }
        Ok(())
    }

    /// Copies the final states to where they are wanted.
    fn end(&self, launcher: &mut dyn Launcher, results: &Results) -> Result<()> {
        let of = self.of;
        let last = if self.place.direction == 1 { 0 } else { of.time };
        let [states, cells] = of.state_sizes();
        let ends =
            [(results.states, self.state(last), states), (results.cells, self.cell(last), cells)];
        for (to, from, n) in ends.into_iter().filter(|end| !end.0.is_null()) {
            launcher.copy(of.at(to, self.place.at * n), from, of.bytes(n))?;
        }
        Ok(())
    }
}
