//! Slices along an axis (`take`) and indices as vectors (`one_hot`).

use super::super::common::{all_known, first_type, read_f64, wanted, write_f64, zero_view};
use super::super::kernel;
use super::{position, text};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::scatter::add_runs;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Dep, Gradient, OpDef};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_dtype};
use std::ops::Range;

param_enum! {
    /// What happens to indices outside of the axis.
    pub enum TakeMode { Clip = "clip", Raise = "raise", Wrap = "wrap" }
}

params! {
    /// Parameters of `take`.
    pub struct TakeParam {
        axis: i32, default(0), "The axis that the indices count along.";
        mode: TakeMode, default(TakeMode::Clip), "Indices outside: the nearest, an error, or \
                                                  counted around.";
    }
}

params! {
    /// Parameters of `one_hot`.
    pub struct OneHotParam {
        depth: i32, required.ge(0.0), "Extent of the new last axis.";
        on_value: f64, default(1.0), "Value at the index.";
        off_value: f64, default(0.0), "Value elsewhere.";
        dtype: DType, default(DType::F32), "Dtype of the output.";
    }
}

pub(in crate::ops) fn take_axis(attrs: &Attrs, data: &Shape) -> Result<usize> {
    data.axis(attrs.get::<TakeParam>().axis.into())
}

fn take_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    if !inputs[0].rank_known() || !inputs[1].rank_known() {
        return Ok(false);
    }
    let axis = take_axis(attrs, &inputs[0])?;
    let (d, i) = (inputs[0].dims(), inputs[1].dims());
    let out: Shape = d[..axis].iter().chain(i).chain(&d[axis + 1..]).copied().collect();
    assign_shape(&mut outputs[0], "output", &out)?;
    Ok(all_known(inputs, outputs))
}

/// How slices of the data are taken: positions on the axis, and the extents around it.
struct Taken {
    positions: Vec<usize>,
    outer: usize,
    extent: usize,
    inner: usize,
}

impl Taken {
    fn new(attrs: &Attrs, data: &Shape, indices: &View) -> Result<Self> {
        let (axis, mode) = (take_axis(attrs, data)?, attrs.get::<TakeParam>().mode);
        let (outer, inner) = (data.product(0..axis), data.product(axis + 1..data.ndim()));
        let (extent, n) = (data.dims()[axis], indices.size());
        if extent == 0 && n > 0 && outer * inner > 0 {
            return Err(Error::index(format!(
                "take from axis {axis} of shape {data}: expected elements along it"
            )));
        }
        if extent == 0 {
            return Ok(Taken { positions: Vec::new(), outer, extent: 0, inner });
        }
        let wraps = mode != TakeMode::Clip;
        let mut positions = vec![0; n];
        let to = Shared(positions.as_mut_ptr());
        with_dtype!(indices.dtype(), T => {
            // SAFETY: nothing writes the indices while the kernel runs.
            let indices = unsafe { indices.slice::<T>() };
            // Only one mode has indices that are refused.
            let checked = if mode == TakeMode::Raise { indices } else { &[] };
            let mut all = checked.iter().map(|i| i.to_f64() as i64);
            if let Some(index) = all.find(|index| !(-extent..extent).contains(index)) {
                return Err(Error::index(format!(
                    "take operator contains indices out of bound: {index} on axis {axis} of \
                     extent {extent}"
                )));
            }
            parallel_for(n, 1 << 14, |range| {
                for k in range {
                    let at = position(indices[k].to_f64() as i64, extent, wraps) as usize;
                    // SAFETY: tasks have positions of their own.
                    unsafe { *to.at(k) = at };
                }
            });
        });
        Ok(Taken { positions, outer, extent: extent as usize, inner })
    }

    /// Some runs of the output, and the runs of the data that they hold.
    #[inline(always)]
    fn sources(&self, runs: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let n = self.positions.len().max(1);
        let (mut row, mut k) = (runs.start / n * self.extent, runs.start % n);
        runs.map(move |run| {
            let source = row + self.positions[k];
            k += 1;
            if k == n {
                (row, k) = (row + self.extent, 0);
            }
            (run, source)
        })
    }

    fn runs(&self) -> usize {
        self.outer * self.positions.len()
    }

    /// Copies all runs of elements of the size of `T`, side by side.
    fn copy<T: Copy + Send + Sync>(&self, from: &View, to: &View) {
        let (from, to) = (Shared(from.ptr().cast::<T>()), Shared(to.ptr().cast::<T>()));
        let grain = (1usize << 14).div_ceil(self.inner.max(1));
        parallel_for(self.runs(), grain, |range| {
            for (i, source) in self.sources(range) {
                // SAFETY: runs lie in the views, which do not overlap; tasks have runs of their
                // own.
                unsafe {
                    let (x, y) = (from.at(source * self.inner), to.at(i * self.inner));
                    if self.inner == 1 {
                        *y = *x;
                    } else {
                        y.copy_from_nonoverlapping(x, self.inner);
                    }
                }
            }
        });
    }
}

/// `take` and its gradient.
fn take() -> Vec<OpDef> {
    let doc = text(
        "The slices of ``a`` along an axis at ``indices``.",
        "The axis is replaced by the axes of ``indices``, whose fractions are dropped and which \
         may have any dtype. The gradient of an element taken several times is the sum; indices \
         get a zero gradient. With ``mode='raise'`` an index outside is an error.",
        "nd.take(nd.array([[1, 2], [3, 4]]), nd.array([1, 0]))\n[[3. 4.]\n [1. 2.]]",
    );
    vec![
        OpDef::new::<TakeParam>("take")
            .aliases(&["_npi_take"])
            .doc(&doc)
            .inputs_are(&[("a", "The data."), ("indices", "Which slices.")])
            .infer_shape(take_shape)
            .infer_type(first_type)
            .gradient(Gradient::declared("_backward_take", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(1)]
            }))
            .kernel(kernel(|call| {
                let [a, indices] = [0, 1].map(|i| &call.inputs[i]);
                let (taken, out) = (Taken::new(call.attrs, a.shape(), indices)?, &call.outputs[0]);
                match out.dtype().size() {
                    1 => taken.copy::<u8>(a, out),
                    2 => taken.copy::<u16>(a, out),
                    4 => taken.copy::<u32>(a, out),
                    _ => taken.copy::<u64>(a, out),
                }
                Ok(())
            })),
        OpDef::new::<TakeParam>("_backward_take").kernel(kernel(|call| {
            let ([g, indices], da) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
            if wanted(call, 1) {
                zero_view(&call.outputs[1]);
            }
            if !wanted(call, 0) {
                return Ok(());
            }
            let taken = Taken::new(call.attrs, da.shape(), indices)?;
            let places: Vec<usize> = taken.sources(0..taken.runs()).map(|(_, at)| at).collect();
            add_runs(&places, taken.inner, g, da);
            Ok(())
        })),
    ]
}

fn one_hot() -> OpDef {
    let doc = text(
        "Vectors with ``on_value`` at the index and ``off_value`` elsewhere, along a new last \
         axis.",
        "Indices of any shape and dtype; one outside of ``0 .. depth - 1`` gives only \
         ``off_value``, NaN too. The gradient is zero.",
        "nd.one_hot(nd.array([0, 2]), depth=3)\n[[1. 0. 0.]\n [0. 0. 1.]]",
    );
    OpDef::new::<OneHotParam>("one_hot")
        .aliases(&["_npx_one_hot"])
        .doc(&doc)
        .inputs_are(&[("indices", "The indices.")])
        .infer_shape(|attrs, inputs, outputs| {
            if inputs[0].rank_known() {
                let mut out = inputs[0].clone();
                out.dims_mut().push(attrs.get::<OneHotParam>().depth.into());
                assign_shape(&mut outputs[0], "output", &out)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(|attrs, inputs, outputs| {
            assign_type(&mut outputs[0], "output", attrs.get::<OneHotParam>().dtype)?;
            Ok(inputs[0].is_some())
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let (p, out) = (call.attrs.get::<OneHotParam>(), &call.outputs[0]);
            crate::kernels::copy::fill(out, p.off_value);
            let (indices, depth) = (&call.inputs[0], p.depth as usize);
            for i in 0..indices.size() {
                // SAFETY: `i` is below the size.
                let index = unsafe { read_f64(indices.ptr(), indices.dtype(), i) }.trunc();
                if (0.0..f64::from(p.depth)).contains(&index) {
                    let at = i * depth + index as usize;
                    // SAFETY: the index lies in the row.
                    unsafe { write_f64(out.ptr(), out.dtype(), at, p.on_value) };
                }
            }
            Ok(())
        }))
}

pub fn operators() -> Vec<OpDef> {
    let mut all = take();
    all.push(one_hot());
    all
}
