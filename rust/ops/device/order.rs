//! Orders along an axis, and running sums.

use super::{KernelsOf, NUMBERS, add, kernel, wanted};
use crate::args;
use crate::error::Result;
use crate::operator::{Argument, Call, Compare, Grid, Kernel, Launcher, Match};
use crate::ops::tensor::order::{ArgsortParam, SortParam, TopkParam, lines, top_count};
use crate::ops::tensor::running::{self, CumsumParam};
use crate::shape::Shape;
use crate::tensor::View;

/// Lines of an array: `Lines` of `order.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Lines {
    count: i64,
    length: i64,
    padded: i64,
    inner: i64,
}

// SAFETY: four numbers, as in CUDA source.
unsafe impl Argument for Lines {}

/// Positions that a block sorts in its own memory: `SPAN` of `order.cu`.
const SPAN: i64 = 2048;

/// The functions of [`Ordered`], and the number of the one that uses the order.
pub const SORTING: [&str; 2] = ["order_spans<$0>", "order_step<$0>"];
const SPANS: usize = 0;
const STEP: usize = 1;
const USE: usize = 2;

/// The order of the elements of every line, in memory of the device.
pub struct Ordered {
    lines: Lines,
    pub order: *mut u8,
}

impl Ordered {
    /// The distance of the orders of neighbouring lines.
    pub fn padded(&self) -> i64 {
        self.lines.padded
    }

    /// Launches what sorts the lines of `x` along an axis.
    pub fn of(
        launcher: &mut dyn Launcher,
        x: &View,
        axis: Option<i32>,
        ascend: bool,
    ) -> Result<Self> {
        let (outer, length, inner) = lines(x.shape(), axis)?;
        let padded = length.next_power_of_two();
        let order = launcher.memory().take(size_of::<i64>() * outer * inner * padded)?;
        let [count, length, padded, inner] =
            [outer * inner, length, padded, inner].map(|n| n as i64);
        let (lines, ascend) = (Lines { count, length, padded, inner }, i32::from(ascend));
        let span = padded.min(SPAN);
        let blocks = Grid::blocks((count * padded / span) as usize);
        let spans = |launcher: &mut dyn Launcher, from: i64, to: i64| {
            launcher.launch(SPANS, blocks, &mut args![lines, x.ptr(), order, from, to, ascend])
        };
        spans(launcher, 2, span)?;
        let longer = |n: &i64| (2 * n <= padded).then(|| 2 * n);
        for run in std::iter::successors(longer(&span), longer) {
            let nearer = |n: &i64| (n / 2 >= span).then(|| n / 2);
            for distance in std::iter::successors(Some(run / 2), nearer) {
                let grid = Grid::over((count * padded / 2) as usize);
                let mut args = args![lines, x.ptr(), order, run, distance, ascend];
                launcher.launch(STEP, grid, &mut args)?;
            }
            spans(launcher, run, run)?;
        }
        Ok(Ordered { lines, order })
    }

    /// Launches a function on the first `taken` positions of each line, from one array to another.
    fn place(
        &self,
        launcher: &mut dyn Launcher,
        function: usize,
        taken: usize,
        [x, y]: [*mut u8; 2],
        add: i32,
    ) -> Result<()> {
        let n = self.lines.count as usize * taken;
        let mut args = args![taken as i64, self.lines, self.order, x, y, add];
        launcher.launch(function, Grid::over(n), &mut args)
    }

    /// The same for a function that reads no array.
    fn mark(
        &self,
        launcher: &mut dyn Launcher,
        function: usize,
        taken: usize,
        y: *mut u8,
        add: i32,
    ) -> Result<()> {
        let n = self.lines.count as usize * taken;
        let mut args = args![taken as i64, self.lines, self.order, y, add];
        launcher.launch(function, Grid::over(n), &mut args)
    }
}

fn sort() -> Vec<Kernel> {
    let functions = [SORTING[0], SORTING[1], "place_values<$0>"];
    vec![kernel("order", &functions, &[("data", NUMBERS)], |call, launcher| {
        let (x, p) = (&call.inputs[0], call.attrs.get::<SortParam>());
        let ordered = Ordered::of(launcher, x, p.axis, p.is_ascend)?;
        let ends = [x.ptr(), call.outputs[0].ptr()];
        ordered.place(launcher, USE, ordered.lines.length as usize, ends, add(call, 0))
    })]
}

fn sort_back() -> Vec<Kernel> {
    let functions = [SORTING[0], SORTING[1], "return_values<$0>"];
    vec![kernel("order", &functions, &[("data", NUMBERS)], |call, launcher| {
        let ([g, x], p) = ([0, 1].map(|i| &call.inputs[i]), call.attrs.get::<SortParam>());
        let ordered = Ordered::of(launcher, x, p.axis, p.is_ascend)?;
        let ends = [g.ptr(), call.outputs[0].ptr()];
        ordered.place(launcher, USE, ordered.lines.length as usize, ends, add(call, 0))
    })]
}

fn argsort() -> Vec<Kernel> {
    let functions = [SORTING[0], SORTING[1], "place_positions<$1>"];
    let types: &[_] = &[("data", NUMBERS), ("output", NUMBERS)];
    vec![kernel("order", &functions, types, |call, launcher| {
        let (x, p) = (&call.inputs[0], call.attrs.get::<ArgsortParam>());
        let ordered = Ordered::of(launcher, x, p.axis, p.is_ascend)?;
        let (taken, to) = (ordered.lines.length as usize, call.outputs[0].ptr());
        ordered.mark(launcher, USE, taken, to, add(call, 0))
    })]
}

/// The order of a call of `topk` on `x`, and how many elements of each line it takes.
fn top(call: &Call<'_>, launcher: &mut dyn Launcher, x: &View) -> Result<(Ordered, usize)> {
    let p = call.attrs.get::<TopkParam>();
    let taken = top_count(p, lines(x.shape(), p.axis)?.1)?;
    Ok((Ordered::of(launcher, x, p.axis, p.is_ascend)?, taken))
}

/// A kernel for each kind of result.
fn topk() -> Vec<Kernel> {
    let gives = |kind: &str| Match::Attr("ret_typ".into(), Compare::Eq, kind.into());
    let of_data: &[_] = &[("data", NUMBERS)];
    let functions = [SORTING[0], SORTING[1], "place_values<$0>"];
    let value = kernel("order", &functions, of_data, |call, launcher| {
        let (x, to) = (&call.inputs[0], call.outputs[0].ptr());
        let (ordered, taken) = top(call, launcher, x)?;
        ordered.place(launcher, USE, taken, [x.ptr(), to], add(call, 0))
    });
    let functions = [SORTING[0], SORTING[1], "mark_values<$0>"];
    let mask = kernel("order", &functions, of_data, |call, launcher| {
        let (x, to) = (&call.inputs[0], &call.outputs[0]);
        let (ordered, taken) = top(call, launcher, x)?;
        if add(call, 0) == 0 {
            launcher.clear(to.ptr(), to.size_bytes())?;
        }
        ordered.mark(launcher, USE, taken, to.ptr(), add(call, 0))
    });
    let functions = [SORTING[0], SORTING[1], "place_positions<$1>"];
    let types: &[_] = &[("data", NUMBERS), ("output", NUMBERS)];
    let indices = kernel("order", &functions, types, |call, launcher| {
        let (ordered, taken) = top(call, launcher, &call.inputs[0])?;
        ordered.mark(launcher, USE, taken, call.outputs[0].ptr(), add(call, 0))
    });
    let functions = [SORTING[0], SORTING[1], "place_values<$0>", "place_positions<$1>"];
    let types: &[_] = &[("data", NUMBERS), ("output1", NUMBERS)];
    let both = Kernel::cuda("order", &functions, types, |call, launcher| {
        let x = &call.inputs[0];
        if !wanted(call, 0) && !wanted(call, 1) {
            return Ok(());
        }
        let (ordered, taken) = top(call, launcher, x)?;
        if wanted(call, 0) {
            let ends = [x.ptr(), call.outputs[0].ptr()];
            ordered.place(launcher, USE, taken, ends, add(call, 0))?;
        }
        if wanted(call, 1) {
            ordered.mark(launcher, USE + 1, taken, call.outputs[1].ptr(), add(call, 1))?;
        }
        Ok(())
    });
    let each = [("value", value), ("mask", mask), ("indices", indices), ("both", both)];
    each.into_iter().map(|(kind, kernel)| kernel.only(gives(kind))).collect()
}

/// The gradient of `topk`: scattered to the places of the chosen values, zero elsewhere.
fn topk_back() -> Vec<Kernel> {
    let gives = |kind: &str| Match::Attr("ret_typ".into(), Compare::Eq, kind.into());
    let functions = [SORTING[0], SORTING[1], "return_values<$0>"];
    let made = kernel("order", &functions, &[("data", NUMBERS)], |call, launcher| {
        let ([g, x], dx) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        if add(call, 0) == 0 {
            launcher.clear(dx.ptr(), dx.size_bytes())?;
        }
        let (ordered, taken) = top(call, launcher, x)?;
        ordered.place(launcher, USE, taken, [g.ptr(), dx.ptr()], add(call, 0))
    });
    vec![made.only(Match::Or(Box::new(gives("value")), Box::new(gives("both"))))]
}

/// Running sums of what the kernel's first input has, in the shape that `shape` finds.
fn running(tensor: &str, shape: fn(&Call<'_>) -> Shape, reversed: bool) -> Vec<Kernel> {
    let made =
        kernel("order", &["running_sums<$0>"], &[(tensor, NUMBERS)], move |call, launcher| {
            let axis = call.attrs.get::<CumsumParam>().axis;
            let (count, length, apart) = running::rows(&shape(call), axis)?;
            let [n, length, apart] = [count, length, apart].map(|n| n as i64);
            let (x, y) = (call.inputs[0].ptr(), call.outputs[0].ptr());
            let mut args = args![n, length, apart, x, y, i32::from(reversed), add(call, 0)];
            launcher.launch(0, Grid::blocks(count), &mut args)
        });
    vec![made.only(Match::Attr("dtype".into(), Compare::Eq, "None".into()))]
}

pub const TABLE: &[KernelsOf] = &[
    ("sort", sort),
    ("_backward_sort", sort_back),
    ("argsort", argsort),
    ("topk", topk),
    ("_backward_topk", topk_back),
    ("_np_cumsum", || running("a", |call| call.inputs[0].shape().clone(), false)),
    ("_backward_np_cumsum", || running("data", |call| call.outputs[0].shape().clone(), true)),
];
