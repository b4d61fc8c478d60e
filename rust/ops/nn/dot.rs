//! `dot` and `batch_dot`: products of matrices and of stacks of matrices.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::gemm::{Mat, Threads, few, gemm};
use crate::kernels::parallel::parallel_for;
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq};
use crate::shape::Shape;
use crate::{param_enum, params, with_real};

param_enum! {
    /// The storage of the result; only dense arrays exist.
    pub enum StorageType { Csr = "csr", Default = "default", RowSparse = "row_sparse" }
}

params! {
    /// Parameters of `dot` and `batch_dot`.
    pub struct DotParam {
        transpose_a: bool, default(false), "Transpose lhs first.";
        transpose_b: bool, default(false), "Transpose rhs first.";
        forward_stype: Option<StorageType>, default(None), "Accepted; the result is dense.";
    }
}

const DOT: &str = r#"
Contracts the last axis of ``lhs`` with the first of ``rhs``: of two vectors the inner product, of
matrices the matrix product.

Notes
-----
``(a..., k)`` and ``(k, b...)`` give ``(a..., b...)``; two vectors give shape ``(1,)``.
``transpose_a=True`` contracts the first axis of ``lhs`` instead, ``transpose_b=True`` the last of
``rhs``. One dtype: float16 (calculated in float32), float32 or float64. Contracted extents that
differ are an error.

Examples
--------
>>> nd.dot(nd.array([[1, 2], [3, 4]]), nd.array([1, 1]))
[3. 7.]
"#;

const BATCH_DOT: &str = r#"
Matrix product of each pair of matrices in two stacks.

Notes
-----
``(..., m, k)`` and ``(..., k, n)`` with equal leading axes, at least one, give ``(..., m, n)``;
``transpose_a`` and ``transpose_b`` exchange the last two axes of an input. One dtype: float16
(calculated in float32), float32 or float64.

Examples
--------
>>> nd.batch_dot(nd.ones((2, 1, 3)), nd.ones((2, 3, 1)))
[[[3.]]
 [[3.]]]
"#;

pub fn operators() -> Vec<OpDef> {
    let mut all = Vec::new();
    for (name, alias, doc) in
        [("dot", "_sparse_dot", DOT), ("batch_dot", "_npx_batch_dot", BATCH_DOT)]
    {
        let back = format!("_backward_{name}");
        let def = OpDef::new::<DotParam>(name)
            .aliases(&[alias])
            .doc(doc)
            .inputs_are(&[("lhs", "The first input."), ("rhs", "The second input.")])
            .infer_type(float_type)
            .gradient(Gradient::use_in(&back));
        let def = if name == "dot" {
            def.infer_shape(dot_shape).kernel(widening::cpu_unless(
                few_halves,
                |call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call, dot_sizes(call))),
            ))
        } else {
            def.infer_shape(batch_shape).kernel(widening::cpu(|call| {
                with_real!(call.inputs[0].dtype(), T => forward::<T>(call, batch_sizes(call)))
            }))
        };
        all.push(def);
    }
    all.push(OpDef::new::<DotParam>("_backward_dot").kernel(widening::cpu(|call| {
        let sizes = dot_sizes(&Call { inputs: &call.inputs[1..], ..*call });
        with_real!(call.inputs[0].dtype(), T => backward::<T>(call, sizes))
    })));
    all.push(OpDef::new::<DotParam>("_backward_batch_dot").kernel(widening::cpu(|call| {
        let sizes = batch_sizes(&Call { inputs: &call.inputs[1..], ..*call });
        with_real!(call.inputs[0].dtype(), T => backward::<T>(call, sizes))
    })));
    all
}

fn dot_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &DotParam = attrs.get();
    expect_rank(&inputs[0], "lhs", 1..=usize::MAX)?;
    expect_rank(&inputs[1], "rhs", 1..=usize::MAX)?;
    if !inputs.iter().all(Shape::rank_known) {
        return Ok(false);
    }
    let (a, b) = (inputs[0].dims(), inputs[1].dims());
    let last_a = a.len() - 1;
    let last_b = b.len() - 1;
    let (ka, kept_a) = if param.transpose_a { (a[0], &a[1..]) } else { (a[last_a], &a[..last_a]) };
    let (kb, kept_b) = if param.transpose_b { (b[last_b], &b[..last_b]) } else { (b[0], &b[1..]) };
    if ka >= 0 && kb >= 0 && ka != kb {
        return Err(Error::value(unequal(inputs)));
    }
    let out: Shape = kept_a.iter().chain(kept_b).copied().collect();
    let out = if out.ndim() == 0 { Shape::new(&[1]) } else { out };
    assign_shape(&mut outputs[0], "output", &out)?;
    complete(inputs, outputs)
}

fn unequal(inputs: &[Shape]) -> String {
    let (a, b) = (&inputs[0], &inputs[1]);
    format!("cannot multiply shapes {a} and {b}: expected equal extents of the axes summed over")
}

fn batch_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &DotParam = attrs.get();
    expect_rank(&inputs[0], "lhs", 3..=usize::MAX)?;
    expect_rank(&inputs[1], "rhs", 3..=usize::MAX)?;
    if !inputs.iter().all(Shape::rank_known) {
        return Ok(false);
    }
    let (a, b) = (inputs[0].dims(), inputs[1].dims());
    let rank = a.len();
    let split = |d: &[i64], t: bool| {
        let (r, c) = (d[d.len() - 2], d[d.len() - 1]);
        if t { (c, r) } else { (r, c) }
    };
    let ((m, ka), (kb, n)) = (split(a, param.transpose_a), split(b, param.transpose_b));
    let mut lead = Shape::new(&a[..rank - 2]);
    let agree = lead.merge(&Shape::new(&b[..b.len() - 2])).is_ok();
    if !agree || (ka >= 0 && kb >= 0 && ka != kb) {
        return Err(Error::value(unequal(inputs)));
    }
    lead.dims_mut().extend([m, n]);
    assign_shape(&mut outputs[0], "output", &lead)?;
    complete(inputs, outputs)
}

/// Number of products and their extents (m, n, k).
type Sizes = (usize, (usize, usize, usize));

pub(in crate::ops) fn dot_sizes(call: &Call<'_>) -> Sizes {
    let param: &DotParam = call.attrs.get();
    let (a, b) = (call.inputs[0].shape(), call.inputs[1].shape());
    let (ra, rb) = (a.ndim(), b.ndim());
    let (m, k) = if param.transpose_a {
        (a.product(1..ra), a.product(0..1))
    } else {
        (a.product(0..ra - 1), a.product(ra - 1..ra))
    };
    let n = if param.transpose_b { b.product(0..rb - 1) } else { b.product(1..rb) };
    (1, (m, n, k))
}

pub(in crate::ops) fn batch_sizes(call: &Call<'_>) -> Sizes {
    let param: &DotParam = call.attrs.get();
    let (a, b) = (call.inputs[0].shape(), call.inputs[1].shape());
    let rank = a.ndim();
    let (r, c) = (a.product(rank - 2..rank - 1), a.product(rank - 1..rank));
    let (m, k) = if param.transpose_a { (c, r) } else { (r, c) };
    let n =
        if param.transpose_b { b.product(rank - 2..rank - 1) } else { b.product(rank - 1..rank) };
    (a.product(0..rank - 2), (m, n, k))
}

/// `count` products; a single one may use all threads, several are shared out.
pub(in crate::ops) fn products<T: Real>(
    count: usize,
    (m, n, k): (usize, usize, usize),
    [a, b, c]: [Mat<T>; 3],
) {
    if count == 1 {
        // SAFETY: the caller's views have these extents and the output overlaps no input.
        unsafe { gemm((m, n, k), a, b, c, false, Threads::Pool) };
        return;
    }
    let grain = (1usize << 16).div_ceil((m * n * k).max(1));
    parallel_for(count, grain, |range| {
        for i in range {
            // SAFETY: as above; stacks hold `count` matrices, and each product belongs to one task.
            unsafe {
                let (a, b, c) = (a.skip(i * m * k), b.skip(i * k * n), c.skip(i * m * n));
                gemm((m, n, k), a, b, c, false, Threads::One);
            }
        }
    });
}

fn matrices<T: Element>(call: &Call<'_>, (m, n, k): (usize, usize, usize)) -> [Mat<T>; 3] {
    let param: &DotParam = call.attrs.get();
    let (ta, tb) = (param.transpose_a, param.transpose_b);
    let a = Mat::rows(call.inputs[0].as_ptr::<T>(), if ta { m } else { k }).t_if(ta);
    let b = Mat::rows(call.inputs[1].as_ptr::<T>(), if tb { k } else { n }).t_if(tb);
    [a, b, Mat::rows(call.outputs[0].as_ptr(), n)]
}

fn forward<T: Real>(call: &Call<'_>, (count, size): Sizes) -> Result<()> {
    if call.req[0] != OpReq::Null {
        products(count, size, matrices::<T>(call, size));
    }
    Ok(())
}

/// The product of a matrix in half precision and one of few rows or columns: the former is read as
/// it is stored. Returns whether it is one.
fn few_halves(call: &Call<'_>) -> bool {
    let (_, size) = dot_sizes(call);
    let Some(product) = few::oriented(size, matrices(call, size)) else { return false };
    // SAFETY: the views have these extents, and the output overlaps no input.
    unsafe { few::multiply_halves(product, false, Threads::Pool) };
    true
}

/// `dA = dC Bᵀ` and `dB = Aᵀ dC`, each written in the layout of its input.
fn backward<T: Real>(call: &Call<'_>, (count, (m, n, k)): Sizes) -> Result<()> {
    let param: &DotParam = call.attrs.get();
    let (ta, tb) = (param.transpose_a, param.transpose_b);
    let as_a = |p: *mut T| Mat::rows(p, if ta { m } else { k }).t_if(ta);
    let as_b = |p: *mut T| Mat::rows(p, if tb { k } else { n }).t_if(tb);
    let dc = Mat::rows(call.inputs[0].as_ptr::<T>(), n);
    let (a, b) = (as_a(call.inputs[1].as_ptr()), as_b(call.inputs[2].as_ptr()));
    if call.req[0] != OpReq::Null {
        products(count, (m, k, n), [dc, b.t(), as_a(call.outputs[0].as_ptr())]);
    }
    if call.req[1] != OpReq::Null {
        products(count, (k, n, m), [a.t(), dc, as_b(call.outputs[1].as_ptr())]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn dot_shapes_and_gradients() {
        for (a, b, ta, tb, out) in [
            (&[2, 3, 4][..], &[4, 5, 6][..], "0", "0", &[2, 3, 5, 6][..]),
            (&[4, 2, 3], &[4, 5], "1", "0", &[2, 3, 5]),
            (&[2, 4], &[5, 6, 4], "0", "1", &[2, 5, 6]),
            (&[4, 2], &[3, 4], "1", "1", &[2, 3]),
            (&[4], &[5, 4], "0", "1", &[5]),
            (&[4, 2], &[4], "1", "0", &[2]),
            (&[4], &[4], "0", "0", &[1]),
        ] {
            let p = [("transpose_a", ta), ("transpose_b", tb)];
            let inputs = [Tensor::noise(a, 1), Tensor::noise(b, 2)];
            assert_eq!(run("dot", &p, &inputs, true).unwrap().outputs[0].shape.dims(), out);
            check_gradient("dot", &p, &inputs, &[0, 1], true);
            check_half("dot", &p, &inputs, true);
        }
        // A matrix in half precision is read as it is stored where the other one has few rows.
        for (a, b, ta, tb) in [
            (&[2, 70][..], &[3, 70][..], "0", "1"),
            (&[70], &[70, 5], "0", "0"),
            (&[90, 70], &[70], "0", "0"),
            (&[70, 90], &[70, 1], "1", "0"),
        ] {
            let inputs = [Tensor::noise(a, 1), Tensor::noise(b, 2)];
            check_half("dot", &[("transpose_a", ta), ("transpose_b", tb)], &inputs, true);
        }
        let fail = infer_shapes("dot", &[], &[Some(&[2, 3]), Some(&[2, 3])]).unwrap_err();
        assert_eq!(
            fail.to_string(),
            "cannot multiply shapes (2, 3) and (2, 3): expected equal extents of the axes summed \
             over"
        );
    }

    #[test]
    fn batch_dot_gradients() {
        for (ta, tb) in [("0", "0"), ("1", "0"), ("0", "1"), ("1", "1")] {
            let p = [("transpose_a", ta), ("transpose_b", tb)];
            let a: &[i64] = if ta == "1" { &[2, 2, 4, 3] } else { &[2, 2, 3, 4] };
            let b: &[i64] = if tb == "1" { &[2, 2, 5, 4] } else { &[2, 2, 4, 5] };
            let inputs = [Tensor::noise(a, 1), Tensor::noise(b, 2)];
            check_gradient("batch_dot", &p, &inputs, &[0, 1], true);
        }
        assert!(infer_shapes("batch_dot", &[], &[Some(&[2, 3]), Some(&[3, 2])]).is_err());
    }
}
