//! Recurrent layers: one layer in one direction, forward and backward. The operator stacks them.
//!
//! Gates are laid out as in cuDNN: LSTM i, f, g, o; GRU r, z, n with `h' = (1 - z) n + z h` and
//! `n = tanh(x W + b + r (h R + c))`. Lengths end sequences early: from its length on a sequence's state
//! stays as it is and its output is 0.

use super::gemm::{Mat, Threads, gemm};
use super::real::Real;

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

/// Weights (or their gradients) of a layer: input (gates * hidden, input), recurrent (gates * hidden, state),
/// projection (state, hidden, or empty), and the two biases.
pub struct Weights<S> {
    pub input: S,
    pub recurrent: S,
    pub projection: S,
    pub input_bias: S,
    pub recurrent_bias: S,
}

/// What a forward pass keeps for the backward one; all are time-major.
pub struct Tape<T> {
    /// Activated gates.
    gates: Vec<T>,
    /// GRU: the recurrent part of n before it is gated.
    inner: Vec<T>,
    /// LSTM: cell states after each step, before it, and hidden values before the projection.
    cells: Vec<T>,
    before_cells: Vec<T>,
    full: Vec<T>,
    /// States before each step.
    before: Vec<T>,
    /// Outputs.
    pub out: Vec<T>,
}

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
    // SAFETY: the slices were checked to hold the matrices; `c` is borrowed mutably, so it overlaps none.
    unsafe { gemm((m, n, k), a, b, Mat::rows(c.as_mut_ptr(), n), add, Threads::Pool) };
}

fn sigmoid<T: Real>(x: T) -> T {
    T::one() / (T::one() + (-x).quick_exp())
}

impl Layer<'_> {
    fn steps(&self) -> Box<dyn DoubleEndedIterator<Item = usize>> {
        if self.reverse { Box::new((0..self.time).rev()) } else { Box::new(0..self.time) }
    }

    fn runs(&self, t: usize, n: usize) -> bool {
        self.lengths.is_none_or(|l| t < l[n])
    }

    /// Runs over the sequence; `h` and `c` are the states before and, on return, after it.
    pub fn forward<T: Real>(
        &self,
        x: &[T],
        w: &Weights<&[T]>,
        h: &mut [T],
        c: &mut [T],
    ) -> Tape<T> {
        let (b, hid, st) = (self.batch, self.hidden, self.state);
        let width = self.cell.gates() * hid;
        let zeros = |n: usize| vec![T::zero(); n];
        let lstm = if self.cell == Cell::Lstm { self.time * b * hid } else { 0 };
        let gru = if self.cell == Cell::Gru { self.time * b * hid } else { 0 };
        let mut tape = Tape {
            gates: zeros(self.time * b * width),
            inner: zeros(gru),
            cells: zeros(lstm),
            before_cells: zeros(lstm),
            full: zeros(lstm),
            before: zeros(self.time * b * st),
            out: zeros(self.time * b * st),
        };
        for row in tape.gates.chunks_exact_mut(width) {
            row.copy_from_slice(w.input_bias);
        }
        let rows = self.time * b;
        multiply((rows, width, self.input), (x, false), (w.input, true), &mut tape.gates, true);
        let mut recurrent = zeros(b * width);
        for t in self.steps() {
            tape.before[t * b * st..(t + 1) * b * st].copy_from_slice(h);
            for row in recurrent.chunks_exact_mut(width) {
                row.copy_from_slice(w.recurrent_bias);
            }
            multiply((b, width, st), (h, false), (w.recurrent, true), &mut recurrent, true);
            for n in (0..b).filter(|&n| self.runs(t, n)) {
                self.step(&mut tape, &recurrent[n * width..(n + 1) * width], (t, n), h, c);
            }
            if !w.projection.is_empty() {
                let full = tape.full[t * b * hid..(t + 1) * b * hid].to_vec();
                let mut next = zeros(b * st);
                multiply((b, st, hid), (&full, false), (w.projection, true), &mut next, false);
                for n in (0..b).filter(|&n| self.runs(t, n)) {
                    h[n * st..(n + 1) * st].copy_from_slice(&next[n * st..(n + 1) * st]);
                }
            }
            for n in (0..b).filter(|&n| self.runs(t, n)) {
                let at = (t * b + n) * st;
                tape.out[at..at + st].copy_from_slice(&h[n * st..(n + 1) * st]);
            }
        }
        tape
    }

    /// One sequence's gates and new state at one time. With a projection the state is left to the caller.
    fn step<T: Real>(
        &self,
        tape: &mut Tape<T>,
        recurrent: &[T],
        (t, n): (usize, usize),
        h: &mut [T],
        c: &mut [T],
    ) {
        let (hid, st) = (self.hidden, self.state);
        let width = self.cell.gates() * hid;
        let row = t * self.batch + n;
        let g = &mut tape.gates[row * width..(row + 1) * width];
        let one = T::one();
        for j in 0..hid {
            match self.cell {
                Cell::Relu | Cell::Tanh => {
                    let a = g[j] + recurrent[j];
                    g[j] = if self.cell == Cell::Tanh { a.quick_tanh() } else { a.max(T::zero()) };
                    h[n * st + j] = g[j];
                }
                Cell::Gru => {
                    let r = sigmoid(g[j] + recurrent[j]);
                    let z = sigmoid(g[hid + j] + recurrent[hid + j]);
                    let inner = recurrent[2 * hid + j];
                    let new = (g[2 * hid + j] + r * inner).quick_tanh();
                    tape.inner[row * hid + j] = inner;
                    (g[j], g[hid + j], g[2 * hid + j]) = (r, z, new);
                    let old = h[n * st + j];
                    h[n * st + j] = (one - z) * new + z * old;
                }
                Cell::Lstm => {
                    let i = sigmoid(g[j] + recurrent[j]);
                    let f = sigmoid(g[hid + j] + recurrent[hid + j]);
                    let new = (g[2 * hid + j] + recurrent[2 * hid + j]).quick_tanh();
                    let o = sigmoid(g[3 * hid + j] + recurrent[3 * hid + j]);
                    (g[j], g[hid + j], g[2 * hid + j], g[3 * hid + j]) = (i, f, new, o);
                    let old = c[n * hid + j];
                    tape.before_cells[row * hid + j] = old;
                    let mut cell = f * old + i * new;
                    if let Some((low, high)) = self.clip {
                        cell = cell.max(T::of(low)).min(T::of(high));
                    }
                    c[n * hid + j] = cell;
                    tape.cells[row * hid + j] = cell;
                    let full = o * cell.quick_tanh();
                    tape.full[row * hid + j] = full;
                    if st == hid {
                        h[n * st + j] = full;
                    }
                }
            }
        }
    }

    /// Gradients. `dout` is that of the outputs; `dh` and `dc` come as those of the final states and leave as
    /// those of the first. `dx` and the weight gradients are added to.
    #[allow(clippy::too_many_arguments)] // the pass needs them all, and each once
    pub fn backward<T: Real>(
        &self,
        x: &[T],
        w: &Weights<&[T]>,
        tape: &Tape<T>,
        dout: &[T],
        dh: &mut [T],
        dc: &mut [T],
        dx: &mut [T],
        dw: &mut Weights<&mut [T]>,
    ) {
        let (b, hid, st) = (self.batch, self.hidden, self.state);
        let (width, rows) = (self.cell.gates() * hid, self.time * b);
        let zeros = |n: usize| vec![T::zero(); n];
        // Gradients before the activations, of the input's part and of the recurrent one (GRU's n differs).
        let (mut gx, mut gh) = (zeros(rows * width), zeros(rows * width));
        let mut dfull = zeros(b * hid);
        for t in self.steps().rev() {
            for n in (0..b).filter(|&n| self.runs(t, n)) {
                for j in 0..st {
                    dh[n * st + j] += dout[(t * b + n) * st + j];
                }
            }
            let mut through = dh.to_vec();
            for n in (0..b).filter(|&n| !self.runs(t, n)) {
                through[n * st..(n + 1) * st].fill(T::zero());
            }
            if w.projection.is_empty() {
                dfull.copy_from_slice(&through);
            } else {
                multiply((b, hid, st), (&through, false), (w.projection, false), &mut dfull, false);
                let full = &tape.full[t * b * hid..(t + 1) * b * hid];
                multiply((st, hid, b), (&through, true), (full, false), dw.projection, true);
            }
            for n in (0..b).filter(|&n| self.runs(t, n)) {
                let at = (t * b + n) * width;
                let (gx, gh) = (&mut gx[at..at + width], &mut gh[at..at + width]);
                let dc = dc.get_mut(n * hid..(n + 1) * hid).unwrap_or_default();
                self.step_back(tape, &dfull[n * hid..(n + 1) * hid], (t, n), dc, gx, gh);
            }
            let now = &gh[t * b * width..(t + 1) * b * width];
            let mut back = zeros(b * st);
            multiply((b, st, width), (now, false), (w.recurrent, false), &mut back, false);
            for n in (0..b).filter(|&n| self.runs(t, n)) {
                for j in 0..st {
                    let at = n * st + j;
                    let direct = match self.cell {
                        Cell::Gru => through[at] * tape.gates[(t * b + n) * width + hid + j],
                        _ => T::zero(),
                    };
                    dh[at] = back[at] + direct;
                }
            }
        }
        multiply((rows, self.input, width), (&gx, false), (w.input, false), dx, true);
        multiply((width, self.input, rows), (&gx, true), (x, false), dw.input, true);
        multiply((width, st, rows), (&gh, true), (&tape.before, false), dw.recurrent, true);
        for (bias, all) in [(&mut dw.input_bias, &gx), (&mut dw.recurrent_bias, &gh)] {
            for row in all.chunks_exact(width) {
                for (b, &g) in bias.iter_mut().zip(row) {
                    *b += g;
                }
            }
        }
    }

    /// Gradients of one sequence's gates at one time; `dc` is carried to the time before.
    fn step_back<T: Real>(
        &self,
        tape: &Tape<T>,
        dh: &[T],
        (t, n): (usize, usize),
        dc: &mut [T],
        gx: &mut [T],
        gh: &mut [T],
    ) {
        let hid = self.hidden;
        let row = t * self.batch + n;
        let width = self.cell.gates() * hid;
        let g = &tape.gates[row * width..(row + 1) * width];
        let (zero, one) = (T::zero(), T::one());
        for j in 0..hid {
            match self.cell {
                Cell::Tanh => gx[j] = dh[j] * (one - g[j] * g[j]),
                Cell::Relu => gx[j] = if g[j] > zero { dh[j] } else { zero },
                Cell::Gru => {
                    let (r, z, new) = (g[j], g[hid + j], g[2 * hid + j]);
                    let old = tape.before[row * hid + j];
                    let dn = dh[j] * (one - z) * (one - new * new);
                    gx[2 * hid + j] = dn;
                    gh[2 * hid + j] = dn * r;
                    gx[j] = dn * tape.inner[row * hid + j] * r * (one - r);
                    gx[hid + j] = dh[j] * (old - new) * z * (one - z);
                }
                Cell::Lstm => {
                    let (i, f, new, o) = (g[j], g[hid + j], g[2 * hid + j], g[3 * hid + j]);
                    let (cell, old) = (tape.cells[row * hid + j], tape.before_cells[row * hid + j]);
                    let squashed = cell.quick_tanh();
                    let mut d = dc[j] + dh[j] * o * (one - squashed * squashed);
                    if let Some((low, high)) = self.clip
                        && (cell <= T::of(low) || cell >= T::of(high))
                    {
                        d = zero;
                    }
                    gx[j] = d * new * i * (one - i);
                    gx[hid + j] = d * old * f * (one - f);
                    gx[2 * hid + j] = d * i * (one - new * new);
                    gx[3 * hid + j] = dh[j] * squashed * o * (one - o);
                    dc[j] = d * f;
                }
            }
        }
        match self.cell {
            Cell::Gru => gh[..2 * hid].copy_from_slice(&gx[..2 * hid]),
            _ => gh.copy_from_slice(gx),
        }
    }
}
