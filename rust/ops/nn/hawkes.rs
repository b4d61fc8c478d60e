//! `_contrib_hawkesll`: the log-likelihood of point processes whose events excite one another.

use super::widening;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::real::Real;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_real;

const DOC: &str = r#"
The log-likelihood of marked Hawkes processes, one per row, in which events of a mark excite later
ones of that mark: with the intensity ``lda[k] + alpha[k] * beta[k] * s_k(t)`` and ``s_k(t) =
state[k] * exp(-beta[k] * t) + sum of exp(-beta[k] * (t - t_i))`` over earlier events of mark k, the
sum of the logarithms of the intensities at the events, less the integrals of all intensities from 0
to max_time.

Notes
-----
lda and state ``(N, K)``, alpha and beta ``(K,)``, lags and marks ``(N, T)``, valid_length and
max_time ``(N,)``; lags are the times since the event before, of which valid_length count. Outputs:
the log-likelihoods ``(N,)``, and the states ``(N, K)`` at max_time, for the next part of the same
processes. marks are int32, all else has one float dtype (float16 is calculated in float32). lda,
alpha, beta and state have the gradients of both outputs, all else has none. A mark that is not
below K is an error. Source: A. Hawkes, Spectra of some self-exciting and mutually exciting point
processes, 1971.

Examples
--------
>>> one = nd.ones((1, 1))
>>> like, state = nd.contrib.hawkesll(one, nd.array([0]), nd.array([1]), nd.zeros((1, 1)), one,
...                                   nd.zeros((1, 1), dtype='int32'), nd.array([1]), nd.array([2]))
>>> like.asnumpy().tolist()
[-2.0]
"#;

const INPUTS: [(&str, &str); 8] = [
    ("lda", "Base intensities."),
    ("alpha", "How much an event excites."),
    ("beta", "How fast the excitement decays."),
    ("state", "Excitement at the start."),
    ("lags", "Times between events."),
    ("marks", "Marks of the events."),
    ("valid_length", "Numbers of events."),
    ("max_time", "Ends of the intervals."),
];
const MARKS: usize = 5;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::plain("_contrib_hawkesll")
        .doc(DOC)
        .inputs_are(&INPUTS)
        .outputs_are(&["output", "out_state"])
        .infer_shape(infer_shape)
        .infer_type(infer_type)
        .gradient(Gradient::declared("_backward_hawkesll", |_, _, _| {
            let grads = [Dep::OutGrad(0), Dep::OutGrad(1)];
            grads.into_iter().chain((0..INPUTS.len()).map(Dep::Input)).collect()
        }))
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call))));
    let backward = OpDef::plain("_backward_hawkesll")
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

fn infer_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let axis = |known: &[(&Shape, usize)]| {
        let dims = known.iter().filter_map(|(shape, axis)| shape.dims().get(*axis).copied());
        dims.fold(-1, i64::max)
    };
    let rows = axis(&[
        (&inputs[0], 0),
        (&inputs[3], 0),
        (&inputs[4], 0),
        (&inputs[5], 0),
        (&inputs[6], 0),
        (&inputs[7], 0),
        (&outputs[0], 0),
        (&outputs[1], 0),
    ]);
    let marks = axis(&[
        (&inputs[0], 1),
        (&inputs[1], 0),
        (&inputs[2], 0),
        (&inputs[3], 1),
        (&outputs[1], 1),
    ]);
    let events = axis(&[(&inputs[4], 1), (&inputs[5], 1)]);
    let (by_mark, by_event) = (Shape::new(&[rows, marks]), Shape::new(&[rows, events]));
    let (row, mark) = (Shape::new(&[rows]), Shape::new(&[marks]));
    let wanted = [&by_mark, &mark, &mark, &by_mark, &by_event, &by_event, &row, &row];
    for ((shape, (name, _)), want) in inputs.iter_mut().zip(INPUTS).zip(wanted) {
        assign_shape(shape, name, want)?;
    }
    assign_shape(&mut outputs[0], "output0", &row)?;
    assign_shape(&mut outputs[1], "output1", &by_mark)?;
    Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
}

fn infer_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    assign_type(&mut inputs[MARKS], "marks", DType::I32)?;
    let given = (0..INPUTS.len()).filter(|&i| i != MARKS).find_map(|i| inputs[i]);
    let Some(dtype) = given.or(outputs[0]).or(outputs[1]) else { return Ok(false) };
    if !dtype.is_float() {
        return Err(Error::argument("lda", "dtype", dtype, "a float dtype"));
    }
    for (i, (slot, (name, _))) in inputs.iter_mut().zip(INPUTS).enumerate() {
        if i != MARKS {
            assign_type(slot, name, dtype)?;
        }
    }
    assign_type(&mut outputs[0], "output0", dtype)?;
    assign_type(&mut outputs[1], "output1", dtype)?;
    Ok(true)
}

fn numbers<T: Real>(view: &View) -> Vec<f64> {
    // SAFETY: an input is not written while the kernel runs.
    unsafe { view.slice::<T>() }.iter().map(|&x| Element::to_f64(x)).collect()
}

/// The operands of a call, in double precision.
struct Processes {
    lda: Vec<f64>,
    alpha: Vec<f64>,
    beta: Vec<f64>,
    state: Vec<f64>,
    lags: Vec<f64>,
    marks: Vec<usize>,
    lengths: Vec<usize>,
    ends: Vec<f64>,
    rows: usize,
    kinds: usize,
    events: usize,
}

/// What one process gives: its log-likelihood, the last state, and gradients by mark.
struct Likelihood {
    value: f64,
    state: Vec<f64>,
    by_lda: Vec<f64>,
    by_alpha: Vec<f64>,
    by_beta: Vec<f64>,
    by_state: Vec<f64>,
    /// The derivative of the last state with respect to beta.
    state_by_beta: Vec<f64>,
    /// The derivative of the last state with respect to the first.
    left: Vec<f64>,
}

impl Processes {
    fn of<T: Real>(inputs: &[View]) -> Result<Processes> {
        let (rows, kinds) = (inputs[0].dims()[0] as usize, inputs[0].dims()[1] as usize);
        let events = inputs[4].dims()[1] as usize;
        // SAFETY: inference gave the marks this dtype; an input is not written meanwhile.
        let marks = unsafe { inputs[MARKS].slice::<i32>() };
        let lengths: Vec<usize> = numbers::<T>(&inputs[6])
            .into_iter()
            .map(|n| (n.max(0.0) as usize).min(events))
            .collect();
        let mut found = Vec::with_capacity(marks.len());
        for (i, &mark) in marks.iter().enumerate() {
            let counts = i % events.max(1) < lengths[i / events.max(1)];
            let place = usize::try_from(mark).ok().filter(|mark| *mark < kinds);
            if place.is_none() && counts {
                let expected = format!("0 or more, and less than {kinds}");
                return Err(Error::invalid("mark", mark, expected));
            }
            found.push(place.unwrap_or(0));
        }
        Ok(Processes {
            lda: numbers::<T>(&inputs[0]),
            alpha: numbers::<T>(&inputs[1]),
            beta: numbers::<T>(&inputs[2]),
            state: numbers::<T>(&inputs[3]),
            lags: numbers::<T>(&inputs[4]),
            marks: found,
            lengths,
            ends: numbers::<T>(&inputs[7]),
            rows,
            kinds,
            events,
        })
    }

    /// One process. With `s` the excitement and `d` its derivative with respect to beta.
    fn likelihood(&self, row: usize) -> Likelihood {
        let (k, t, end) = (self.kinds, self.events, self.ends[row]);
        let lda = &self.lda[row * k..][..k];
        let mut s = self.state[row * k..][..k].to_vec();
        let mut d = vec![0.0; k];
        let mut last = vec![0.0; k];
        let mut made = Likelihood {
            value: 0.0,
            state: Vec::new(),
            by_lda: vec![-end; k],
            by_alpha: vec![0.0; k],
            by_beta: vec![0.0; k],
            by_state: vec![0.0; k],
            state_by_beta: Vec::new(),
            left: Vec::with_capacity(k),
        };
        let mut time = 0.0;
        let events = row * t..row * t + self.lengths[row];
        for i in events {
            time += self.lags[i];
            let mark = self.marks[i];
            self.decay(mark, time, &mut last, &mut s, &mut d, &mut made);
            let (alpha, beta) = (self.alpha[mark], self.beta[mark]);
            let intensity = lda[mark] + alpha * beta * s[mark];
            made.value += intensity.ln();
            made.by_lda[mark] += 1.0 / intensity;
            made.by_alpha[mark] += beta * s[mark] / intensity;
            made.by_beta[mark] += alpha * (s[mark] + beta * d[mark]) / intensity;
            made.by_state[mark] += alpha * beta * (-beta * time).exp() / intensity;
            s[mark] += 1.0;
        }
        for mark in 0..k {
            self.decay(mark, end, &mut last, &mut s, &mut d, &mut made);
            made.value -= lda[mark] * end;
            let left = (-self.beta[mark] * end).exp();
            made.by_state[mark] -= self.alpha[mark] * (1.0 - left);
            made.left.push(left);
        }
        (made.state, made.state_by_beta) = (s, d);
        made
    }

    /// Lets the excitement of a mark decay until `time`; its integral counts against the
    /// likelihood.
    fn decay(
        &self,
        mark: usize,
        time: f64,
        last: &mut [f64],
        s: &mut [f64],
        d: &mut [f64],
        made: &mut Likelihood,
    ) {
        let (alpha, beta) = (self.alpha[mark], self.beta[mark]);
        let passed = time - last[mark];
        let left = (-beta * passed).exp();
        let integral = s[mark] * (1.0 - left);
        made.value -= alpha * integral;
        made.by_alpha[mark] -= integral;
        made.by_beta[mark] -= alpha * (d[mark] * (1.0 - left) + s[mark] * passed * left);
        d[mark] = d[mark] * left - s[mark] * passed * left;
        s[mark] *= left;
        last[mark] = time;
    }
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let processes = Processes::of::<T>(call.inputs)?;
    for row in 0..processes.rows {
        let made = processes.likelihood(row);
        // SAFETY: inference gave the outputs these extents; they are ours to write.
        unsafe {
            if call.req[0] != OpReq::Null {
                *call.outputs[0].as_ptr::<T>().add(row) = T::of(made.value);
            }
            if call.req[1] != OpReq::Null {
                for (mark, value) in made.state.iter().enumerate() {
                    let at = row * processes.kinds + mark;
                    *call.outputs[1].as_ptr::<T>().add(at) = T::of(*value);
                }
            }
        }
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [grads, states] = [0, 1].map(|i| numbers::<T>(&call.inputs[i]));
    let processes = Processes::of::<T>(&call.inputs[2..])?;
    let kinds = processes.kinds;
    let [mut lda, mut state] = [(); 2].map(|()| vec![0.0; processes.rows * kinds]);
    let (mut alpha, mut beta) = (vec![0.0; kinds], vec![0.0; kinds]);
    for (row, grad) in grads.iter().enumerate() {
        let made = processes.likelihood(row);
        for mark in 0..kinds {
            let at = row * kinds + mark;
            lda[at] = grad * made.by_lda[mark];
            state[at] = grad * made.by_state[mark] + states[at] * made.left[mark];
            alpha[mark] += grad * made.by_alpha[mark];
            beta[mark] += grad * made.by_beta[mark] + states[at] * made.state_by_beta[mark];
        }
    }
    let found = [&lda, &alpha, &beta, &state];
    for (i, out) in call.outputs.iter().enumerate() {
        if call.req[i] == OpReq::Null {
            continue;
        }
        match found.get(i) {
            // SAFETY: the gradient has the extents of its input, and is ours to write.
            Some(values) => unsafe {
                let to = out.slice_mut::<T>();
                to.iter_mut().zip(values.iter()).for_each(|(to, value)| *to = T::of(*value));
            },
            None => crate::kernels::copy::fill(out, 0.0),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let inputs = [
            Tensor::of(&[2, 2], &[0.9, 1.2, 0.7, 1.4]),
            Tensor::of(&[2], &[0.3, 0.2]),
            Tensor::of(&[2], &[1.1, 0.6]),
            Tensor::of(&[2, 2], &[0.5, 0.1, 0.9, 0.4]),
            Tensor::of(&[2, 3], &[0.4, 0.2, 0.9, 0.3, 0.8, 0.1]),
            Tensor::of(&[2, 3], &[0., 1., 0., 1., 1., 0.]).cast(crate::dtype::DType::I32),
            Tensor::of(&[2], &[3., 2.]),
            Tensor::of(&[2], &[3., 2.5]),
        ];
        check_gradient("_contrib_hawkesll", &[], &inputs, &[0, 1, 2, 3], true);
    }
}
