//! Reductions over axes, and the position of the greatest or least element.

use super::common::{axis_flags, something_to_choose};
use super::kernel;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::arith::Arith;
use crate::kernels::broadcast::{broadcast_strides, broadcast_ternary};
use crate::kernels::copy::copy;
use crate::kernels::elementwise::{
    Ternary, TernaryLoop, half_ternary_loop, plain_ternary_loop, ternary_loop,
};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::reduce::{Reduction, positions, reduce};
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, Tuple};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_dtype;

params! {
    /// Parameters of reductions.
    pub struct ReduceParam {
        axis: Option<Tuple>, default(None), "Axes to reduce; None or () is all of them.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
        exclude: bool, default(false), "Reduce the axes that are not named instead.";
    }
}

params! {
    /// Parameters of `argmax` and `argmin`.
    pub struct ArgParam {
        axis: Option<i32>, default(None), "The axis; None takes the array as one row.";
        keepdims: bool, default(false), "Keep the axis with extent 1.";
    }
}

params! {
    /// Parameters of `norm`.
    pub struct NormParam {
        ord: i32, default(2).ge(1.0).le(2.0), "1: sum of absolute values; 2: root of the sum of \
                                               squares.";
        axis: Option<Tuple>, default(None), "Axes to reduce; None or () is all of them.";
        out_dtype: Option<DType>, default(None), "Dtype of the output; None is that of the input.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
    }
}

/// What the reduced axes are and whether they stay.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Axes<'a> {
    axis: &'a Option<Tuple>,
    keepdims: bool,
    exclude: bool,
}

impl Axes<'_> {
    pub(in crate::ops) fn flags(&self, of: &Shape) -> Result<Vec<bool>> {
        let named = self.axis.as_ref().filter(|a| !a.is_empty());
        let flags = match named {
            None => return Ok(vec![true; of.ndim()]),
            Some(axes) => axis_flags(axes, of)?,
        };
        Ok(flags.into_iter().map(|f| f != self.exclude).collect())
    }

    fn shape(&self, from: &Shape) -> Result<Shape> {
        let flags = self.flags(from)?;
        let dims = from.dims().iter().zip(&flags);
        if self.keepdims {
            return Ok(dims.map(|(&d, &r)| if r { 1 } else { d }).collect());
        }
        let kept: Shape = dims.filter(|d| !d.1).map(|d| *d.0).collect();
        // All axes reduced: one element in an array of one axis.
        Ok(if kept.ndim() == 0 { Shape::new(&[1]) } else { kept })
    }
}

pub(in crate::ops) fn axes(attrs: &Attrs) -> Axes<'_> {
    let p = attrs.get::<ReduceParam>();
    Axes { axis: &p.axis, keepdims: p.keepdims, exclude: p.exclude }
}

pub(in crate::ops) fn norm_axes(attrs: &Attrs) -> Axes<'_> {
    let p = attrs.get::<NormParam>();
    Axes { axis: &p.axis, keepdims: p.keepdims, exclude: false }
}

type AxesOf = fn(&Attrs) -> Axes<'_>;

/// `out` (a reduced array) seen with the reduced axes of extent 1, to be broadcast over the input.
pub(in crate::ops) fn unreduced(view: &View, flags: &[bool], dims: &[i64]) -> View {
    let shape: Shape = dims.iter().zip(flags).map(|(&d, &r)| if r { 1 } else { d }).collect();
    view.reshaped(shape)
}

macro_rules! slopes {
    ($($name:ident |$g:ident, $x:ident, $y:ident| $f:expr;)*) => {$(
        struct $name;
        impl Ternary for $name {
            #[inline(always)]
            #[allow(unused_variables)] // not every slope needs input and output
            fn apply<T: Arith>($x: T, $g: T, $y: T) -> T { $f }
        }
    )*};
}

// Of the output gradient g, the input x and the output y.
slopes! {
    Same |g, x, y| g;
    Share |g, x, y| g.mul(y.div(x));
    Extreme |g, x, y| if x == y { g } else { T::zero() };
    NotNan |g, x, y| if x.is_nan() { T::zero() } else { g };
    NotNanShare |g, x, y| if x.is_nan() { T::zero() } else { g.mul(y.div(x)) };
    Direction |g, x, y| g.mul(x.div(y));
    Sign |g, x, y| if x > T::zero() { g } else if x < T::zero() { T::zero().sub(g) } else { T::zero() };
}

fn loop_of<F: Ternary>(dtype: DType) -> TernaryLoop {
    match dtype {
        DType::F32 => ternary_loop::<f32, F>,
        DType::F64 => ternary_loop::<f64, F>,
        DType::F16 => half_ternary_loop::<F>,
        DType::U8 => plain_ternary_loop::<u8, F>,
        DType::I32 => plain_ternary_loop::<i32, F>,
        DType::I8 => plain_ternary_loop::<i8, F>,
        DType::I64 => plain_ternary_loop::<i64, F>,
        DType::Bool => plain_ternary_loop::<bool, F>,
    }
}

/// The gradient of a reduction: `slope(g, x, y)` with gradient and output repeated along the
/// reduced axes. Inputs of the backward operator: output gradient, and, unless the slope is of it
/// alone, input and output.
fn spread<F: Ternary>(inputs: &[View], out: &View, axes: Axes<'_>, mean: bool) -> Result<()> {
    let flags = axes.flags(out.shape())?;
    let g = unreduced(&inputs[0], &flags, out.dims());
    let x = inputs.get(1).unwrap_or(out);
    let y = inputs.get(2).map_or_else(|| g.clone(), |y| unreduced(y, &flags, out.dims()));
    let [sg, sy] = [&g, &y].map(|v| broadcast_strides(v.shape(), out.shape()));
    let dtype = out.dtype();
    // SAFETY: the strides are those of the views inside the input's shape; a slope of the gradient
    // alone ignores what it reads of the output's own (initialised, pooled) memory.
    unsafe {
        let (g, y) = ((g.ptr().cast_const(), &sg[..]), (y.ptr().cast_const(), &sy[..]));
        let run = loop_of::<F>(dtype);
        broadcast_ternary(run, dtype.size(), out.dims(), x.ptr(), g, y, out.ptr());
    }
    if mean {
        let count: i64 = out.dims().iter().zip(&flags).filter(|d| *d.1).map(|d| *d.0).product();
        with_dtype!(dtype, T => {
            let y = Shared(out.as_ptr::<T>());
            let n = Ord::max(count, 1) as f64;
            parallel_for(out.size(), 1 << 15, |r| for i in r {
                // SAFETY: inside of the output; tasks have elements of their own.
                unsafe { *y.at(i) = T::from_f64((*y.at(i)).to_f64() / n) };
            });
        });
    }
    Ok(())
}

fn reduction<P: crate::operator::ParamStruct>(
    name: &str,
    axes: AxesOf,
    run: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static,
    gradient: Gradient,
) -> OpDef {
    OpDef::new::<P>(name)
        .inputs_are(&[("data", "The input array.")])
        .infer_shape(move |attrs, inputs, outputs| {
            if inputs[0].rank_known() {
                let shape = axes(attrs).shape(&inputs[0])?;
                assign_shape(&mut outputs[0], "output", &shape)?;
            }
            Ok(inputs[0].is_known() && outputs[0].is_known())
        })
        .infer_type(same_type)
        .gradient(gradient)
        .kernel(kernel(run))
}

/// A reduction in the dtype of its input.
fn plain(how: Reduction) -> impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static {
    move |call| {
        let (x, out) = (&call.inputs[0], &call.outputs[0]);
        let flags = axes(call.attrs).flags(x.shape())?;
        if matches!(how, Reduction::Max | Reduction::Min) && out.size() > 0 {
            something_to_choose(x, x.size())?;
        }
        reduce(how, x, &flags, out);
        Ok(())
    }
}

fn backward<P: crate::operator::ParamStruct>(
    name: &str,
    f: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static,
) -> OpDef {
    OpDef::new::<P>(name)
        .inputs_are(&[
            ("ograd", "Output gradient."),
            ("data", "The input."),
            ("output", "The output."),
        ])
        .kernel(kernel(f))
}

fn doc(what: &str, name: &str, shown: &str, remark: &str) -> String {
    format!(
        "Returns the {what} over the given axes.\n\nNegative axes count from the end; without axes \
         all are reduced and the result has shape (1,). The dtype is that of the input, in which \
         integers wrap or are truncated. {remark} An axis out of range or named twice is an \
         error.\n\nExamples\n--------\n>>> nd.{name}(nd.array([[1, 2], [3, 4]]), axis=1)\n{shown}\n"
    )
}

fn all_deps(back: &str) -> Gradient {
    Gradient::declared(back, |_, _, _| vec![Dep::OutGrad(0), Dep::Input(0), Dep::Output(0)])
}

fn plain_reductions() -> Vec<OpDef> {
    type P = ReduceParam;
    let both = "_backward_reduce_max";
    vec![
        reduction::<P>("sum", axes, plain(Reduction::Sum), Gradient::use_none("_backward_sum"))
            .aliases(&["sum_axis", "_sparse_sum"])
            .doc(&doc("sum", "sum", "[3. 7.]", "")),
        reduction::<P>("mean", axes, plain(Reduction::Mean), Gradient::use_none("_backward_mean"))
            .aliases(&["_sparse_mean"])
            .doc(&doc("arithmetic mean", "mean", "[1.5 3.5]", "Means of integers do not wrap.")),
        reduction::<P>("prod", axes, plain(Reduction::Product), all_deps("_backward_prod")).doc(
            &doc(
                "product",
                "prod",
                "[ 2. 12.]",
                "The gradient is output / input, NaN where the input is 0.",
            ),
        ),
        reduction::<P>("nansum", axes, plain(Reduction::NanSum), all_deps("_backward_nansum"))
            .doc(&doc("sum, with NaN as 0,", "nansum", "[3. 7.]", "")),
        reduction::<P>(
            "nanprod",
            axes,
            plain(Reduction::NanProduct),
            all_deps("_backward_nanprod"),
        )
        .doc(&doc("product, with NaN as 1,", "nanprod", "[ 2. 12.]", "")),
        reduction::<P>("max", axes, plain(Reduction::Max), all_deps(both))
            .aliases(&["max_axis"])
            .doc(&doc(
                "greatest element",
                "max",
                "[2. 4.]",
                "Each of several equal ones gets the whole gradient.",
            )),
        reduction::<P>("min", axes, plain(Reduction::Min), all_deps(both))
            .aliases(&["min_axis"])
            .doc(&doc(
                "least element",
                "min",
                "[1. 3.]",
                "Each of several equal ones gets the whole gradient.",
            )),
        backward::<P>("_backward_sum", |c| {
            spread::<Same>(c.inputs, &c.outputs[0], axes(c.attrs), false)
        }),
        backward::<P>("_backward_mean", |c| {
            spread::<Same>(c.inputs, &c.outputs[0], axes(c.attrs), true)
        }),
        backward::<P>("_backward_prod", |c| {
            spread::<Share>(c.inputs, &c.outputs[0], axes(c.attrs), false)
        }),
        backward::<P>("_backward_nansum", |c| {
            spread::<NotNan>(c.inputs, &c.outputs[0], axes(c.attrs), false)
        }),
        backward::<P>("_backward_nanprod", |c| {
            spread::<NotNanShare>(c.inputs, &c.outputs[0], axes(c.attrs), false)
        }),
        backward::<P>(both, |c| spread::<Extreme>(c.inputs, &c.outputs[0], axes(c.attrs), false)),
    ]
}

/// The dtype that a norm is calculated in: the larger one, so that nothing is lost.
fn wider(a: DType, b: DType) -> DType {
    if b.is_float() && (!a.is_float() || b.size() > a.size()) { b } else { a }
}

/// Calls `f` with a view of the dtype: `view` itself or scratch. What `view` holds is converted to
/// that if `read`, and back after the call if not.
fn converted<R>(view: &View, dtype: DType, read: bool, f: impl FnOnce(&View) -> R) -> R {
    if view.dtype() == dtype {
        return f(view);
    }
    with_scratch::<f64, _>((view.size() * dtype.size()).div_ceil(8), |room| {
        // SAFETY: the scratch is large enough, aligned for every dtype and ours during the call.
        let wide = unsafe { View::new(room.as_mut_ptr().cast(), view.shape().clone(), dtype) };
        if read {
            copy(view, &wide);
        }
        let result = f(&wide);
        if !read {
            copy(&wide, view);
        }
        result
    })
}

fn norm(call: &Call<'_>) -> Result<()> {
    let (x, out) = (&call.inputs[0], &call.outputs[0]);
    let flags = norm_axes(call.attrs).flags(x.shape())?;
    let how = match call.attrs.get::<NormParam>().ord {
        1 => Reduction::Norm1,
        _ => Reduction::Norm2,
    };
    let dtype = wider(x.dtype(), out.dtype());
    converted(x, dtype, true, |x| converted(out, dtype, false, |out| reduce(how, x, &flags, out)));
    Ok(())
}

fn norm_backward(call: &Call<'_>) -> Result<()> {
    let ([g, x, y], out) = (call.inputs, &call.outputs[0]) else { unreachable!("three inputs") };
    let run = match call.attrs.get::<NormParam>().ord {
        1 => spread::<Sign>,
        _ => spread::<Direction>,
    };
    let dtype = wider(x.dtype(), y.dtype());
    let with_out = |ins: &[View]| {
        converted(out, dtype, false, |out| run(ins, out, norm_axes(call.attrs), false))
    };
    converted(g, dtype, true, |g| {
        converted(x, dtype, true, |x| {
            converted(y, dtype, true, |y| with_out(&[g.clone(), x.clone(), y.clone()]))
        })
    })
}

fn norm_type(
    attrs: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    match attrs.get::<NormParam>().out_dtype {
        None => same_type(attrs, inputs, outputs),
        Some(dtype) => {
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(inputs[0].is_some())
        }
    }
}

fn norms() -> [OpDef; 2] {
    let remark = "`out_dtype` gives the output another dtype; the larger of the two is calculated \
                  in. A norm overflows only where the result does. The gradient of the second is x \
                  / norm, NaN at 0.";
    let what = "norm (sum of absolute values or root of the sum of squares, by `ord`)";
    [
        reduction::<NormParam>("norm", norm_axes, norm, all_deps("_backward_norm"))
            .aliases(&["_sparse_norm"])
            .doc(&doc(what, "norm", "[2.236068 5.      ]", remark))
            .infer_type(norm_type),
        backward::<NormParam>("_backward_norm", norm_backward),
    ]
}

/// Rows along `axis` (all elements if `None`): number of rows, their extent, the distance of
/// elements.
pub(in crate::ops) fn rows(shape: &Shape, axis: Option<i64>) -> Result<(usize, usize, usize)> {
    match axis {
        None => Ok((1, shape.size(), 1)),
        Some(a) => {
            let a = shape.axis(a)?;
            let step = shape.product(a + 1..shape.ndim());
            Ok((shape.product(0..a) * step, shape.dims()[a] as usize, step))
        }
    }
}

fn arg_shape(from: &Shape, axis: Option<i64>, keepdims: bool) -> Result<Shape> {
    let Some(a) = axis else {
        let n = if keepdims { from.ndim() } else { 1 };
        return Ok((0..n).map(|_| 1i64).collect());
    };
    let (a, mut shape) = (from.axis(a)?, from.clone());
    match keepdims {
        true => shape.dims_mut()[a] = 1,
        false => drop(shape.dims_mut().remove(a)),
    }
    Ok(if shape.ndim() == 0 { Shape::new(&[1]) } else { shape })
}

/// Writes number `at` to element `r` of an output.
///
/// # Safety
/// The output has this element, and its elements are `T`.
unsafe fn put<T: Element>(to: *mut u8, r: usize, at: usize) {
    // SAFETY: promised by the caller.
    unsafe { *to.cast::<T>().add(r) = T::from_int(at as i64) };
}

/// The dtype of positions among elements of another one, which their comparisons with labels of
/// that dtype expect; float32 where not every position would fit.
fn position_type(data: DType) -> DType {
    match data {
        DType::F64 | DType::I32 | DType::I64 => data,
        _ => DType::F32,
    }
}

fn arg(call: &Call<'_>, axis: Option<i64>, greatest: bool) -> Result<()> {
    let (x, out) = (&call.inputs[0], &call.outputs[0]);
    let (count, n, step) = rows(x.shape(), axis)?;
    something_to_choose(x, n)?;
    if count == 0 {
        return Ok(());
    }
    let y = Shared(out.ptr());
    let put = with_dtype!(out.dtype(), P => put::<P> as unsafe fn(*mut u8, usize, usize));
    // SAFETY: the input has these extents, the output an element for each row.
    with_dtype!(x.dtype(), T => unsafe {
        positions(x.as_ptr::<T>(), (count / step, n, step), greatest, |r, at| put(y.ptr(), r, at));
    });
    Ok(())
}

fn position<P: crate::operator::ParamStruct>(
    name: &str,
    axis: fn(&Attrs) -> (Option<i64>, bool),
    greatest: bool,
) -> OpDef {
    let (what, shown) = if greatest { ("greatest", 1) } else { ("least", 0) };
    let given = if name == "argmax_channel" { "" } else { ", axis=1" };
    OpDef::new::<P>(name)
        .doc(&format!(
            "Returns the position of the {what} element along an axis; of equal ones the \
             first.\n\nfloat64, int32 and int64 give positions of their dtype, all others \
             float32. Without an axis the array counts as one row and the result has shape (1,). \
             Any dtype. The gradient is 0. An axis out of range or of extent 0 is an \
             error.\n\nExamples\n--------\n>>> nd.{name}(nd.array([[1, 3, 2]]){given})\n\
             [{shown}.]\n"
        ))
        .inputs_are(&[("data", "The input array.")])
        .infer_shape(move |attrs, inputs, outputs| {
            if inputs[0].is_known() {
                let (axis, keepdims) = axis(attrs);
                assign_shape(&mut outputs[0], "output", &arg_shape(&inputs[0], axis, keepdims)?)?;
            }
            Ok(inputs[0].is_known())
        })
        .infer_type(|_, inputs, outputs| {
            outputs[0] = inputs[0].map(position_type);
            Ok(inputs[0].is_some())
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(move |call| arg(call, axis(call.attrs).0, greatest)))
}

pub(in crate::ops) fn arg_axis(attrs: &Attrs) -> (Option<i64>, bool) {
    let p = attrs.get::<ArgParam>();
    (p.axis.map(i64::from), p.keepdims)
}

pub fn operators() -> Vec<OpDef> {
    let mut all = plain_reductions();
    all.extend(norms());
    all.push(position::<ArgParam>("argmax", arg_axis, true));
    all.push(position::<ArgParam>("argmin", arg_axis, false));
    all.push(position::<crate::operator::NoParam>("argmax_channel", |_| (Some(1), false), true));
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Tensor, check_gradient, values};

    #[test]
    fn gradients_match_numeric_differentiation() {
        let x = Tensor::noise(&[2, 3, 4], 4);
        for op in ["sum", "mean", "prod", "nansum", "nanprod", "max", "min", "norm"] {
            check_gradient(op, &[], &[x.clone()], &[0], true);
            check_gradient(op, &[("axis", "(0, -1)")], &[x.clone()], &[0], true);
            check_gradient(op, &[("axis", "1"), ("keepdims", "1")], &[x.clone()], &[0], true);
        }
        check_gradient("norm", &[("ord", "1")], &[x.clone()], &[0], true);
        check_gradient("sum", &[("axis", "1"), ("exclude", "1")], &[x], &[0], true);
    }

    #[test]
    fn positions_of_extremes() {
        let x = Tensor::of(&[2, 3], &[1., 3., 3., 0., -1., -1.]);
        assert_eq!(values("argmax", &[("axis", "1")], &[x.clone()]), [1., 0.]);
        assert_eq!(values("argmin", &[("axis", "0")], &[x.clone()]), [1., 1., 1.]);
        assert_eq!(values("argmax", &[], &[x]), [1.]);
    }
}
