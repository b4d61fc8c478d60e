//! `FullyConnected`: a linear map of the last axis, or of everything but the first.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::gemm::{Mat, Threads, few, gemm};
use crate::kernels::real::Real;
use crate::kernels::reduce_rows;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};
use half::f16;

params! {
    /// Parameters of `FullyConnected`.
    pub struct FullyConnectedParam {
        num_hidden: i32, required.ge(1.0), "Extent of the mapped axis of the output.";
        no_bias: bool, default(false), "Leave out the input bias.";
        flatten: bool, default(true), "Map everything but axis 0 at once; if false, map the last \
                                       axis only.";
    }
}

const DOC: &str = r#"
Applies a linear map: ``y = x Wᵀ + b``.

With ``flatten=True`` the data ``(N, ...)`` is seen as ``(N, I)``, where ``I`` is the product of the
other extents, and the output is ``(N, num_hidden)``. With ``flatten=False`` only the last axis, of
extent ``I``, is mapped: ``(..., I)`` becomes ``(..., num_hidden)``.

Notes
-----
``weight`` has shape ``(num_hidden, I)`` and ``bias`` ``(num_hidden,)``; both are inferred from the
data. With ``no_bias=True`` there is no input ``bias``. Data, weight, bias and output share one
dtype: float16 (calculated in float32), float32 or float64. A weight that does not fit the data is
an error.

Examples
--------
>>> x = nd.array([[1, 2]])
>>> w = nd.array([[1, 0], [0, 1], [1, 1]])
>>> nd.FullyConnected(x, w, num_hidden=3, no_bias=True)
[[1. 2. 3.]]
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<FullyConnectedParam>("FullyConnected")
        .aliases(&["_npx_fully_connected", "_sparse_FullyConnected"])
        .doc(DOC)
        .expensive()
        .inputs_are(&[
            ("data", "Input data."),
            ("weight", "Weight matrix (num_hidden, I)."),
            ("bias", "Bias parameter (num_hidden,)."),
        ])
        .input_names_by(|attrs| {
            let names: &[&str] = &["data", "weight", "bias"];
            let n = if attrs.get::<FullyConnectedParam>().no_bias { 2 } else { 3 };
            names[..n].iter().map(|s| (*s).to_owned()).collect()
        })
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .gradient(Gradient::declared("_backward_FullyConnected", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)]
        }))
        .kernel(widening::cpu_unless(
            few_halves,
            |call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call)),
        ));
    let backward = OpDef::new::<FullyConnectedParam>("_backward_FullyConnected")
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

pub fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &FullyConnectedParam = attrs.get();
    let hidden = i64::from(param.num_hidden);
    expect_rank(&inputs[0], "data", 1..=usize::MAX)?;
    let rank = inputs[0].ndim();
    // The output's leading axes determine those of the data.
    if inputs[0].rank_known() && outputs[0].rank_known() {
        let kept = if param.flatten { 1 } else { rank - 1 };
        if outputs[0].ndim() != kept + 1 {
            return Err(Error::argument(
                "output",
                "shape",
                &outputs[0],
                format!("{} axes", kept + 1),
            ));
        }
        let mut known = Shape::of_rank(rank);
        known.dims_mut()[..kept].copy_from_slice(&outputs[0].dims()[..kept]);
        assign_shape(&mut inputs[0], "data", &known)?;
    }
    let mut width = -1;
    if inputs[0].rank_known() {
        let dims = inputs[0].dims();
        let mut out = Shape::new(dims);
        if param.flatten {
            let rest = &dims[1..];
            width = if rest.contains(&-1) { -1 } else { rest.iter().product() };
            out = Shape::new(&[dims[0], hidden]);
        } else {
            width = dims[rank - 1];
            out.dims_mut()[rank - 1] = hidden;
        }
        assign_shape(&mut outputs[0], "output", &out)?;
    }
    assign_shape(&mut inputs[1], "weight", &Shape::new(&[hidden, width]))?;
    if !param.no_bias {
        assign_shape(&mut inputs[2], "bias", &Shape::new(&[hidden]))?;
    }
    complete(inputs, outputs)
}

/// Rows, inner extent and outputs of one call.
pub fn extents(attrs: &Attrs, data: &View, weight: &View) -> (usize, usize, usize) {
    let (hidden, width) = (weight.dims()[0] as usize, weight.dims()[1] as usize);
    let param: &FullyConnectedParam = attrs.get();
    let dims = data.shape();
    let kept = if param.flatten { 1 } else { dims.ndim() - 1 };
    (dims.product(0..kept), width, hidden)
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (size, [x, w, y], with_bias) = matrices::<T>(call);
    if with_bias {
        start_from_bias::<T>(call);
    }
    // SAFETY: inference gave the views these extents; the output overlaps no input.
    unsafe { gemm(size, x, w, y, with_bias, Threads::Pool) };
    Ok(())
}

/// Extents (m, n, k) of the product, its matrices, and whether a bias is added.
fn matrices<T: Element>(call: &Call<'_>) -> ((usize, usize, usize), [Mat<T>; 3], bool) {
    let (rows, width, hidden) = extents(call.attrs, &call.inputs[0], &call.inputs[1]);
    let x = Mat::rows(call.inputs[0].as_ptr::<T>(), width);
    let w = Mat::rows(call.inputs[1].as_ptr::<T>(), width);
    let y = Mat::rows(call.outputs[0].as_ptr(), hidden);
    ((rows, hidden, width), [x, w.t(), y], call.inputs.len() > 2)
}

/// Writes the bias to each row of the output.
fn start_from_bias<T: Element>(call: &Call<'_>) {
    let (rows, _, hidden) = extents(call.attrs, &call.inputs[0], &call.inputs[1]);
    let (bias, out) = (call.inputs[2].as_ptr::<T>(), call.outputs[0].as_ptr());
    // SAFETY: bias has `hidden` elements, the output `rows` times as many.
    unsafe { reduce_rows::repeat_row(bias, rows, hidden, out) };
}

/// Few rows in half precision: the weight is read as it is stored. Returns whether they are few.
fn few_halves(call: &Call<'_>) -> bool {
    let (size, matrices, with_bias) = matrices::<f16>(call);
    let Some(product) = few::oriented(size, matrices) else { return false };
    if with_bias {
        start_from_bias::<f16>(call);
    }
    // SAFETY: inference gave the views these extents; the output overlaps no input.
    unsafe { few::multiply_halves(product, with_bias, Threads::Pool) };
    true
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [grad, data, weight] = call.inputs else { unreachable!("declared dependencies") };
    let (rows, width, hidden) = extents(call.attrs, data, weight);
    let dy = Mat::rows(grad.as_ptr::<T>(), hidden);
    let x = Mat::rows(data.as_ptr::<T>(), width);
    let w = Mat::rows(weight.as_ptr::<T>(), width);
    let out = |i: usize| call.outputs[i].as_ptr::<T>();
    // SAFETY: gradients have the extents of their inputs and overlap none of the inputs here.
    unsafe {
        if call.req[0] != OpReq::Null {
            gemm((rows, width, hidden), dy, w, Mat::rows(out(0), width), false, Threads::Pool);
        }
        if call.req[1] != OpReq::Null {
            gemm((hidden, width, rows), dy.t(), x, Mat::rows(out(1), width), false, Threads::Pool);
        }
        if call.outputs.len() > 2 && call.req[2] != OpReq::Null {
            reduce_rows::sum_rows(dy.ptr, rows, hidden, out(2));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn maps_the_last_axis_or_all_but_the_first() {
        let x = Tensor::of(&[2, 1, 2], &[1., 2., 3., 4.]);
        let w = Tensor::of(&[3, 2], &[1., 0., 0., 1., 1., 1.]);
        let b = Tensor::of(&[3], &[10., 20., 30.]);
        let want = [11., 22., 33., 13., 24., 37.];
        for flatten in ["True", "False"] {
            let ran = run(
                "FullyConnected",
                &[("num_hidden", "3"), ("flatten", flatten)],
                &[x.clone(), w.clone(), b.clone()],
                false,
            )
            .unwrap();
            assert_eq!(ran.outputs[0].values(), want);
            let dims: &[i64] = if flatten == "True" { &[2, 3] } else { &[2, 1, 3] };
            assert_eq!(ran.outputs[0].shape.dims(), dims);
        }
    }

    #[test]
    fn gradients_match_differences() {
        for rows in [1, 3] {
            let inputs = [
                Tensor::noise(&[rows, 2, 2], 1),
                Tensor::noise(&[5, 4], 2),
                Tensor::noise(&[5], 3),
            ];
            check_gradient("FullyConnected", &[("num_hidden", "5")], &inputs, &[0, 1, 2], true);
            check_half("FullyConnected", &[("num_hidden", "5")], &inputs, true);
        }
        let wide = [Tensor::noise(&[3, 80], 1), Tensor::noise(&[5, 80], 2), Tensor::noise(&[5], 3)];
        check_half("FullyConnected", &[("num_hidden", "5")], &wide, true);
        let inputs = [Tensor::noise(&[2, 3, 4], 1), Tensor::noise(&[2, 4], 2)];
        let params = [("num_hidden", "2"), ("no_bias", "1"), ("flatten", "0")];
        check_gradient("FullyConnected", &params, &inputs, &[0, 1], true);
    }

    #[test]
    fn empty_batches_give_empty_outputs_and_zero_gradients() {
        let inputs = [Tensor::noise(&[0, 4], 1), Tensor::noise(&[2, 4], 2), Tensor::noise(&[2], 3)];
        let ran = run("FullyConnected", &[("num_hidden", "2")], &inputs, true).unwrap();
        assert_eq!(ran.outputs[0].shape.dims(), &[0, 2]);
        let grads = ran.gradients(&[ran.outputs[0].clone()]).unwrap();
        assert_eq!(grads[1].values(), vec![0.0; 8]);
        assert_eq!(grads[2].values(), vec![0.0; 2]);
    }

    #[test]
    fn weights_are_inferred_from_data_and_contradictions_refused() {
        let p = [("num_hidden", "5")];
        let (known, ins, outs) = infer_shapes("FullyConnected", &p, &[Some(&[2, 3, 4])]).unwrap();
        assert!(known);
        assert_eq!(ins[1].dims(), &[5, 12]);
        assert_eq!(ins[2].dims(), &[5]);
        assert_eq!(outs[0].dims(), &[2, 5]);
        let (known, ins, _) = infer_shapes("FullyConnected", &p, &[None, Some(&[5, 12])]).unwrap();
        assert!(!known && !ins[0].rank_known());
        let wrong = infer_shapes("FullyConnected", &p, &[Some(&[2, 3]), Some(&[5, 4])]);
        let text = wrong.unwrap_err().to_string();
        assert_eq!(text, "argument 'weight' has shape (5, 4), expected (5, 3)");
    }
}
