//! The backward pass of a layer.

use super::panels::Panels;
use super::{Addresses, Cell, Columns, Layer, Tape, Weights, cells, multiply};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::parallel::Shared;
use crate::kernels::real::Real;
use crate::kernels::reduce_rows::sum_rows;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

impl Layer<'_> {
    /// Gradients. `dout` is that of the outputs; `dh` and `dc` come as those of the final states
    /// and leave as those of the first. `dx` is added to; the weight gradients are written.
    #[expect(clippy::too_many_arguments, reason = "every operand of a layer has a gradient")]
    pub fn backward<T: Real>(
        &self,
        x: &[T],
        w: &Weights<&[T]>,
        tape: &Tape<T>,
        dout: Columns<&[T]>,
        dh: &mut [T],
        dc: &mut [T],
        dx: &mut [T],
        dw: &mut Weights<&mut [T]>,
    ) {
        self.check(w, dh, dc);
        let (rows, st) = (self.time * self.batch, self.state);
        let (width, direct) = self.widths();
        assert!(rows == 0 || dout.all.len() >= (rows - 1) * dout.width + dout.first + st);
        assert!(dout.first + st <= dout.width);
        assert!(tape.gates.len() == rows * width && tape.states.len() == (rows + self.batch) * st);
        let sizes = [
            rows * width,
            rows * (width - direct),
            if w.projection.is_empty() { 0 } else { rows * st },
        ];
        with_scratch(sizes.iter().sum(), |scratch: &mut [T]| {
            if self.lengths.is_some() {
                // The steps after the end of a sequence have no gradients.
                scratch.fill(T::zero());
            }
            let (dg, rest) = scratch.split_at_mut(sizes[0]);
            let (dn, projected) = rest.split_at_mut(sizes[1]);
            let mut found = Found { dg, dn, projected };
            self.run_back(w, tape, dout, (dh, dc), &mut found);
            self.of_weights(x, w, tape, &mut found, (dx, dw));
        });
    }

    /// Carries the gradients through all steps, and leaves those of every step in `found`.
    fn run_back<T: Real>(
        &self,
        w: &Weights<&[T]>,
        tape: &Tape<T>,
        dout: Columns<&[T]>,
        (dh, dc): (&mut [T], &mut [T]),
        found: &mut Found<'_, T>,
    ) {
        let (hid, st) = (self.hidden, self.state);
        let (width, direct) = self.widths();
        let lefts = (self.batch, self.time);
        let steps = BackwardSteps {
            layer: self,
            gates: Panels::new((direct, st), (w.recurrent, false), lefts),
            new: (direct < width)
                .then(|| Panels::new((hid, st), (&w.recurrent[direct * st..], false), lefts)),
            projection: (!w.projection.is_empty())
                .then(|| Panels::new((st, hid), (w.projection, false), lefts)),
            tape: tape.read(),
            dout: Shared(dout.all.as_ptr().cast_mut()),
            dout_at: (dout.first, dout.width),
            dh: Shared(dh.as_mut_ptr()),
            dc: Shared(dc.as_mut_ptr()),
            dg: Shared(found.dg.as_mut_ptr()),
            dn: Shared(found.dn.as_mut_ptr()),
            projected: Shared(found.projected.as_mut_ptr()),
        };
        self.for_sequences(|block| {
            for t in (0..self.time).rev().map(|s| self.at(s)) {
                // SAFETY: extents were checked; a block's rows of what is written are its own.
                unsafe { steps.step(t, block.clone()) };
            }
        });
    }

    /// The gradients of data and weights, which are products and sums over all steps.
    fn of_weights<T: Real>(
        &self,
        x: &[T],
        w: &Weights<&[T]>,
        tape: &Tape<T>,
        found: &mut Found<'_, T>,
        (dx, dw): (&mut [T], &mut Weights<&mut [T]>),
    ) {
        let (rows, hid, st) = (self.time * self.batch, self.hidden, self.state);
        let (width, direct) = self.widths();
        let Found { dg, dn, projected } = found;
        let (before, _) = self.around(0);
        let states = &tape.states[before * self.batch * st..];
        multiply((rows, self.input, width), (dg, false), (w.input, false), dx, true);
        multiply((width, self.input, rows), (dg, true), (x, false), dw.input, false);
        let (of_direct, of_new) = dw.recurrent.split_at_mut(direct * st);
        assert!(states.len() >= rows * st);
        let left = Mat::rows(dg.as_mut_ptr(), width).t();
        let right = Mat::rows(states.as_ptr().cast_mut(), st);
        let to = Mat::rows(of_direct.as_mut_ptr(), st);
        // SAFETY: rows of `width` gates start with `direct` ones; `to` is a part of its own.
        unsafe { gemm((direct, st, rows), left, right, to, false, Threads::Pool) };
        if direct < width {
            multiply((hid, st, rows), (dn, true), (states, false), of_new, false);
        }
        if !w.projection.is_empty() {
            let projection = &mut *dw.projection;
            multiply((st, hid, rows), (projected, true), (&tape.full, false), projection, false);
        }
        assert!(dw.input_bias.len() == width && dw.recurrent_bias.len() == width);
        // SAFETY: the gradients have `rows` rows of these widths.
        unsafe {
            sum_rows(dg.as_ptr(), rows, width, dw.input_bias.as_mut_ptr());
            dw.recurrent_bias.copy_from_slice(dw.input_bias);
            sum_rows(dn.as_ptr(), rows, width - direct, dw.recurrent_bias[direct..].as_mut_ptr());
        }
    }
}

/// The gradients at every step: before the activations, of the recurrent part of GRU's n, and of
/// what was projected.
struct Found<'a, T> {
    dg: &'a mut [T],
    dn: &'a mut [T],
    projected: &'a mut [T],
}

impl<T> Tape<T> {
    /// Addresses of the parts, for reading.
    fn read(&self) -> Addresses<T> {
        let of = |part: &[T]| Shared(part.as_ptr().cast_mut());
        Addresses {
            gates: of(&self.gates),
            inner: of(&self.inner),
            states: of(&self.states),
            cells: of(&self.cells),
            full: of(&self.full),
        }
    }
}

/// The steps of a backward pass. Right factors are those of the forward one, the other way round.
struct BackwardSteps<'a, T> {
    layer: &'a Layer<'a>,
    gates: Panels<'a, T>,
    new: Option<Panels<'a, T>>,
    projection: Option<Panels<'a, T>>,
    tape: Addresses<T>,
    dout: Shared<T>,
    /// First column and elements of a row of the output.
    dout_at: (usize, usize),
    dh: Shared<T>,
    dc: Shared<T>,
    dg: Shared<T>,
    dn: Shared<T>,
    projected: Shared<T>,
}

impl<T: Real> BackwardSteps<'_, T> {
    /// The gradients of one step of a block of sequences. Rows of sequences that have ended stay as
    /// they are: states pass through, gates have none.
    ///
    /// # Safety
    /// The step after is done, and no other task uses the block's rows. Sizes are those of the
    /// layer.
    unsafe fn step(&self, t: usize, block: Range<usize>) {
        let (layer, m) = (self.layer, block.len());
        let (b, hid, st) = (layer.batch, layer.hidden, layer.state);
        let (width, _) = layer.widths();
        let running = || block.clone().filter(|&n| layer.runs(t, n));
        // SAFETY: promised by the caller: rows are below `batch` or, by time, `time * batch`.
        unsafe {
            for n in running() {
                let (first, out_width) = self.dout_at;
                let dout = self.dout.at((t * b + n) * out_width + first);
                cells::add(dout, self.dh.at(n * st), st);
            }
            match &self.projection {
                None => self.cells(t, running(), self.dh.at(block.start * st), block.start),
                Some(projection) => {
                    for n in running() {
                        let to = self.projected.at((t * b + n) * st);
                        self.dh.at(n * st).copy_to_nonoverlapping(to, st);
                        std::slice::from_raw_parts_mut(self.dh.at(n * st), st).fill(T::zero());
                    }
                    with_scratch::<T, _>(m * hid, |full| {
                        full.fill(T::zero());
                        let from = Mat::rows(self.projected.at((t * b + block.start) * st), st);
                        projection.multiply_add(m, from, Mat::rows(full.as_mut_ptr(), hid));
                        self.cells(t, running(), full.as_mut_ptr(), block.start);
                    });
                }
            }
            let dh = Mat::rows(self.dh.at(block.start * st), st);
            let row = t * b + block.start;
            self.gates.multiply_add(m, Mat::rows(self.dg.at(row * width), width), dh);
            if let Some(new) = &self.new {
                new.multiply_add(m, Mat::rows(self.dn.at(row * hid), hid), dh);
            }
        }
    }

    /// The gates of sequences at one time. `dh` is that of sequence `first`, with `hidden` elements
    /// for each; the rest is the gradient of the state before.
    ///
    /// # Safety
    /// As [`BackwardSteps::step`].
    unsafe fn cells(
        &self,
        t: usize,
        running: impl Iterator<Item = usize>,
        dh: *mut T,
        first: usize,
    ) {
        let (layer, tape) = (self.layer, &self.tape);
        let (b, hid) = (layer.batch, layer.hidden);
        let (width, _) = layer.widths();
        let (before, after) = layer.around(t);
        for n in running {
            // SAFETY: promised by the caller.
            unsafe {
                let row = |part: Shared<T>, t: usize| part.at((t * b + n) * hid);
                let (g, dg) = (tape.gates.at((t * b + n) * width), self.dg.at((t * b + n) * width));
                let dh = dh.add((n - first) * hid);
                match layer.cell {
                    Cell::Tanh => cells::vanilla_back(g, dh, dg, hid, true),
                    Cell::Relu => cells::vanilla_back(g, dh, dg, hid, false),
                    Cell::Lstm => {
                        let (old, cell) = (row(tape.cells, before), row(tape.cells, after));
                        let dc = self.dc.at(n * hid);
                        cells::lstm_back(g, old, cell, dh, dc, dg, hid, layer.bounds());
                    }
                    Cell::Gru => {
                        let (inner, old) = (row(tape.inner, t), row(tape.states, before));
                        cells::gru_back(g, inner, old, dh, dg, row(self.dn, t), hid);
                    }
                }
            }
        }
    }
}
