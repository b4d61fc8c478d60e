//! Recurrent layers: one layer in one direction, forward and backward. The operator stacks them.
//!
//! Gates are laid out as in cuDNN: LSTM i, f, g, o; GRU r, z, n with `h' = (1 - z) n + z h` and `n
//! = tanh(x W + b + r (h R + c))`. Lengths end sequences early: from its length on a sequence's
//! state stays as it is and its output is 0.
//!
//! What does not depend on the step before is one product over all steps: the input's part of the
//! gates, and in `backward` every gradient of a weight. What is left is split by sequences, which
//! know nothing of one another: a task carries a block of them through all steps, so that no step
//! waits for other threads.

mod backward;
mod cells;
mod panels;
#[cfg(all(test, not(loom)))]
mod tests;

use super::gemm::{Mat, Threads, gemm};
use super::parallel::{Shared, parallel_for};
use super::real::Real;
use super::reduce_rows::repeat_row;
use panels::Panels;
use std::ops::Range;

/// The recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    Relu,
    Tanh,
    Lstm,
    Gru,
}

impl Cell {
    /// Number of gates.
    pub fn gates(self) -> usize {
        match self {
            Cell::Relu | Cell::Tanh => 1,
            Cell::Lstm => 4,
            Cell::Gru => 3,
        }
    }
}

/// One layer in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    pub cell: Cell,
    pub time: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
    /// Extent of the recurrent state: `hidden`, or that of the projection.
    pub state: usize,
    pub reverse: bool,
    pub lengths: Option<&'a [usize]>,
    /// Bounds of the LSTM's cell state.
    pub clip: Option<(f64, f64)>,
}

/// Weights (or their gradients) of a layer: input (gates * hidden, input), recurrent (gates *
/// hidden, state), projection (state, hidden, or empty), and the two biases.
pub struct Weights<S> {
    pub input: S,
    pub recurrent: S,
    pub projection: S,
    pub input_bias: S,
    pub recurrent_bias: S,
}

/// The columns from `first` on of a row-major matrix: the outputs of one direction among those of
/// both.
pub struct Columns<S> {
    pub all: S,
    pub first: usize,
    /// Elements of a row.
    pub width: usize,
}

/// What a forward pass keeps for the backward one; all are time-major.
pub struct Tape<T> {
    /// Activated gates.
    gates: Vec<T>,
    /// GRU: the recurrent part of n before it is gated.
    inner: Vec<T>,
    /// Between the steps, so one more than there are steps: states and, of an LSTM, cell states.
    states: Vec<T>,
    cells: Vec<T>,
    /// Hidden values before the projection, if there is one.
    full: Vec<T>,
}

/// Approximate number of sequences per task.
const BLOCK: usize = 16;

/// `C = A B` or `C += A B` of slices; `ta`, `tb` say that a matrix is stored transposed.
fn multiply<T: Real>(
    (m, n, k): (usize, usize, usize),
    (a, ta): (&[T], bool),
    (b, tb): (&[T], bool),
    c: &mut [T],
    add: bool,
) {
    assert!(a.len() >= m * k && b.len() >= k * n && c.len() >= m * n);
    let a = Mat::rows(a.as_ptr().cast_mut(), if ta { m } else { k }).t_if(ta);
    let b = Mat::rows(b.as_ptr().cast_mut(), if tb { k } else { n }).t_if(tb);
    // SAFETY: the slices were checked to hold the matrices; `c` is borrowed mutably, so it overlaps
    // none.
    unsafe { gemm((m, n, k), a, b, Mat::rows(c.as_mut_ptr(), n), add, Threads::Pool) };
}

impl Layer<'_> {
    /// The time of step `s`.
    fn at(&self, s: usize) -> usize {
        if self.reverse { self.time - 1 - s } else { s }
    }

    /// Where the tape keeps the state before time `t`, and the one after.
    fn around(&self, t: usize) -> (usize, usize) {
        if self.reverse { (t + 1, t) } else { (t, t + 1) }
    }

    /// Where the tape keeps the first state, and the last.
    fn ends(&self) -> (usize, usize) {
        if self.reverse { (self.time, 0) } else { (0, self.time) }
    }

    fn runs(&self, t: usize, n: usize) -> bool {
        self.lengths.is_none_or(|l| t < l[n])
    }

    /// Elements of a row of gates, and of those whose recurrent part is added as it is: GRU's n is
    /// not.
    fn widths(&self) -> (usize, usize) {
        let width = self.cell.gates() * self.hidden;
        (width, if self.cell == Cell::Gru { 2 * self.hidden } else { width })
    }

    /// Elements of a row of cell states.
    fn cells(&self) -> usize {
        if self.cell == Cell::Lstm { self.hidden } else { 0 }
    }

    fn bounds<T: Real>(&self) -> Option<(T, T)> {
        self.clip.map(|(low, high)| (T::of(low), T::of(high)))
    }

    /// Calls `f` on blocks of sequences.
    fn for_sequences(&self, f: impl Fn(Range<usize>) + Send + Sync) {
        let blocks = ((self.batch + BLOCK / 2) / BLOCK).max(1);
        parallel_for(self.batch, self.batch.div_ceil(blocks).next_multiple_of(8), f);
    }

    /// Whether slices have the extents that the unsafe code below relies on.
    fn check<T>(&self, w: &Weights<&[T]>, h: &[T], c: &[T]) {
        let (width, _) = self.widths();
        assert!(w.input.len() >= width * self.input && w.recurrent.len() >= width * self.state);
        assert!(w.input_bias.len() >= width && w.recurrent_bias.len() >= width);
        assert!(if w.projection.is_empty() {
            self.state == self.hidden
        } else {
            w.projection.len() >= self.state * self.hidden
        });
        assert!(h.len() == self.batch * self.state && c.len() == self.batch * self.cells());
        assert!(self.lengths.is_none_or(|l| l.len() >= self.batch));
    }

    /// Runs over the sequence; `h` and `c` are the states before and, on return, after it. Outputs
    /// are written.
    pub fn forward<T: Real>(
        &self,
        x: &[T],
        w: &Weights<&[T]>,
        h: &mut [T],
        c: &mut [T],
        out: Columns<&mut [T]>,
    ) -> Tape<T> {
        self.check(w, h, c);
        let (rows, hid, st) = (self.time * self.batch, self.hidden, self.state);
        let (width, direct) = self.widths();
        assert!(rows == 0 || out.all.len() >= (rows - 1) * out.width + out.first + st);
        assert!(out.first + st <= out.width);
        let mut tape = self.begin(x, w);
        let (first, last) = self.ends();
        tape.states[first * h.len()..][..h.len()].copy_from_slice(h);
        tape.cells[first * c.len()..][..c.len()].copy_from_slice(c);
        let lefts = (self.batch, self.time);
        let steps = Steps {
            layer: self,
            gates: Panels::new((st, direct), (w.recurrent, true), lefts),
            new: (direct < width)
                .then(|| Panels::new((st, hid), (&w.recurrent[direct * st..], true), lefts)),
            projection: (!w.projection.is_empty())
                .then(|| Panels::new((hid, st), (w.projection, true), lefts)),
            tape: tape.addresses(),
            out: Shared(out.all.as_mut_ptr()),
            out_at: (out.first, out.width),
        };
        self.for_sequences(|block| {
            for t in (0..self.time).map(|s| self.at(s)) {
                // SAFETY: extents were checked; a block's rows of tape and output are its own.
                unsafe { steps.step(t, block.clone()) };
            }
        });
        h.copy_from_slice(&tape.states[last * h.len()..][..h.len()]);
        c.copy_from_slice(&tape.cells[last * c.len()..][..c.len()]);
        tape
    }

    /// A tape whose gates hold the terms that do not depend on states.
    fn begin<T: Real>(&self, x: &[T], w: &Weights<&[T]>) -> Tape<T> {
        let (rows, hid) = (self.time * self.batch, self.hidden);
        let (width, direct) = self.widths();
        let mut bias = w.input_bias[..width].to_vec();
        for (a, &b) in bias.iter_mut().zip(&w.recurrent_bias[..direct]) {
            *a += b;
        }
        let zeros = |n: usize| vec![T::zero(); n];
        let mut tape = Tape {
            gates: repeated(&bias, rows),
            inner: repeated(&w.recurrent_bias[direct..width], rows),
            states: zeros((rows + self.batch) * self.state),
            cells: zeros((rows + self.batch) * self.cells()),
            full: zeros(if w.projection.is_empty() { 0 } else { rows * hid }),
        };
        multiply((rows, width, self.input), (x, false), (w.input, true), &mut tape.gates, true);
        tape
    }
}

/// `rows` times the row, one after the other.
fn repeated<T: Real>(row: &[T], rows: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(rows * row.len());
    // SAFETY: the capacity is that of the rows, which are written whole.
    unsafe {
        repeat_row(row.as_ptr(), rows, row.len(), all.as_mut_ptr());
        all.set_len(rows * row.len());
    }
    all
}

/// Addresses of a tape's parts, for tasks that write rows of their own.
struct Addresses<T> {
    gates: Shared<T>,
    inner: Shared<T>,
    states: Shared<T>,
    cells: Shared<T>,
    full: Shared<T>,
}

impl<T> Tape<T> {
    fn addresses(&mut self) -> Addresses<T> {
        Addresses {
            gates: Shared(self.gates.as_mut_ptr()),
            inner: Shared(self.inner.as_mut_ptr()),
            states: Shared(self.states.as_mut_ptr()),
            cells: Shared(self.cells.as_mut_ptr()),
            full: Shared(self.full.as_mut_ptr()),
        }
    }
}

/// The steps of a forward pass. Right factors: of the state for all gates but GRU's n, for that
/// one, and of the hidden values for the state.
struct Steps<'a, T> {
    layer: &'a Layer<'a>,
    gates: Panels<'a, T>,
    new: Option<Panels<'a, T>>,
    projection: Option<Panels<'a, T>>,
    tape: Addresses<T>,
    out: Shared<T>,
    /// First column and elements of a row of the output.
    out_at: (usize, usize),
}

impl<T: Real> Steps<'_, T> {
    /// One step of a block of sequences.
    ///
    /// # Safety
    /// The step before is done, and no other task uses the block's rows. Sizes are those of the
    /// layer.
    unsafe fn step(&self, t: usize, block: Range<usize>) {
        let (layer, tape) = (self.layer, &self.tape);
        let (b, hid, st, cells) = (layer.batch, layer.hidden, layer.state, layer.cells());
        let (width, _) = layer.widths();
        let (before, after) = layer.around(t);
        let m = block.len();
        // SAFETY: promised by the caller: rows are below `(time + 1) * batch` or, by time, `time *
        // batch`.
        unsafe {
            let row =
                |part: Shared<T>, t: usize, n: usize, width: usize| part.at((t * b + n) * width);
            let h = Mat::rows(row(tape.states, before, block.start, st), st);
            let gates = Mat::rows(row(tape.gates, t, block.start, width), width);
            self.gates.multiply_add(m, h, gates);
            if let Some(new) = &self.new {
                let inner = Mat::rows(row(tape.inner, t, block.start, hid), hid);
                new.multiply_add(m, h, inner);
            }
            // The cell's output is the state itself or, in rows of `hid`, what is projected to
            // it.
            let made = |n: usize| match &self.projection {
                Some(_) => row(tape.full, t, n, hid),
                None => row(tape.states, after, n, st),
            };
            for n in block.clone() {
                let old = row(tape.states, before, n, st);
                let (c, c_new) =
                    (row(tape.cells, before, n, cells), row(tape.cells, after, n, cells));
                let g = row(tape.gates, t, n, width);
                if !layer.runs(t, n) {
                    old.copy_to_nonoverlapping(row(tape.states, after, n, st), st);
                    c.copy_to_nonoverlapping(c_new, cells);
                    continue;
                }
                match layer.cell {
                    Cell::Tanh => cells::vanilla(g, made(n), hid, true),
                    Cell::Relu => cells::vanilla(g, made(n), hid, false),
                    Cell::Lstm => cells::lstm(g, c, c_new, made(n), hid, layer.bounds()),
                    Cell::Gru => cells::gru(g, row(tape.inner, t, n, hid), old, made(n), hid),
                }
            }
            if let Some(projection) = &self.projection {
                // States of sequences that have ended are kept: their hidden values are 0.
                let full = Mat::rows(made(block.start), hid);
                let state = Mat::rows(row(tape.states, after, block.start, st), st);
                projection.multiply_add(m, full, state);
            }
            for n in block {
                let (first, out_width) = self.out_at;
                let out = row(self.out, t, n, out_width).add(first);
                if layer.runs(t, n) {
                    row(tape.states, after, n, st).copy_to_nonoverlapping(out, st);
                } else {
                    std::slice::from_raw_parts_mut(out, st).fill(T::zero());
                }
            }
        }
    }
}
