//! `bipartite_matching`: a greedy one-to-one matching of rows and columns.

use super::geometry::descending;
use crate::error::Result;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef};
use crate::ops::nn::infer::{complete, expect_rank, float_type};
use crate::ops::nn::widening::always;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_bipartite_matching`.
    pub struct BipartiteMatchingParam {
        is_ascend: bool, default(false), "Is a smaller score better?";
        threshold: f32, required, "Scores that are not better than this match nothing.";
        topk: i32, default(-1), "Greatest number of matches; no limit if it is not positive.";
    }
}

const DOC: &str = r#"
Matches rows and columns of a matrix of scores, greedily: the best score first, each row and each
column once.

Notes
-----
Data ``(..., N, M)``, every ``(N, M)`` handled for itself. Two outputs: for each row ``(..., N)``
its column, and for each column ``(..., M)`` its row, -1 for none. Only scores above ``threshold``
count, with ``is_ascend`` those below it. One dtype: float16 (calculated in float32), float32 or
float64. The gradient is zero.

Examples
--------
>>> rows, columns = nd.contrib.bipartite_matching(nd.array([[0.5, 0.6], [0.1, 0.2], [0.3, 0.4]]),
...     threshold=0.01)
>>> rows
[ 1. -1.  0.]
>>> columns
[2. 0.]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<BipartiteMatchingParam>("_contrib_bipartite_matching")
            .doc(DOC)
            .inputs_are(&[("data", "The scores (..., N, M).")])
            .outputs_are(&["output0", "output1"])
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(always(|c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c)))),
    ]
}

fn infer_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    expect_rank(&inputs[0], "data", 2..=usize::MAX)?;
    if let [lead @ .., n, m] = inputs[0].dims() {
        let rows = Shape::from_iter(lead.iter().chain([n]).copied());
        let columns = Shape::from_iter(lead.iter().chain([m]).copied());
        assign_shape(&mut outputs[0], "output0", &rows)?;
        assign_shape(&mut outputs[1], "output1", &columns)?;
    }
    complete(inputs, outputs)
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let p: &BipartiteMatchingParam = call.attrs.get();
    let data = &call.inputs[0];
    let rank = data.dims().len();
    let (n, m) = (data.dims()[rank - 2] as usize, data.dims()[rank - 1] as usize);
    // SAFETY: inputs are not written meanwhile.
    let x = unsafe { data.slice::<T>() };
    let outs = [0, 1].map(|i| Shared(call.outputs[i].as_ptr::<T>()));
    parallel_for(data.shape().product(0..rank - 2), 1, |range| {
        for block in range {
            // SAFETY: a block of each output belongs to one task.
            let [rows, columns] = [(0, n), (1, m)].map(|(i, len)| unsafe {
                std::slice::from_raw_parts_mut(outs[i].at(block * len), len)
            });
            match_block(p, &x[block * n * m..(block + 1) * n * m], rows, columns);
        }
    });
    Ok(())
}

fn match_block<T: Real>(
    p: &BipartiteMatchingParam,
    scores: &[T],
    rows: &mut [T],
    columns: &mut [T],
) {
    let sign = if p.is_ascend { -T::one() } else { T::one() };
    let signed: Vec<T> = scores.iter().map(|&s| s * sign).collect();
    let limit = T::of(p.threshold.into()) * sign;
    let mut left = if p.topk > 0 { p.topk as usize } else { usize::MAX };
    rows.fill(-T::one());
    columns.fill(-T::one());
    for at in descending(&signed) {
        if left == 0 || signed[at] <= limit || signed[at].is_nan() {
            break;
        }
        let (i, j) = (at / columns.len(), at % columns.len());
        if rows[i] < T::zero() && columns[j] < T::zero() {
            (rows[i], columns[j]) = (T::of(j as f64), T::of(i as f64));
            left -= 1;
        }
    }
}
