//! Elements by index: `take`, `pick`, `one_hot`, `gather_nd`, `scatter_nd` and their kin.

use super::common::{all_known, copy_view, read_f64, wanted, write_f64, zero_view};
use super::kernel;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::arith::Arith;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Dep, GradBuilder, GradNode, Gradient, OpDef, Tuple};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_dtype};

param_enum! {
    /// What happens to indices outside of the axis.
    pub enum TakeMode { Clip = "clip", Raise = "raise", Wrap = "wrap" }
}

param_enum! {
    /// What happens to indices outside of the axis.
    pub enum PickMode { Clip = "clip", Wrap = "wrap" }
}

params! {
    /// Parameters of `take`.
    pub struct TakeParam {
        axis: i32, default(0), "The axis that the indices count along.";
        mode: TakeMode, default(TakeMode::Clip), "Indices outside: the nearest, an error, or counted around.";
    }
}

params! {
    /// Parameters of `pick`.
    pub struct PickParam {
        axis: Option<i32>, default(Some(-1)), "The axis that the indices count along; None picks from the flattened array.";
        keepdims: bool, default(false), "Keep the axis with extent 1.";
        mode: PickMode, default(PickMode::Clip), "Indices outside: the nearest, or counted around.";
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

params! {
    /// Parameters of operators whose output has a given shape.
    pub struct ShapeParam {
        shape: Tuple, required, "Shape of the output.";
    }
}

/// A place on an axis of `extent`, which is not 0.
fn place(index: i64, extent: i64, wrap: bool) -> i64 {
    if wrap { index.rem_euclid(extent) } else { index.clamp(0, extent - 1) }
}

/// Element `i` of an index array; its fraction is dropped.
pub fn index_at(view: &View, i: usize) -> i64 {
    // SAFETY: the callers stay below the view's size.
    unsafe { read_f64(view.ptr(), view.dtype(), i) as i64 }
}

/// Data and output share a dtype; indices may have any.
fn data_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let Some(dtype) = inputs[0].or(outputs[0]) else { return Ok(false) };
    assign_type(&mut inputs[0], "data", dtype)?;
    assign_type(&mut outputs[0], "output", dtype)?;
    for t in &mut inputs[1..] {
        t.get_or_insert(DType::F32);
    }
    Ok(true)
}

pub fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n>>> {example}\n")
}

/// Copies `n` elements of the views' dtype between offsets.
pub fn copy_run(from: &View, at: usize, to: &View, to_at: usize, n: usize) {
    let size = from.dtype().size();
    // SAFETY: the callers keep both runs inside of their views, which do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            from.ptr().add(at * size),
            to.ptr().add(to_at * size),
            n * size,
        );
    }
}

/// Adds `n` elements.
fn add_run(from: &View, at: usize, to: &View, to_at: usize, n: usize) {
    with_dtype!(to.dtype(), T => {
        let (x, y) = (from.as_ptr::<T>(), to.as_ptr::<T>());
        for i in 0..n {
            // SAFETY: the callers keep both runs inside of their views.
            unsafe { *y.add(to_at + i) = Arith::add(*y.add(to_at + i), *x.add(at + i)) };
        }
    });
}

fn take_axis(attrs: &Attrs, data: &Shape) -> Result<usize> {
    data.axis(attrs.get::<TakeParam>().axis.into())
}

fn take_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    if !inputs[0].is_known() || !inputs[1].is_known() {
        return Ok(false);
    }
    let axis = take_axis(attrs, &inputs[0])?;
    let (d, i) = (inputs[0].dims(), inputs[1].dims());
    let out: Shape = d[..axis].iter().chain(i).chain(&d[axis + 1..]).copied().collect();
    assign_shape(&mut outputs[0], "output", &out)?;
    Ok(all_known(inputs, outputs))
}

/// Calls `f(run in the data, run in the output, length)` for every taken run.
fn for_taken(
    attrs: &Attrs,
    data: &Shape,
    indices: &View,
    mut f: impl FnMut(usize, usize, usize),
) -> Result<()> {
    let (axis, mode) = (take_axis(attrs, data)?, attrs.get::<TakeParam>().mode);
    let (outer, inner) = (data.product(0..axis), data.product(axis + 1..data.ndim()));
    let (extent, n) = (data.dims()[axis], indices.size());
    if extent == 0 && n > 0 && outer * inner > 0 {
        return Err(Error::index(format!(
            "take from axis {axis} of shape {data}, which has no elements"
        )));
    }
    for k in 0..n {
        let index = index_at(indices, k);
        let at = match mode {
            TakeMode::Raise if !(-extent..extent).contains(&index) => {
                return Err(Error::index(format!(
                    "take operator contains indices out of bound: {index} on axis {axis} of extent {extent}"
                )));
            }
            TakeMode::Raise | TakeMode::Wrap => place(index, extent, true),
            TakeMode::Clip => place(index, extent, false),
        };
        for o in 0..outer {
            f((o * extent as usize + at as usize) * inner, (o * n + k) * inner, inner);
        }
    }
    Ok(())
}

fn take() -> Vec<OpDef> {
    let doc = text(
        "The slices of ``a`` along an axis at ``indices``.",
        "The axis is replaced by the axes of ``indices``, whose fractions are dropped and which may have any dtype. The gradient of \
         an element taken several times is the sum; indices get a zero gradient. With ``mode='raise'`` an index outside is an error.",
        "nd.take(nd.array([[1, 2], [3, 4]]), nd.array([1, 0]))\n[[3. 4.]\n [1. 2.]]",
    );
    vec![
        OpDef::new::<TakeParam>("take")
            .aliases(&["_npi_take"])
            .doc(&doc)
            .inputs_are(&[("a", "The data."), ("indices", "Which slices.")])
            .infer_shape(take_shape)
            .infer_type(data_type)
            .gradient(Gradient::declared("_backward_take", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(1)]
            }))
            .kernel(kernel(|call| {
                let [a, indices] = [0, 1].map(|i| &call.inputs[i]);
                for_taken(call.attrs, a.shape(), indices, |x, y, n| {
                    copy_run(a, x, &call.outputs[0], y, n)
                })
            })),
        OpDef::new::<TakeParam>("_backward_take").kernel(kernel(|call| {
            let ([g, indices], da) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
            if wanted(call, 1) {
                zero_view(&call.outputs[1]);
            }
            if !wanted(call, 0) {
                return Ok(());
            }
            zero_view(da);
            for_taken(call.attrs, da.shape(), indices, |x, y, n| add_run(g, y, da, x, n))
        })),
    ]
}

/// Outer count, extent and inner count around the picked axis.
fn pick_lines(p: &PickParam, data: &Shape) -> Result<(usize, i64, usize, Option<usize>)> {
    Ok(match p.axis {
        None => (1, data.size() as i64, 1, None),
        Some(a) => {
            let axis = data.axis(a.into())?;
            (
                data.product(0..axis),
                data.dims()[axis],
                data.product(axis + 1..data.ndim()),
                Some(axis),
            )
        }
    })
}

/// Element of the data for each output, in order.
fn picked(p: &PickParam, data: &Shape, index: &View) -> Result<Vec<usize>> {
    let (outer, extent, inner, _) = pick_lines(p, data)?;
    if extent == 0 {
        return Ok(vec![]);
    }
    Ok((0..(outer * inner).min(index.size()))
        .map(|i| {
            let at = place(index_at(index, i), extent, p.mode == PickMode::Wrap) as usize;
            (i / inner * extent as usize + at) * inner + i % inner
        })
        .collect())
}

fn pick() -> Vec<OpDef> {
    let doc = text(
        "One element of each line along an axis: the one at ``index``.",
        "``index`` has the data's shape without the axis (or with extent 1 there), any dtype; fractions are dropped. It gets a zero \
         gradient.",
        "nd.pick(nd.array([[1, 2], [3, 4]]), nd.array([0, 1]))\n[1. 4.]",
    );
    vec![
        OpDef::new::<PickParam>("pick")
            .aliases(&["_npx_pick", "choose_element_0index"])
            .doc(&doc)
            .inputs_are(&[("data", "The data."), ("index", "Which element of each line.")])
            .infer_shape(|attrs, inputs, outputs| {
                let p: &PickParam = attrs.get();
                if !inputs[0].is_known() {
                    return Ok(false);
                }
                let data = inputs[0].clone();
                let axis = pick_lines(p, &data)?.3;
                let dims = data.dims().iter().enumerate();
                let kept: Shape = dims
                    .clone()
                    .map(|(i, &d)| if axis.is_none_or(|a| a == i) { 1 } else { d })
                    .collect();
                let dropped: Shape =
                    dims.filter(|(i, _)| axis.is_some_and(|a| a != *i)).map(|(_, &d)| d).collect();
                let dropped = super::common::at_least_1d(dropped);
                if inputs[1].rank_known()
                    && inputs[1].ndim() == kept.ndim()
                    && kept.ndim() != dropped.ndim()
                {
                    assign_shape(&mut inputs[1], "index", &kept)?;
                } else {
                    assign_shape(&mut inputs[1], "index", &dropped)?;
                }
                assign_shape(&mut outputs[0], "output", if p.keepdims { &kept } else { &dropped })?;
                Ok(all_known(inputs, outputs))
            })
            .infer_type(data_type)
            .gradient(Gradient::declared("_backward_pick", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(1)]
            }))
            .kernel(kernel(|call| {
                let (x, out) = (&call.inputs[0], &call.outputs[0]);
                for (i, at) in
                    picked(call.attrs.get(), x.shape(), &call.inputs[1])?.into_iter().enumerate()
                {
                    copy_run(x, at, out, i, 1);
                }
                Ok(())
            })),
        OpDef::new::<PickParam>("_backward_pick").kernel(kernel(|call| {
            let (g, dx) = (&call.inputs[0], &call.outputs[0]);
            if wanted(call, 1) {
                zero_view(&call.outputs[1]);
            }
            if wanted(call, 0) {
                zero_view(dx);
                for (i, at) in
                    picked(call.attrs.get(), dx.shape(), &call.inputs[1])?.into_iter().enumerate()
                {
                    add_run(g, i, dx, at, 1);
                }
            }
            Ok(())
        })),
    ]
}

fn batch_take() -> OpDef {
    let doc = text(
        "One element of each row of a matrix.",
        "As ``pick`` along axis 1. The indices get a zero gradient.",
        "nd.batch_take(nd.array([[1, 2], [3, 4]]), nd.array([0, 1], dtype='int32'))\n[1. 4.]",
    );
    fn as_pick() -> PickParam {
        PickParam { axis: Some(1), keepdims: false, mode: PickMode::Clip }
    }
    OpDef::plain("batch_take")
        .doc(&doc)
        .inputs_are(&[("a", "The matrix."), ("indices", "Which element of each row.")])
        .infer_shape(|_, inputs, outputs| {
            let rows = inputs[0].dims().first().copied().unwrap_or(-1);
            assign_shape(&mut inputs[1], "indices", &Shape::new(&[rows]))?;
            let rows = inputs[1].clone();
            assign_shape(&mut outputs[0], "output", &rows)?;
            Ok(all_known(inputs, outputs))
        })
        .infer_type(data_type)
        .gradient(Gradient::rule(|builder: &mut dyn GradBuilder, node: &GradNode<'_>| {
            let grad = node.out_grad(builder, 0)?;
            let grads = builder.backward("_backward_batch_take", &[grad, node.inputs[1]])?;
            Ok(grads.into_iter().map(Some).collect())
        }))
        .kernel(kernel(|call| {
            let x = &call.inputs[0];
            for (i, at) in picked(&as_pick(), x.shape(), &call.inputs[1])?.into_iter().enumerate() {
                copy_run(x, at, &call.outputs[0], i, 1);
            }
            Ok(())
        }))
}

fn batch_take_backward() -> OpDef {
    OpDef::plain("_backward_batch_take").kernel(kernel(|call| {
        let p = PickParam { axis: Some(1), keepdims: false, mode: PickMode::Clip };
        let dx = &call.outputs[0];
        if wanted(call, 1) {
            zero_view(&call.outputs[1]);
        }
        if wanted(call, 0) {
            zero_view(dx);
            for (i, at) in picked(&p, dx.shape(), &call.inputs[1])?.into_iter().enumerate() {
                add_run(&call.inputs[0], i, dx, at, 1);
            }
        }
        Ok(())
    }))
}

fn one_hot() -> OpDef {
    let doc = text(
        "Vectors with ``on_value`` at the index and ``off_value`` elsewhere, along a new last axis.",
        "Indices of any shape and dtype; one outside of ``0 .. depth - 1`` gives only ``off_value``. The gradient is zero.",
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
            for i in 0..call.inputs[0].size() {
                let index = index_at(&call.inputs[0], i);
                if (0..i64::from(p.depth)).contains(&index) {
                    // SAFETY: the index lies in the row.
                    unsafe {
                        write_f64(
                            out.ptr(),
                            out.dtype(),
                            i * p.depth as usize + index as usize,
                            p.on_value,
                        )
                    };
                }
            }
            Ok(())
        }))
}

/// Calls `f(first element of the slice, number of the slice, its length)` for each column of
/// coordinates.
fn for_coordinates(
    whole: &Shape,
    indices: &View,
    mut f: impl FnMut(usize, usize, usize),
) -> Result<()> {
    let m = indices.dims()[0] as usize;
    let n = indices.shape().product(1..indices.ndim());
    let strides = whole.strides();
    let length = whole.product(m..whole.ndim());
    for k in 0..n {
        let mut at = 0;
        for axis in 0..m {
            let (index, extent) = (index_at(indices, axis * n + k), whole.dims()[axis]);
            if !(-extent..extent).contains(&index) {
                return Err(Error::index(format!(
                    "index {index} is out of bounds for axis {axis} of shape {whole}"
                )));
            }
            at += place(index, extent, true) * strides[axis];
        }
        f(at as usize, k, length);
    }
    Ok(())
}

/// The shape of the slices that the coordinates name.
fn gathered(whole: &Shape, indices: &Shape) -> Result<Shape> {
    let m = indices.dims().first().copied().unwrap_or(0);
    if m < 1 || m as usize > whole.ndim() {
        return Err(Error::argument(
            "indices",
            "shape",
            indices,
            format!("1 to {} rows of coordinates", whole.ndim()),
        ));
    }
    Ok(indices.dims()[1..].iter().chain(&whole.dims()[m as usize..]).copied().collect())
}

fn gather_scatter() -> Vec<OpDef> {
    let gather = text(
        "Elements or slices of the data by coordinates: column ``k`` of ``indices`` names one.",
        "``indices`` has the shape ``(M, ...)`` with ``M`` coordinates on its first axis, any dtype; negative ones count from the end. \
         The gradient of an element named several times is the sum. An index outside is an error.",
        "nd.gather_nd(nd.array([[1, 2], [3, 4]]), nd.array([[1, 0], [0, 1]]))\n[3. 2.]",
    );
    let scatter = text(
        "Zeros of a shape, with the data put at coordinates: the opposite of ``gather_nd``.",
        "Of several elements for one place the last wins. An index outside is an error.",
        "nd.scatter_nd(nd.array([5]), nd.array([[2]]), shape=(4,))\n[0. 0. 5. 0.]",
    );
    let scatter_infer = |attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]| {
        let shape = Shape::new(&attrs.get::<ShapeParam>().shape);
        assign_shape(&mut outputs[0], "output", &shape)?;
        if inputs[1].is_known() {
            let part = gathered(&shape, &inputs[1])?;
            assign_shape(&mut inputs[0], "data", &part)?;
        }
        Ok(all_known(inputs, outputs))
    };
    vec![
        OpDef::plain("gather_nd")
            .aliases(&["_npi_gather_nd", "_npx_gather_nd"])
            .doc(&gather)
            .inputs_are(&[("data", "The data."), ("indices", "Coordinates.")])
            .infer_shape(|_, inputs, outputs| {
                if inputs[0].is_known() && inputs[1].is_known() {
                    let out = gathered(&inputs[0], &inputs[1])?;
                    assign_shape(&mut outputs[0], "output", &out)?;
                }
                Ok(all_known(inputs, outputs))
            })
            .infer_type(data_type)
            .gradient(Gradient::declared("_backward_gather_nd_grad", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(1)]
            }))
            .kernel(kernel(|call| {
                let x = &call.inputs[0];
                for_coordinates(x.shape(), &call.inputs[1], |at, k, n| {
                    copy_run(x, at, &call.outputs[0], k * n, n)
                })
            })),
        OpDef::plain("_backward_gather_nd_grad").kernel(kernel(|call| {
            let (g, dx) = (&call.inputs[0], &call.outputs[0]);
            if wanted(call, 1) {
                zero_view(&call.outputs[1]);
            }
            if !wanted(call, 0) {
                return Ok(());
            }
            zero_view(dx);
            for_coordinates(dx.shape(), &call.inputs[1], |at, k, n| add_run(g, k * n, dx, at, n))
        })),
        OpDef::new::<ShapeParam>("scatter_nd")
            .doc(&scatter)
            .inputs_are(&[("data", "The elements or slices."), ("indices", "Coordinates.")])
            .infer_shape(scatter_infer)
            .infer_type(data_type)
            .gradient(Gradient::rule(|builder, node| {
                let grad = node.out_grad(builder, 0)?;
                Ok(vec![Some(builder.op("gather_nd", "", &[], &[grad, node.inputs[1]])?[0]), None])
            }))
            .kernel(kernel(|call| {
                let (x, out) = (&call.inputs[0], &call.outputs[0]);
                zero_view(out);
                for_coordinates(out.shape(), &call.inputs[1], |at, k, n| {
                    copy_run(x, k * n, out, at, n)
                })
            })),
        OpDef::new::<ShapeParam>("_scatter_set_nd")
            .aliases(&["_npi_scatter_set_nd"])
            .doc(&text(
                "``lhs`` with the elements or slices at coordinates replaced by ``rhs``.",
                "Used by setting items. An index outside is an error.",
                "nd._internal._scatter_set_nd(nd.zeros((3,)), nd.array([5]), nd.array([[1]]), shape=(3,))\n[0. 5. 0.]",
            ))
            .inputs_are(&[
                ("lhs", "The array."),
                ("rhs", "The new elements."),
                ("indices", "Coordinates."),
            ])
            .infer_shape(|_, inputs, outputs| {
                let lhs = inputs[0].clone();
                assign_shape(&mut outputs[0], "output", &lhs)?;
                if lhs.is_known() && inputs[2].is_known() {
                    let part = gathered(&lhs, &inputs[2])?;
                    assign_shape(&mut inputs[1], "rhs", &part)?;
                }
                Ok(all_known(inputs, outputs))
            })
            .infer_type(data_type)
            .inplace(&[crate::operator::InplacePair::new(0, 0)])
            .gradient(Gradient::rule_reading(&[Dep::Input(2)], |builder, node| {
                let (grad, indices) = (node.out_grad(builder, 0)?, node.inputs[2]);
                let rhs = builder.op("gather_nd", "", &[], &[grad, indices])?[0];
                let zeros = builder.op("zeros_like", "", &[], &[rhs])?[0];
                let shape: Vec<_> = node.attrs.value("shape").cloned().map(|s| ("shape", s)).into_iter().collect();
                let lhs = builder.op("_scatter_set_nd", "", &shape, &[grad, zeros, indices])?[0];
                Ok(vec![Some(lhs), Some(rhs), None])
            }))
            .kernel(kernel(|call| {
                let (x, out) = (&call.inputs[1], &call.outputs[0]);
                copy_view(&call.inputs[0], out);
                for_coordinates(out.shape(), &call.inputs[2], |at, k, n| {
                    copy_run(x, k * n, out, at, n)
                })
            })),
    ]
}

pub fn operators() -> Vec<OpDef> {
    let mut all = take();
    all.extend(pick());
    all.extend([batch_take(), batch_take_backward(), one_hot()]);
    all.extend(gather_scatter());
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[3, 4], 1);
        let at = |dims: &[i64], v: &[f64]| Tensor::of(dims, v);
        for axis in ["0", "1"] {
            check_gradient(
                "take",
                &[("axis", axis)],
                &[x.clone(), at(&[2, 2], &[0., 2., 2., 9.])],
                &[0],
                true,
            );
        }
        check_gradient("pick", &[], &[x.clone(), at(&[3], &[0., 3., 1.])], &[0], true);
        check_gradient(
            "pick",
            &[("axis", "0"), ("keepdims", "1")],
            &[x.clone(), at(&[4], &[0., 2., 1., 1.])],
            &[0],
            true,
        );
        check_gradient("batch_take", &[], &[x.clone(), at(&[3], &[0., 3., 1.])], &[0], true);
        check_gradient(
            "gather_nd",
            &[],
            &[x.clone(), at(&[2, 3], &[0., 0., 2., 1., 1., -1.])],
            &[0],
            true,
        );
        check_gradient(
            "scatter_nd",
            &[("shape", "(5,)")],
            &[at(&[2], &[1., 2.]), at(&[1, 2], &[3., 0.])],
            &[0],
            true,
        );
    }

    #[test]
    fn facts() {
        let x = Tensor::of(&[3], &[1., 2., 3.]);
        let i = Tensor::of(&[3], &[-1., 1., 4.]);
        assert_eq!(values("take", &[], &[x.clone(), i.clone()]), [1., 2., 3.]);
        assert_eq!(values("take", &[("mode", "wrap")], &[x.clone(), i.clone()]), [3., 2., 2.]);
        let fail =
            run("take", &[("mode", "raise")], &[x, i.clone()], false).map(|_| ()).unwrap_err();
        assert!(fail.to_string().contains("take operator contains indices out of bound"));
        assert_eq!(values("one_hot", &[("depth", "2")], &[i]), [0., 0., 0., 1., 0., 0.]);
    }
}
