//! `RNN`: stacked recurrent layers, vanilla, LSTM or GRU.

mod on_device;
mod run;

use super::infer::{check_float, complete, expect_rank};
use super::widening;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::real::Real;
use crate::kernels::rnn::{Cell, Weights};
use crate::lock::Lock;
use crate::operator::infer::{assign_shape, one_type};
use crate::operator::property::{
    Backward, Entries, Forward, MaybeType, Operator, OperatorProperty, define,
};
use crate::operator::{Dep, Launcher, OpDef, OpReq, RandomKey, ResourceRequest};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_real};
use run::{RecordedRun, differentiate, source};
use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

param_enum! {
    /// The recurrence.
    pub enum RnnMode { Gru = "gru", Lstm = "lstm", Relu = "rnn_relu", Tanh = "rnn_tanh" }
}

params! {
    /// Parameters of `RNN`.
    pub struct RnnParam {
        state_size: u32, required.ge(1.0), "Extent of the hidden state.";
        num_layers: u32, required.ge(1.0).le(65535.0), "Number of layers.";
        bidirectional: bool, default(false), "Run each layer forward and backward in time and join \
                                              the outputs.";
        mode: RnnMode, required, "The recurrence.";
        p: f32, default(0.0).ge(0.0).le(1.0), "Share of a layer's output that is dropped before \
                                               the next, in training.";
        state_outputs: bool, default(false), "Return the final states as well.";
        projection_size: Option<i32>, default(None), "Extent that the LSTM's state is projected \
                                                      to.";
        lstm_state_clip_min: Option<f64>, default(None), "Least value of the LSTM's cell state.";
        lstm_state_clip_max: Option<f64>, default(None), "Greatest value of the LSTM's cell state.";
        lstm_state_clip_nan: bool, default(false), "Accepted, without effect.";
        use_sequence_length: bool, default(false), "Is there an input sequence_length?";
    }
}

const DOC: &str = r#"
Stacked recurrent layers over sequences.

- ``rnn_relu``, ``rnn_tanh``: ``h = f(W x + b + R h + c)``
- ``lstm``: gates i, f, g, o of ``W x + b + R h + c``; ``c = f * c + i * g``, ``h = o * tanh(c)``
- ``gru``: gates r, z, n; ``n = tanh(W x + b + r * (R h + c))``, ``h = (1 - z) * n + z * h``

Notes
-----
Data ``(T, N, I)``; state, and state_cell of an lstm, ``(L * D, N, H)``, with ``D = 2`` if
bidirectional; the output is ``(T, N, D * H)``, with ``state_outputs=True`` followed by the final
states. ``parameters`` is one vector: for every layer and direction W ``(G * H, in)`` and R ``(G *
H, H)``, then for every layer and direction the biases b and c ``(G * H,)``. With
``projection_size=P`` (lstm only) the state, R and outputs have extent P and a matrix ``(P, H)``
follows R. With ``use_sequence_length=True`` sequences end at ``sequence_length`` ``(N,)``: later
outputs are 0, and the final states are those of the end. One dtype: float16 (calculated in
float32), float32 or float64.

Examples
--------
>>> x, w, h = nd.zeros((2, 1, 1)), nd.zeros(4), nd.ones((1, 1, 1))
>>> nd.RNN(x, w, h, state_size=1, num_layers=1, mode='rnn_tanh').shape
(2, 1, 1)

References
----------
S. Hochreiter, J. Schmidhuber, Long Short-Term Memory, 1997. K. Cho et al., EMNLP 2014. H. Sak, A.
Senior, F. Beaufays, arXiv:1402.1128 (projection).
"#;

/// The state that a forward run leaves for the backward one: its random key and mode and, if
/// gradients will be needed, the run itself: a `RecordedRun` of the element type or, on a device,
/// what it has kept.
#[derive(Default)]
struct LastRun {
    key: RandomKey,
    train: bool,
    run: Option<Arc<dyn Any + Send + Sync>>,
}

/// The operator of one node or recorded call.
struct Rnn {
    param: RnnParam,
    kept: Lock<LastRun>,
}

pub fn operators() -> Vec<OpDef> {
    let [forward, backward] = define::<RnnParam>("RNN", widening::cpu);
    let forward = forward.aliases(&["_npx_rnn"]).doc(DOC).input_docs(&[
        ("data", "The sequences (T, N, I)."),
        ("parameters", "All weights, then all biases, as one vector."),
        ("state", "First hidden states (L * D, N, H)."),
        ("state_cell", "First cell states (L * D, N, H), with mode='lstm'."),
        ("sequence_length", "Lengths (N,), with use_sequence_length=True."),
    ]);
    vec![forward, backward]
}

impl OperatorProperty for RnnParam {
    fn list_arguments(&self) -> Vec<&'static str> {
        let mut names = vec!["data", "parameters", "state"];
        names.extend((self.mode == RnnMode::Lstm).then_some("state_cell"));
        names.extend(self.use_sequence_length.then_some("sequence_length"));
        names
    }

    fn list_outputs(&self) -> Vec<&'static str> {
        let mut names = vec!["output"];
        names.extend(self.state_outputs.then_some("state_output"));
        let has_cell = self.state_outputs && self.mode == RnnMode::Lstm;
        names.extend(has_cell.then_some("statecell_output"));
        names
    }

    fn infer_shape(
        &self,
        in_shape: &mut [Shape],
        out_shape: &mut [Shape],
        _: &mut [Shape],
    ) -> Result<bool> {
        infer_shape(self, in_shape, out_shape)
    }

    fn infer_type(
        &self,
        in_type: &mut [MaybeType],
        out_type: &mut [MaybeType],
        _: &mut [MaybeType],
    ) -> Result<bool> {
        let n = in_type.len() - usize::from(self.use_sequence_length);
        let (main, lengths) = in_type.split_at_mut(n);
        let known = one_type(&mut [("input", main), ("output", out_type)])?;
        check_float(main[0])?;
        for slot in lengths {
            *slot = slot.or(main[0]);
        }
        Ok(known)
    }

    fn forward_resource(&self, _: &[Shape]) -> Vec<ResourceRequest> {
        if self.p > 0.0 { vec![ResourceRequest::Random] } else { vec![] }
    }

    fn declare_backward_dependency(&self, run: Entries<'_>) -> Vec<Dep> {
        [run.out_grad, run.in_data].concat()
    }

    fn create_operator(&self, _: Context, _: &[Shape], _: &[DType]) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Rnn { param: self.clone(), kept: Lock::default() }))
    }
}

impl Operator for Rnn {
    fn forward(&self, run: &Forward<'_>) -> Result<()> {
        with_real!(run.in_data[0].dtype(), T => self.run_forward::<T>(run))
    }

    fn backward(&self, run: &Backward<'_>) -> Result<()> {
        let inputs: Vec<&View> = run.in_data.iter().copied().flatten().collect();
        with_real!(inputs[0].dtype(), T => self.run_backward::<T>(run, &inputs))
    }

    fn forward_on(&self, run: &Forward<'_>, launcher: &mut dyn Launcher) -> Result<()> {
        on_device::forward(self, run, launcher)
    }

    fn backward_on(&self, run: &Backward<'_>, launcher: &mut dyn Launcher) -> Result<()> {
        on_device::backward(self, run, launcher)
    }
}

impl RnnParam {
    pub(in crate::ops) fn cell(&self) -> Cell {
        match self.mode {
            RnnMode::Gru => Cell::Gru,
            RnnMode::Lstm => Cell::Lstm,
            RnnMode::Relu => Cell::Relu,
            RnnMode::Tanh => Cell::Tanh,
        }
    }

    pub(in crate::ops) fn directions(&self) -> usize {
        1 + usize::from(self.bidirectional)
    }

    pub(in crate::ops) fn hidden(&self) -> usize {
        self.state_size as usize
    }

    /// Extent of the recurrent state.
    pub(in crate::ops) fn state(&self) -> usize {
        self.projection_size.map_or(self.hidden(), |p| p.max(1) as usize)
    }

    pub(in crate::ops) fn layers(&self) -> usize {
        self.num_layers as usize
    }

    /// Extent of the input of a layer.
    pub(in crate::ops) fn input(&self, layer: usize, first: usize) -> usize {
        if layer == 0 { first } else { self.directions() * self.state() }
    }

    /// Ranges of the parameter vector for every (layer, direction), and its length. Sizes that no
    /// machine holds come out as the greatest there is.
    pub(in crate::ops) fn ranges(&self, first: usize) -> (Vec<Weights<Range<usize>>>, usize) {
        let (gates, hid, st) = (self.cell().gates() * self.hidden(), self.hidden(), self.state());
        let mut next = 0usize;
        let mut take = |n: usize| {
            let from = next;
            next = from.saturating_add(n);
            from..next
        };
        let mut all = Vec::new();
        for layer in 0..self.layers() {
            for _ in 0..self.directions() {
                all.push(Weights {
                    input: take(gates.saturating_mul(self.input(layer, first))),
                    recurrent: take(gates.saturating_mul(st)),
                    projection: take(if self.projection_size.is_some() {
                        st.saturating_mul(hid)
                    } else {
                        0
                    }),
                    input_bias: 0..0,
                    recurrent_bias: 0..0,
                });
            }
        }
        for w in &mut all {
            w.input_bias = take(gates);
            w.recurrent_bias = take(gates);
        }
        (all, next)
    }

    pub(in crate::ops) fn clip(&self) -> Option<(f64, f64)> {
        let (low, high) = (self.lstm_state_clip_min, self.lstm_state_clip_max);
        (low.is_some() || high.is_some())
            .then(|| (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY)))
    }
}

fn infer_shape(param: &RnnParam, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let lstm = param.mode == RnnMode::Lstm;
    if param.projection_size.is_some() && !lstm {
        return Err(Error::argument(
            "projection_size",
            "value",
            param.state(),
            "None, as mode is not 'lstm'",
        ));
    }
    expect_rank(&inputs[0], "data", 3..=3)?;
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let (time, batch, first) = (inputs[0].dims()[0], inputs[0].dims()[1], inputs[0].dims()[2]);
    let stacked = (param.layers() * param.directions()) as i64;
    let (hid, st) = (param.hidden() as i64, param.state() as i64);
    if first >= 0 {
        let length = i64::try_from(param.ranges(first as usize).1).unwrap_or(i64::MAX);
        assign_shape(&mut inputs[1], "parameters", &Shape::new(&[length]))?;
    }
    let (state, cell) = (Shape::new(&[stacked, batch, st]), Shape::new(&[stacked, batch, hid]));
    assign_shape(&mut inputs[2], "state", &state)?;
    if lstm {
        assign_shape(&mut inputs[3], "state_cell", &cell)?;
    }
    if param.use_sequence_length {
        let at = inputs.len() - 1;
        assign_shape(&mut inputs[at], "sequence_length", &Shape::new(&[batch]))?;
    }
    let out = Shape::new(&[time, batch, param.directions() as i64 * st]);
    for (slot, (name, shape)) in outputs.iter_mut().zip([
        ("output", out),
        ("state_output", state),
        ("statecell_output", cell),
    ]) {
        assign_shape(slot, name, &shape)?;
    }
    complete(inputs, outputs)
}

impl Rnn {
    fn run_forward<T: Real>(&self, run: &Forward<'_>) -> Result<()> {
        let inputs: Vec<&View> = run.in_data.iter().collect();
        // SAFETY: inputs are not written meanwhile; outputs overlap none of them.
        unsafe {
            let source = source::<T>(&self.param, run.ctx, &inputs);
            let is_wanted = |i: usize| run.req.get(i).is_some_and(|r| *r != OpReq::Null);
            let last = is_wanted(0).then(|| run.out_data[0].slice_mut::<T>());
            let (made, results) = source.run(last);
            let made = run.ctx.need_grad.then(|| Arc::new(made) as Arc<dyn Any + Send + Sync>);
            *self.kept.lock() = LastRun { key: run.ctx.random, train: run.ctx.is_train, run: made };
            for (i, values) in [(1, results.states), (2, results.cells)] {
                if is_wanted(i) {
                    run.out_data[i].slice_mut::<T>().copy_from_slice(&values);
                }
            }
        }
        Ok(())
    }

    fn run_backward<T: Real>(&self, run: &Backward<'_>, inputs: &[&View]) -> Result<()> {
        // SAFETY: inputs are not written meanwhile; gradients overlap none of them.
        unsafe {
            let mut source = source::<T>(&self.param, run.ctx, inputs);
            let kept = {
                let kept = self.kept.lock();
                (source.key, source.train) = (kept.key, kept.train);
                kept.run.clone().and_then(|run| run.downcast::<RecordedRun<T>>().ok())
            };
            // A run that kept nothing is repeated.
            let made = kept.unwrap_or_else(|| Arc::new(source.run(None).0));
            let head = |i: usize| run.out_grad.get(i).copied().flatten().map(|v| v.slice::<T>());
            let of_state = |i: usize, n: usize| head(i).map_or(vec![T::zero(); n], <[T]>::to_vec);
            let (dh, dc) = (of_state(1, source.state.len()), of_state(2, source.cell.len()));
            let is_wanted = |i: usize| run.req.get(i).is_some_and(|r| *r != OpReq::Null);
            let mut unwanted = Vec::new();
            let dw = if is_wanted(1) {
                run.in_grad[1].slice_mut::<T>()
            } else {
                unwanted.resize(inputs[1].size(), T::zero());
                &mut unwanted
            };
            let dout = Cow::Borrowed(head(0).unwrap_or_default());
            let [dx, dh, dc] = differentiate(&source, &made, dout, dh, dc, dw);
            let lstm = self.param.mode == RnnMode::Lstm;
            for (i, values) in [(0, dx), (2, dh), (3, dc)] {
                if is_wanted(i) && (i < 3 || lstm) {
                    run.in_grad[i].slice_mut::<T>().copy_from_slice(&values);
                }
            }
            let last = run.in_grad.len() - 1;
            if self.param.use_sequence_length && run.req[last] != OpReq::Null {
                let lengths = &run.in_grad[last];
                lengths.ptr().write_bytes(0, lengths.size_bytes());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn inputs(params: i64, stacked: i64, state: i64, hidden: i64, lstm: bool) -> Vec<Tensor> {
        let mut all = vec![
            Tensor::noise(&[3, 2, 4], 1),
            Tensor::noise(&[params], 2),
            Tensor::noise(&[stacked, 2, state], 3),
        ];
        if lstm {
            all.push(Tensor::noise(&[stacked, 2, hidden], 4));
        }
        all
    }

    #[test]
    fn gradients_match_differences() {
        for (mode, gates) in [("rnn_tanh", 1), ("rnn_relu", 1), ("lstm", 4), ("gru", 3)] {
            let lstm = mode == "lstm";
            let all: &[usize] = if lstm { &[0, 1, 2, 3] } else { &[0, 1, 2] };
            let base =
                [("mode", mode), ("state_size", "3"), ("num_layers", "1"), ("state_outputs", "1")];
            let n = gates * 3 * (4 + 3 + 2);
            check_gradient("RNN", &base, &inputs(n, 1, 3, 3, lstm), all, true);
            check_half("RNN", &base[..3], &inputs(n, 1, 3, 3, lstm), true);
            let deep = [
                ("mode", mode),
                ("state_size", "2"),
                ("num_layers", "2"),
                ("bidirectional", "1"),
                ("p", "0.4"),
            ];
            let n = gates * 2 * 2 * ((4 + 2) + (4 + 2) + 4);
            check_gradient("RNN", &deep, &inputs(n, 4, 2, 2, lstm), all, true);
            let ends = [
                base[0],
                base[1],
                base[2],
                base[3],
                ("bidirectional", "1"),
                ("use_sequence_length", "1"),
            ];
            let n = gates * 3 * 2 * (4 + 3 + 2);
            let mut ins = inputs(n, 2, 3, 3, lstm);
            ins.push(Tensor::of(&[2], &[1., 3.]));
            check_gradient("RNN", &ends, &ins, all, true);
        }
        let p = [
            ("mode", "lstm"),
            ("state_size", "3"),
            ("num_layers", "1"),
            ("projection_size", "2"),
            ("state_outputs", "1"),
        ];
        check_gradient(
            "RNN",
            &p,
            &inputs(12 * (4 + 2) + 6 + 24, 1, 2, 3, true),
            &[0, 1, 2, 3],
            true,
        );
    }

    #[test]
    fn shapes() {
        let p =
            [("mode", "lstm"), ("state_size", "5"), ("num_layers", "2"), ("state_outputs", "1")];
        let (known, ins, outs) = infer_shapes("RNN", &p, &[Some(&[3, 2, 4])]).unwrap();
        assert!(known && outs.len() == 3);
        assert_eq!((ins[1].dims(), ins[3].dims()), (&[460][..], &[2, 2, 5][..]));
        assert_eq!(outs[0].dims(), [3, 2, 5]);
        let gru =
            [("mode", "gru"), ("state_size", "5"), ("num_layers", "1"), ("bidirectional", "1")];
        assert_eq!(infer_shapes("RNN", &gru, &[Some(&[3, 2, 6])]).unwrap().1[1].dims(), [390]);
        let proj =
            [("mode", "lstm"), ("state_size", "5"), ("num_layers", "1"), ("projection_size", "3")];
        assert_eq!(infer_shapes("RNN", &proj, &[Some(&[3, 2, 4])]).unwrap().1[1].dims(), [195]);
    }
}
