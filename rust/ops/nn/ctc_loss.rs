//! `CTCLoss`: connectionist temporal classification.

use super::infer::{check_float, complete, expect_rank};
use super::widening;
use super::widening::always;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::ctc;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_dtype, with_real};

param_enum! {
    /// Which class is the blank.
    pub enum BlankLabel { First = "first", Last = "last" }
}

params! {
    /// Parameters of `CTCLoss`.
    pub struct CtcLossParam {
        use_data_lengths: bool, default(false), "Is there an input data_lengths?";
        use_label_lengths: bool, default(false), "Is there an input label_lengths?";
        blank_label: BlankLabel, default(BlankLabel::First), "Is the blank class 0, or the last?";
    }
}

const DOC: &str = r#"
Connectionist temporal classification: the negative logarithm of the probability that the classes
read off in time, repetitions and blanks removed, are the label.

Notes
-----
Data ``(T, N, C)`` holds activations; the softmax over C is applied inside. Label ``(N, L)`` holds
class numbers. With ``blank_label='first'`` the blank is class 0 and labels are padded by 0, with
``'last'`` it is class ``C - 1`` and labels are padded by -1. Inputs ``data_lengths`` and
``label_lengths`` ``(N,)`` exist with their flags. The output ``(N,)`` holds the losses; a label
that does not fit into its time has loss 0 and no gradient. Only data gets a gradient, which a
hidden output holds. float16 (calculated in float32), float32 or float64; the others may have any
dtype. A label may name the blank, which then counts as a class; one that is not below C is an
error.

Examples
--------
>>> nd.CTCLoss(nd.zeros((2, 1, 2)), nd.array([[1]]))
[0.28768208]

References
----------
A. Graves et al., Connectionist Temporal Classification, ICML 2006.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<CtcLossParam>("CTCLoss")
            .aliases(&["ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"])
            .doc(DOC)
            .inputs_are(&[
                ("data", "Activations (T, N, C)."),
                ("label", "Class numbers (N, L)."),
                ("data_lengths", "Times of the sequences (N,), with use_data_lengths=True."),
                ("label_lengths", "Lengths of the labels (N,), with use_label_lengths=True."),
            ])
            .input_names_by(|attrs| names(attrs).iter().map(|s| (*s).to_owned()).collect())
            .outputs_are(&["output0", "output1"])
            .visible(|_| 1)
            .infer_shape(infer_shape)
            .infer_type(infer_type)
            .gradient(Gradient::declared("_backward_CTCLoss", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Output(1)]
            }))
            .kernel(always(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call)))),
        OpDef::new::<CtcLossParam>("_backward_CTCLoss").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call)),
        )),
    ]
}

fn names(attrs: &Attrs) -> Vec<&'static str> {
    let param: &CtcLossParam = attrs.get();
    let mut names = vec!["data", "label"];
    names.extend(param.use_data_lengths.then_some("data_lengths"));
    names.extend(param.use_label_lengths.then_some("label_lengths"));
    names
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    expect_rank(&inputs[0], "data", 3..=3)?;
    expect_rank(&inputs[1], "label", 2..=2)?;
    if inputs[0].rank_known() {
        let batch = inputs[0].dims()[1];
        assign_shape(&mut inputs[1], "label", &Shape::new(&[batch, -1]))?;
        for (slot, name) in inputs.iter_mut().zip(names(attrs)).skip(2) {
            assign_shape(slot, name, &Shape::new(&[batch]))?;
        }
        assign_shape(&mut outputs[0], "output", &Shape::new(&[batch]))?;
        assign_shape(&mut outputs[1], "gradient", &inputs[0])?;
    }
    complete(inputs, outputs)
}

fn infer_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let Some(data) = inputs[0].or(outputs[0]) else { return Ok(false) };
    check_float(Some(data))?;
    assign_type(&mut inputs[0], "data", data)?;
    for slot in outputs {
        assign_type(slot, "output", data)?;
    }
    for slot in &mut inputs[1..] {
        *slot = slot.or(Some(data));
    }
    Ok(true)
}

fn numbers(view: &View) -> Vec<f64> {
    // SAFETY: an input is not written while the kernel runs.
    with_dtype!(view.dtype(), T => unsafe { view.slice::<T>() }
        .iter().map(|x| Element::to_f64(*x)).collect())
}

/// The labels of every sequence, without padding.
fn labels(call: &Call<'_>, classes: usize) -> Result<Vec<Vec<usize>>> {
    let param: &CtcLossParam = call.attrs.get();
    let all = numbers(&call.inputs[1]);
    let width = call.inputs[1].dims()[1] as usize;
    let batch = call.inputs[1].dims()[0] as usize;
    let at = if param.use_data_lengths { 3 } else { 2 };
    let lengths = param.use_label_lengths.then(|| numbers(&call.inputs[at]));
    let first = param.blank_label == BlankLabel::First;
    (0..batch)
        .map(|n| {
            let row = &all[n * width..(n + 1) * width];
            let length = match &lengths {
                Some(l) => (l[n].max(0.0) as usize).min(width),
                None => {
                    let padding = if first { 0.0 } else { -1.0 };
                    row.iter().position(|&l| l == padding).unwrap_or(width)
                }
            };
            let high = classes as f64 - 1.0;
            match row[..length].iter().find(|l| !(0.0..=high).contains(*l)) {
                Some(bad) => {
                    Err(Error::argument("label", "class number", bad, format!("0 to {high}")))
                }
                None => Ok(row[..length].iter().map(|&l| l as usize).collect()),
            }
        })
        .collect()
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let param: &CtcLossParam = call.attrs.get();
    let d: Vec<usize> = call.inputs[0].dims().iter().map(|&d| d as usize).collect();
    let (time, batch, classes) = (d[0], d[1], d[2]);
    let labels = labels(call, classes)?;
    let times: Vec<usize> = match param.use_data_lengths {
        true => numbers(&call.inputs[2]).iter().map(|&t| (t.max(0.0) as usize).min(time)).collect(),
        false => vec![time; batch],
    };
    let blank = if param.blank_label == BlankLabel::First { 0 } else { classes.saturating_sub(1) };
    let x = Shared(call.inputs[0].as_ptr::<T>());
    let (loss, grad) =
        (Shared(call.outputs[0].as_ptr::<T>()), Shared(call.outputs[1].as_ptr::<T>()));
    let write = call.req[0] != OpReq::Null;
    parallel_for(batch, 1, |range| {
        for n in range {
            let at = |t: usize, k: usize| (t * batch + n) * classes + k;
            let mut log_p = Vec::with_capacity(times[n] * classes);
            for t in 0..times[n] {
                // SAFETY: data is (time, batch, classes).
                let row: Vec<f64> =
                    (0..classes).map(|k| unsafe { Element::to_f64(*x.at(at(t, k))) }).collect();
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total = top + row.iter().map(|x| (x - top).exp()).sum::<f64>().ln();
                log_p.extend(row.iter().map(|x| x - total));
            }
            let mut slope = vec![0.0; log_p.len()];
            let value = ctc::loss(&log_p, classes, &labels[n], blank, Some(&mut slope));
            // SAFETY: sequences belong to one task; the gradient has the shape of the data.
            unsafe {
                for t in 0..time {
                    for k in 0..classes {
                        let g = slope.get(t * classes + k).copied().unwrap_or(0.0);
                        *grad.at(at(t, k)) = T::of(g);
                    }
                }
                if write {
                    *loss.at(n) = T::of(value);
                }
            }
        }
    });
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    for (out, _) in call.outputs.iter().zip(call.req).skip(1).filter(|(_, r)| **r != OpReq::Null) {
        // SAFETY: the output is ours to write; zero bytes are zero in every dtype.
        unsafe { out.ptr().write_bytes(0, out.size_bytes()) };
    }
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let dims = call.outputs[0].dims();
    let (batch, classes) = (dims[1] as usize, dims[2] as usize);
    // SAFETY: inputs are not written meanwhile; the output overlaps none of them.
    let (dy, saved, dx) = unsafe {
        (call.inputs[0].slice::<T>(), call.inputs[1].slice::<T>(), call.outputs[0].slice_mut::<T>())
    };
    for (i, (dx, &g)) in dx.iter_mut().zip(saved).enumerate() {
        *dx = g * dy[i / classes.max(1) % batch.max(1)];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[4, 2, 3], 1);
        let label = Tensor::of(&[2, 2], &[1., 2., 2., 0.]);
        check_gradient("CTCLoss", &[], &[x.clone(), label.clone()], &[0], true);
        check_half("CTCLoss", &[], &[x.clone(), label], true);
        let last = Tensor::new(&[2, 2], DType::I32, &[1., 0., 1., -1.]);
        check_gradient("CTCLoss", &[("blank_label", "last")], &[x.clone(), last], &[0], true);
        let p = [("use_data_lengths", "1"), ("use_label_lengths", "1")];
        let (label, dl) = (Tensor::of(&[2, 2], &[1., 2., 2., 1.]), Tensor::of(&[2], &[3., 4.]));
        let inputs = [x, label, dl, Tensor::of(&[2], &[2., 1.])];
        check_gradient("CTCLoss", &p, &inputs, &[0], true);
    }

    #[test]
    fn labels_beyond_the_classes_are_refused() {
        let inputs = [Tensor::noise(&[2, 1, 3], 1), Tensor::of(&[1, 1], &[3.])];
        let fail = run("CTCLoss", &[], &inputs, false).map(|_| ()).unwrap_err();
        assert!(fail.to_string().contains("class number 3"), "{fail}");
    }
}
