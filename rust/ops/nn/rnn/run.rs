//! Runs over all layers and directions, forward and backward.

use super::{RnnMode, RnnParam};
use crate::dtype::Element;
use crate::kernels::philox::{philox, unit};
use crate::kernels::real::Real;
use crate::kernels::rnn::{Columns, Layer, Tape, Weights};
use crate::operator::{OpContext, RandomKey};
use crate::tensor::View;
use crate::with_dtype;
use std::borrow::Cow;
use std::ops::Range;

/// The operands of a run, as slices.
pub struct Source<'a, T> {
    param: &'a RnnParam,
    x: &'a [T],
    weights: &'a [T],
    pub state: &'a [T],
    pub cell: &'a [T],
    lengths: Option<Vec<usize>>,
    time: usize,
    batch: usize,
    first: usize,
    pub key: RandomKey,
    pub train: bool,
}

/// The operands in `inputs`, those of the operator.
///
/// # Safety
/// The inputs must not be written while the source lives.
pub unsafe fn source<'a, T: Real>(
    param: &'a RnnParam,
    ctx: &OpContext,
    inputs: &[&'a View],
) -> Source<'a, T> {
    let d = inputs[0].dims();
    let lstm = param.mode == RnnMode::Lstm;
    // SAFETY: promised by the caller.
    unsafe {
        let lengths = param.use_sequence_length.then(|| {
            let view = inputs[inputs.len() - 1];
            with_dtype!(view.dtype(), U => view.slice::<U>().iter()
                .map(|l| Element::to_f64(*l).max(0.0) as usize).collect())
        });
        Source {
            param,
            x: inputs[0].slice(),
            weights: inputs[1].slice(),
            state: inputs[2].slice(),
            cell: if lstm { inputs[3].slice() } else { &[] },
            lengths,
            time: d[0] as usize,
            batch: d[1] as usize,
            first: d[2] as usize,
            key: ctx.random,
            train: ctx.is_train,
        }
    }
}

/// A forward run: the inputs of each layer but the first, and the tapes of each (layer, direction).
pub struct RecordedRun<T> {
    inputs: Vec<Vec<T>>,
    tapes: Vec<Tape<T>>,
}

/// The final states of a forward run.
pub struct Results<T> {
    pub states: Vec<T>,
    pub cells: Vec<T>,
}

impl<T: Real> Source<'_, T> {
    fn layer(&self, at: usize) -> Layer<'_> {
        let layer = at / self.param.directions();
        Layer {
            cell: self.param.cell(),
            time: self.time,
            batch: self.batch,
            input: self.param.input(layer, self.first),
            hidden: self.param.hidden(),
            state: self.param.state(),
            reverse: at % self.param.directions() == 1,
            lengths: self.lengths.as_deref(),
            clip: self.param.clip(),
        }
    }

    fn weights(&self, r: &Weights<Range<usize>>) -> Weights<&[T]> {
        let of = |r: &Range<usize>| &self.weights[r.clone()];
        Weights {
            input: of(&r.input),
            recurrent: of(&r.recurrent),
            projection: of(&r.projection),
            input_bias: of(&r.input_bias),
            recurrent_bias: of(&r.recurrent_bias),
        }
    }

    /// Multiplies the input of a layer, or its gradient, by the factors of dropout.
    fn drop(&self, layer: usize, values: &mut [T]) {
        let p = self.param.p;
        if layer == 0 || p == 0.0 || !self.train {
            return;
        }
        let keep = T::one() / T::of(f64::from(1.0 - p));
        for (block, four) in values.chunks_mut(4).enumerate() {
            // Layers draw from counters of their own.
            let counter = ((layer as u64) << 40) + block as u64;
            for (v, word) in four.iter_mut().zip(philox(self.key.seed, self.key.stream, counter)) {
                *v = if unit(word) < 1.0 - p { *v * keep } else { T::zero() };
            }
        }
    }

    /// Runs over all layers; `last` is where the outputs of the last one go, if they are wanted.
    pub fn run(&self, mut last: Option<&mut [T]>) -> (RecordedRun<T>, Results<T>) {
        let (ranges, _) = self.param.ranges(self.first);
        let (dirs, st, hid) = (self.param.directions(), self.param.state(), self.param.hidden());
        let mut run = RecordedRun { inputs: Vec::new(), tapes: Vec::new() };
        let (mut states, mut cells) = (self.state.to_vec(), self.cell.to_vec());
        let mut out = Vec::new();
        for layer in 0..self.param.layers() {
            if layer > 0 {
                let mut x = std::mem::take(&mut out);
                self.drop(layer, &mut x);
                run.inputs.push(x);
            }
            let x = run.inputs.last().map_or(self.x, |x| x);
            let is_last = layer + 1 == self.param.layers();
            let all = match last.as_deref_mut().filter(|_| is_last) {
                Some(last) => last,
                None => {
                    out = vec![T::zero(); self.time * self.batch * dirs * st];
                    &mut out
                }
            };
            for d in 0..dirs {
                let at = layer * dirs + d;
                let n = self.batch * st;
                let h = &mut states[at * n..(at + 1) * n];
                let n = self.batch * hid;
                let c = cells.get_mut(at * n..(at + 1) * n).unwrap_or_default();
                let to = Columns { all: &mut *all, first: d * st, width: dirs * st };
                run.tapes.push(self.layer(at).forward(x, &self.weights(&ranges[at]), h, c, to));
            }
        }
        (run, Results { states, cells })
    }
}

/// Gradients of data, state and state_cell from those of the outputs; those of the parameters are
/// written to `dw`.
pub fn differentiate<T: Real>(
    source: &Source<'_, T>,
    run: &RecordedRun<T>,
    mut dout: Cow<'_, [T]>,
    mut dh: Vec<T>,
    mut dc: Vec<T>,
    dw: &mut [T],
) -> [Vec<T>; 3] {
    let param = source.param;
    let (ranges, total) = param.ranges(source.first);
    let (dirs, st, hid) = (param.directions(), param.state(), param.hidden());
    assert_eq!(dw.len(), total);
    if source.time * source.batch == 0 {
        dw.fill(T::zero());
    }
    for layer in (0..param.layers()).rev() {
        let x = if layer == 0 { source.x } else { &run.inputs[layer - 1] };
        let mut dx = vec![T::zero(); x.len()];
        for d in 0..dirs {
            let at = layer * dirs + d;
            let mut grads = parts_mut(dw, &ranges[at]);
            let (n, m) = (source.batch * st, source.batch * hid);
            source.layer(at).backward(
                x,
                &source.weights(&ranges[at]),
                &run.tapes[at],
                Columns { all: &dout[..], first: d * st, width: dirs * st },
                &mut dh[at * n..(at + 1) * n],
                dc.get_mut(at * m..(at + 1) * m).unwrap_or_default(),
                &mut dx,
                &mut grads,
            );
        }
        source.drop(layer, &mut dx);
        dout = Cow::Owned(dx);
    }
    [dout.into_owned(), dh, dc]
}

/// The parts of a layer in the parameter vector; they follow one another in the order of the
/// fields.
fn parts_mut<'a, T>(mut all: &'a mut [T], r: &Weights<Range<usize>>) -> Weights<&'a mut [T]> {
    let mut at = 0;
    let mut take = |range: &Range<usize>| {
        let (_, rest) = std::mem::take(&mut all).split_at_mut(range.start - at);
        let (part, rest) = rest.split_at_mut(range.len());
        (all, at) = (rest, range.end);
        part
    };
    Weights {
        input: take(&r.input),
        recurrent: take(&r.recurrent),
        projection: take(&r.projection),
        input_bias: take(&r.input_bias),
        recurrent_bias: take(&r.recurrent_bias),
    }
}
