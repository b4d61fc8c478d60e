//! `Embedding`: rows of a matrix by number.

use super::infer::complete;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::scatter::add_runs;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Dep, Gradient, Kernel, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_dtype};

params! {
    /// Parameters of `Embedding`.
    pub struct EmbeddingParam {
        input_dim: i32, required.ge(1.0), "Rows of the weight.";
        output_dim: i32, required.ge(1.0), "Columns of the weight.";
        dtype: DType, default(DType::F32), "The dtype of a weight whose dtype is not known.";
        sparse_grad: bool, default(false), "Accepted; the gradient is dense.";
    }
}

const DOC: &str = r#"
Maps numbers to rows of the weight: ``y[i, ..., :] = weight[data[i, ...], :]``.

Notes
-----
Data of any shape and dtype holds numbers in 0 to ``input_dim - 1``; the output has its shape and
``output_dim`` as a further axis. ``weight`` is ``(input_dim, output_dim)``, of the dtype ``dtype``
unless it is given; the output has the dtype of the weight. Fractions are cut off; numbers beyond
the last row count as the last row, negative ones as row 0, forward and backward. The gradient of a
row is the sum over all places that used it; data gets none.

Examples
--------
>>> nd.Embedding(nd.array([1, 0]), nd.array([[1, 2], [3, 4]]), input_dim=2, output_dim=2)
[[3. 4.]
 [1. 2.]]
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<EmbeddingParam>("Embedding")
        .aliases(&["_npx_embedding", "_sparse_Embedding", "_contrib_SparseEmbedding"])
        .doc(DOC)
        .inputs_are(&[("data", "Row numbers."), ("weight", "The matrix (input_dim, output_dim).")])
        .infer_shape(infer_shape)
        .infer_type(infer_type)
        .gradient(Gradient::declared("_backward_Embedding", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0)]
        }))
        .kernel(Kernel::cpu(forward).skips_null());
    let backward = OpDef::new::<EmbeddingParam>("_backward_Embedding")
        .kernel(Kernel::cpu(backward).skips_null());
    vec![forward, backward]
}

pub fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &EmbeddingParam = attrs.get();
    let (rows, width) = (i64::from(param.input_dim), i64::from(param.output_dim));
    assign_shape(&mut inputs[1], "weight", &Shape::new(&[rows, width]))?;
    if outputs[0].ndim() > 0 {
        let dims = outputs[0].dims();
        let known = Shape::new(&dims[..dims.len() - 1]);
        assign_shape(&mut inputs[0], "data", &known)?;
    }
    if inputs[0].rank_known() {
        let mut out = inputs[0].clone();
        out.dims_mut().push(width);
        assign_shape(&mut outputs[0], "output", &out)?;
    }
    complete(inputs, outputs)
}

fn infer_type(
    attrs: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let weight = inputs[1].or(outputs[0]).unwrap_or(attrs.get::<EmbeddingParam>().dtype);
    assign_type(&mut inputs[1], "weight", weight)?;
    assign_type(&mut outputs[0], "output", weight)?;
    Ok(inputs[0].is_some())
}

/// The rows that `ids` names, in bounds.
pub fn rows_of(ids: &View, rows: usize) -> Vec<usize> {
    let row = |x: f64| if x > 0.0 { (x as usize).min(rows - 1) } else { 0 };
    let mut all = vec![0; ids.size()];
    let to = Shared(all.as_mut_ptr());
    with_dtype!(ids.dtype(), T => {
        // SAFETY: an input is not written while the kernel runs.
        let ids = unsafe { ids.slice::<T>() };
        parallel_for(ids.len(), 1 << 14, |range| {
            for i in range {
                // SAFETY: tasks have rows of their own.
                unsafe { *to.at(i) = row(Element::to_f64(ids[i])) };
            }
        });
    });
    all
}

pub fn forward(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (weight, out) = (&call.inputs[1], &call.outputs[0]);
    let rows = rows_of(&call.inputs[0], weight.dims()[0] as usize);
    let bytes = weight.dims()[1] as usize * weight.dtype().size();
    let (from, to) = (Shared(weight.ptr()), Shared(out.ptr()));
    parallel_for(rows.len(), (1usize << 16).div_ceil(bytes.max(1)), |range| {
        for i in range {
            // SAFETY: row numbers are in bounds; each output row belongs to one task and overlaps
            // no input.
            unsafe {
                std::ptr::copy_nonoverlapping(from.at(rows[i] * bytes), to.at(i * bytes), bytes);
            }
        }
    });
    Ok(())
}

fn backward(call: &Call<'_>) -> Result<()> {
    let (grad, ids) = (&call.inputs[0], &call.inputs[1]);
    if call.req[0] != OpReq::Null {
        let out = &call.outputs[0];
        // SAFETY: the output is ours to write and holds these bytes; zero bytes are zero in every
        // dtype.
        unsafe { out.ptr().write_bytes(0, out.size_bytes()) };
    }
    if call.req[1] == OpReq::Null {
        return Ok(());
    }
    let out = &call.outputs[1];
    let (height, width) = (out.dims()[0] as usize, out.dims()[1] as usize);
    add_runs(&rows_of(ids, height), width, grad, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::testing::*;

    const P: [(&str, &str); 2] = [("input_dim", "3"), ("output_dim", "2")];

    #[test]
    fn rows_are_looked_up_and_clipped() {
        let w = Tensor::of(&[3, 2], &[0., 1., 2., 3., 4., 5.]);
        for dtype in [DType::F32, DType::I32, DType::F64] {
            let ids = Tensor::new(&[4], dtype, &[0., 5., -1., 1.]);
            let ran = run("Embedding", &P, &[ids, w.clone()], true).unwrap();
            assert_eq!(ran.outputs[0].values(), [0., 1., 4., 5., 0., 1., 2., 3.]);
            let g = ran.gradients(&[Tensor::of(&[4, 2], &[1.; 8])]).unwrap();
            assert_eq!(g[1].values(), [2., 2., 1., 1., 1., 1.]);
            assert_eq!(g[0].values(), [0.; 4]);
        }
    }

    #[test]
    fn gradients_match_differences() {
        let inputs = [Tensor::of(&[2, 2], &[0., 2., 2., 1.]), Tensor::noise(&[3, 2], 1)];
        check_gradient("Embedding", &P, &inputs, &[1], true);
        let none = [Tensor::of(&[0], &[]), Tensor::noise(&[3, 2], 1)];
        let ran = run("Embedding", &P, &none, true).unwrap();
        assert_eq!(ran.outputs[0].shape.dims(), [0, 2]);
    }
}
