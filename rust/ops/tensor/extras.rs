//! Smaller operators: `hard_sigmoid`, the quadratic of the tutorials, gradient scaling,
//! `_split_v2`, `_slice_assign_scalar`, `reshape_like`, `_contrib_arange_like`.

use super::common::{all_known, copy_view, elementwise, wanted, write_f64, zero_view};
use super::creation::ArangeLikeParam;
use super::kernel;
use super::moves::Move;
use super::parts::{SliceParam, copy_views, moving, pieces, region_ranges, shaped_like, taken};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::map::map as map_elements;
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, Tuple};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_dtype};

params! {
    /// Parameters of `hard_sigmoid`.
    pub struct HardSigmoidParam {
        alpha: f32, default(0.2), "Slope.";
        beta: f32, default(0.5), "Value at 0.";
    }
}

params! {
    /// Parameters of `_contrib_quadratic`.
    pub struct QuadraticParam {
        a: f32, default(0.0), "Coefficient of the square.";
        b: f32, default(0.0), "Coefficient of the linear term.";
        c: f32, default(0.0), "Constant term.";
    }
}

params! {
    /// Parameters of `_contrib_gradientmultiplier`.
    pub struct MultiplierParam {
        scalar: f64, default(1.0), "Factor of the gradient.";
        is_int: bool, default(true), "Was the scalar written as an integer? Accepted, without \
                                      effect.";
    }
}

params! {
    /// Parameters of `_split_v2`.
    pub struct SplitV2Param {
        indices: Tuple, required, "First index of each piece (the first one 0), if sections is 0.";
        axis: i32, default(1), "The axis that is cut.";
        squeeze_axis: bool, default(false), "Remove the axis, which must have extent 1 in each \
                                             piece.";
        sections: i32, default(0).le(65535.0), "Number of equal pieces; 0 cuts at indices.";
    }
}

params! {
    /// Parameters of `reshape_like`.
    pub struct ReshapeLikeParam {
        lhs_begin: Option<i32>, default(None), "First axis of lhs that is replaced.";
        lhs_end: Option<i32>, default(None), "Axis of lhs behind the last that is replaced.";
        rhs_begin: Option<i32>, default(None), "First axis of rhs that is taken.";
        rhs_end: Option<i32>, default(None), "Axis of rhs behind the last that is taken.";
    }
}

fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n>>> {example}\n")
}

const DATA: [(&str, &str); 1] = [("data", "The input array.")];

const GRAD_AND_DATA: [(&str, &str); 2] = [("out_grad", "Gradient of the output."), DATA[0]];

/// `out = f(x)`, calculated in f64.
fn map(call: &Call<'_>, f: impl Fn(f64) -> f64 + Send + Sync) -> Result<()> {
    let (x, out) = (&call.inputs[0], &call.outputs[0]);
    with_dtype!(out.dtype(), T => {
        let f = |[x]: [T; 1]| <T as Element>::from_f64(f(Element::to_f64(x)));
        // SAFETY: both views have the output's size; in place is declared.
        unsafe { map_elements([x.as_ptr::<T>().cast_const()], out.as_ptr::<T>(), out.size(), f) };
    });
    Ok(())
}

/// `out = g * slope(x)`, calculated in f64.
fn map_backward(call: &Call<'_>, slope: impl Fn(f64) -> f64 + Send + Sync) -> Result<()> {
    let ([g, x], out) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
    with_dtype!(out.dtype(), T => {
        let f = |[g, x]: [T; 2]| <T as Element>::from_f64(Element::to_f64(g) * slope(Element::to_f64(x)));
        let operands = [g, x].map(|v| v.as_ptr::<T>().cast_const());
        // SAFETY: all views have the output's size.
        unsafe { map_elements(operands, out.as_ptr::<T>(), out.size(), f) };
    });
    Ok(())
}

/// The gradients of curves read the output gradient and the input.
fn grad_and_data(_: &Attrs, _: usize, _: usize) -> Vec<Dep> {
    vec![Dep::OutGrad(0), Dep::Input(0)]
}

fn hard_sigmoid() -> [OpDef; 2] {
    let hard = |p: &HardSigmoidParam| (f64::from(p.alpha), f64::from(p.beta));
    let forward = elementwise(OpDef::new::<HardSigmoidParam>("hard_sigmoid"))
        .doc(&text(
            "``max(0, min(1, alpha * x + beta))``.",
            "Any shape and dtype. The gradient is zero at and outside of the ends.",
            "nd.hard_sigmoid(nd.array([-5, 0, 5]))\n[0.  0.5 1. ]",
        ))
        .inputs_are(&DATA)
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::declared("_backward_hard_sigmoid", grad_and_data))
        .kernel(kernel(move |call| {
            let (a, b) = hard(call.attrs.get());
            map(call, |x| {
                let y = a * x + b;
                y.clamp(0.0, 1.0)
            })
        }));
    let backward = elementwise(OpDef::new::<HardSigmoidParam>("_backward_hard_sigmoid"))
        .inputs_are(&GRAD_AND_DATA)
        .kernel(kernel(move |call| {
            let (a, b) = hard(call.attrs.get());
            map_backward(call, |x| if a * x + b > 0.0 && a * x + b < 1.0 { a } else { 0.0 })
        }));
    [forward, backward]
}

fn quadratic() -> [OpDef; 2] {
    let quad = |p: &QuadraticParam| (f64::from(p.a), f64::from(p.b), f64::from(p.c));
    let forward = elementwise(OpDef::new::<QuadraticParam>("_contrib_quadratic"))
        .doc(&text(
            "``a * x * x + b * x + c``.",
            "Any shape and dtype.",
            "nd.contrib.quadratic(nd.array([1, 2]), a=1, b=2, c=3)\n[6. 11.]",
        ))
        .inputs_are(&DATA)
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::declared("_backward_contrib_quadratic", grad_and_data))
        .kernel(kernel(move |call| {
            let (a, b, c) = quad(call.attrs.get());
            map(call, |x| (a * x + b) * x + c)
        }));
    let backward = elementwise(OpDef::new::<QuadraticParam>("_backward_contrib_quadratic"))
        .inputs_are(&GRAD_AND_DATA)
        .kernel(kernel(move |call| {
            let (a, b, _) = quad(call.attrs.get());
            map_backward(call, |x| 2.0 * a * x + b)
        }));
    [forward, backward]
}

fn gradient_multiplier() -> OpDef {
    elementwise(OpDef::new::<MultiplierParam>("_contrib_gradientmultiplier"))
        .doc(&text(
            "Identity whose gradient is multiplied by ``scalar`` (-1 reverses it).",
            "Any shape and dtype.",
            "nd.contrib.gradientmultiplier(nd.array([1, 2]), scalar=-1)\n[1. 2.]",
        ))
        .inputs_are(&DATA)
        .inplace(&[InplacePair::identity(0, 0)])
        .gradient(Gradient::rule_reading(&[], |builder, node| {
            let grad = node.out_grad(builder, 0)?;
            let scalar = node.attrs.get::<MultiplierParam>().scalar;
            Ok(vec![Some(builder.op("_mul_scalar", "", &[("scalar", scalar.into())], &[grad])?[0])])
        }))
        .kernel(kernel(|call| {
            copy_view(&call.inputs[0], &call.outputs[0]);
            Ok(())
        }))
}

fn div_sqrt_dim() -> OpDef {
    elementwise(OpDef::plain("_contrib_div_sqrt_dim"))
        .doc(&text(
            "The input divided by the square root of its last extent.",
            "Any dtype, at least one axis.",
            "nd.contrib.div_sqrt_dim(nd.ones((1, 4)))\n[[0.5 0.5 0.5 0.5]]",
        ))
        .inputs_are(&DATA)
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::rule_reading(&[], |builder, node| {
            let grad = node.out_grad(builder, 0)?;
            Ok(vec![Some(builder.op("_contrib_div_sqrt_dim", "", &[], &[grad])?[0])])
        }))
        .kernel(kernel(|call| {
            let last = call.inputs[0].dims().last().copied().unwrap_or(1) as f64;
            map(call, |x| x / last.sqrt())
        }))
}

/// The axis and the extents of the pieces along it.
fn cut(p: &SplitV2Param, shape: &Shape) -> Result<(usize, Vec<i64>)> {
    let axis = shape.axis(p.axis.into())?;
    let extent = shape.dims()[axis];
    if p.sections > 0 {
        let n = i64::from(p.sections);
        return match extent % n {
            0 => Ok((axis, vec![extent / n; n as usize])),
            _ => Err(Error::value(format!(
                "axis {axis} of shape {shape} cannot be cut into {n} equal pieces: expected a \
                 divisor of {extent}"
            ))),
        };
    }
    let ends = p.indices.iter().skip(1).chain([&extent]);
    let widths: Vec<i64> = p.indices.iter().zip(ends).map(|(s, e)| e.saturating_sub(*s)).collect();
    if widths.iter().any(|&w| w < 0) || p.indices.first() != Some(&0) {
        return Err(Error::value(format!(
            "invalid indices {:?}: expected them to rise from 0 within axis {axis} of shape {shape}",
            p.indices
        )));
    }
    Ok((axis, widths))
}

/// The pieces have the extents of the whole along all axes but the one that is cut.
fn learn_from_pieces(p: &SplitV2Param, whole: &mut Shape, pieces: &[Shape]) -> Result<()> {
    let axis = whole.axis(p.axis.into())?;
    for piece in pieces.iter().filter(|s| s.rank_known()) {
        let mut learnt = piece.clone();
        if p.squeeze_axis && piece.ndim() + 1 == whole.ndim() {
            learnt.dims_mut().insert(axis, -1);
        } else if !p.squeeze_axis && piece.ndim() == whole.ndim() {
            learnt.dims_mut()[axis] = -1;
        } else {
            continue;
        }
        assign_shape(whole, "data", &learnt)?;
    }
    Ok(())
}

fn split_v2() -> Vec<OpDef> {
    let count =
        |p: &SplitV2Param| if p.sections > 0 { p.sections as usize } else { p.indices.len() };
    let doc = text(
        "Cuts an axis at indices, or into equal sections.",
        "Any shape and dtype. Indices that do not rise or lie beyond the extent, and an extent \
         that does not divide, are an error.",
        "nd.split_v2(nd.array([[1, 2, 3]]), (1,), axis=1)[1]\n[[2. 3.]]",
    );
    vec![
        OpDef::new::<SplitV2Param>("_split_v2")
            .aliases(&["_npi_split"])
            .doc(&doc)
            .inputs_are(&DATA)
            .output_names_by(move |attrs| match count(attrs.get()) {
                1 => vec!["output".into()],
                n => (0..n).map(|i| format!("output{i}")).collect(),
            })
            .infer_shape(|attrs, inputs, outputs| {
                let p: &SplitV2Param = attrs.get();
                if !inputs[0].rank_known() {
                    return Ok(false);
                }
                learn_from_pieces(p, &mut inputs[0], outputs)?;
                if inputs[0].dims()[inputs[0].axis(p.axis.into())?] < 0 {
                    return Ok(false);
                }
                let (axis, widths) = cut(p, &inputs[0])?;
                for (out, &width) in outputs.iter_mut().zip(&widths) {
                    let mut piece = inputs[0].clone();
                    piece.dims_mut()[axis] = width;
                    if p.squeeze_axis {
                        if width != 1 {
                            return Err(Error::value(format!(
                                "cannot squeeze axis {axis} of a piece of shape {piece}: \
                                 expected extent 1"
                            )));
                        }
                        piece.dims_mut().remove(axis);
                    }
                    assign_shape(out, "output", &super::common::at_least_1d(piece))?;
                }
                Ok(all_known(inputs, outputs))
            })
            .infer_type(same_type)
            .gradient(Gradient::use_none("_backward_split_v2"))
            .kernels(moving("data", |call| {
                let whole = &call.inputs[0];
                let (axis, widths) = cut(call.attrs.get(), whole.shape())?;
                let parts = pieces(whole, axis, widths.into_iter()).into_iter().enumerate();
                let part = |(output, from): (usize, View)| Move {
                    to: shaped_like(&call.outputs[output], &from),
                    from,
                    output,
                };
                Ok(parts.map(part).collect())
            })),
        OpDef::new::<SplitV2Param>("_backward_split_v2").kernels(moving("output", |call| {
            let whole = &call.outputs[0];
            let (axis, widths) = cut(call.attrs.get(), whole.shape())?;
            let parts = pieces(whole, axis, widths.into_iter()).into_iter().zip(call.inputs);
            let part = |(to, g): (View, &View)| Move { from: shaped_like(g, &to), to, output: 0 };
            Ok(parts.map(part).collect())
        })),
    ]
}

params! {
    /// Parameters of `_slice_assign_scalar`.
    pub struct SliceScalarParam {
        scalar: f64, default(0.0), "The new value.";
        begin: Vec<Option<i64>>, required, "First index along each axis; None begins at the start.";
        end: Vec<Option<i64>>, required, "Index after the last along each axis; None goes to the \
                                          end.";
        step: Vec<Option<i64>>, default(Vec::new()), "Distance of the indices; may be negative, \
                                                      not 0.";
    }
}

fn slice_assign_scalar() -> OpDef {
    OpDef::new::<SliceScalarParam>("_slice_assign_scalar")
        .aliases(&["_crop_assign_scalar", "_npi_slice_assign_scalar"])
        .doc(&text(
            "The data with the region that ``slice`` would take set to a scalar.",
            "Any shape and dtype.",
            "nd._internal._slice_assign_scalar(nd.ones((4,)), scalar=2, begin=(1,), end=(3,))\n[1. \
             2. 2. 1.]",
        ))
        .inputs_are(&DATA)
        .infer_shape(crate::operator::infer::elementwise_shape)
        .infer_type(same_type)
        .inplace(&[InplacePair::new(0, 0)])
        .kernel(kernel(|call| {
            let (p, out) = (call.attrs.get::<SliceScalarParam>(), &call.outputs[0]);
            copy_view(&call.inputs[0], out);
            let region =
                SliceParam { begin: p.begin.clone(), end: p.end.clone(), step: p.step.clone() };
            let target = taken(out, &region_ranges(&region, out.shape())?);
            let mut room = 0u64;
            let at = std::ptr::from_mut(&mut room).cast::<u8>();
            let strides = target.dims().iter().map(|_| 0).collect();
            // SAFETY: one element of room, read again and again; it lives to the end of the call.
            let value = unsafe {
                write_f64(at, out.dtype(), 0, p.scalar);
                View::with_strides(at, target.shape().clone(), strides, out.dtype())
            };
            copy_views(&value, &target);
            Ok(())
        }))
}

fn like(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &ReshapeLikeParam = attrs.get();
    if !inputs[0].is_known() || !inputs[1].is_known() {
        return Ok(false);
    }
    let range =
        |begin: Option<i32>, end: Option<i32>, s: &Shape| -> Result<std::ops::Range<usize>> {
            let n = s.ndim() as i64;
            let at = |v: i32| if v < 0 { i64::from(v) + n } else { i64::from(v) };
            let (b, e) = (begin.map_or(0, at), end.map_or(n, at));
            if b < 0 || b > e || e > n {
                return Err(Error::value(format!(
                    "invalid axes {b} to {e}: expected axes of shape {s}"
                )));
            }
            Ok(b as usize..e as usize)
        };
    let (l, r) =
        (range(p.lhs_begin, p.lhs_end, &inputs[0])?, range(p.rhs_begin, p.rhs_end, &inputs[1])?);
    let (a, b) = (inputs[0].dims(), inputs[1].dims());
    let out: Shape = a[..l.start].iter().chain(&b[r]).chain(&a[l.end..]).copied().collect();
    if out.size() != inputs[0].size() {
        return Err(Error::value(format!(
            "cannot reshape lhs of shape {} like shape {out}: expected as many elements",
            inputs[0]
        )));
    }
    assign_shape(&mut outputs[0], "output", &out)?;
    Ok(all_known(inputs, outputs))
}

fn reshape_like() -> Vec<OpDef> {
    let doc = text(
        "``lhs`` in the shape of ``rhs``, or with some of its axes replaced by some of those of \
         ``rhs``.",
        "Any dtype. Only the shape of ``rhs`` matters; it gets a zero gradient. Another number of \
         elements is an error.",
        "nd.reshape_like(nd.ones((2, 3)), nd.ones((3, 2))).shape\n(3, 2)",
    );
    vec![
        OpDef::new::<ReshapeLikeParam>("reshape_like")
            .aliases(&["_npx_reshape_like"])
            .doc(&doc)
            .inputs_are(&[("lhs", "The data."), ("rhs", "Gives the shape.")])
            .ignores(&[1])
            .infer_shape(like)
            .infer_type(super::common::first_type)
            .inplace(&[InplacePair::identity(0, 0)])
            .gradient(Gradient::use_none("_backward_reshape_like"))
            .kernel(kernel(|call| {
                copy_view(&call.inputs[0], &call.outputs[0]);
                Ok(())
            })),
        OpDef::plain("_backward_reshape_like").inplace(&[InplacePair::identity(0, 0)]).kernel(
            kernel(|call| {
                if wanted(call, 0) {
                    copy_view(&call.inputs[0], &call.outputs[0]);
                }
                if wanted(call, 1) {
                    zero_view(&call.outputs[1]);
                }
                Ok(())
            }),
        ),
    ]
}

fn arange_like() -> OpDef {
    OpDef::new::<ArangeLikeParam>("_contrib_arange_like")
        .aliases(&["_npx_arange_like"])
        .doc(&text(
            "Evenly spaced values in the shape of the input, or as many as one of its axes has.",
            "The dtype is the input's; the gradient is zero.",
            "nd.contrib.arange_like(nd.ones((2, 3)))\n[[0. 1. 2.]\n [3. 4. 5.]]",
        ))
        .inputs_are(&[("data", "Gives shape and dtype.")])
        .ignores(&[0])
        .infer_shape(|attrs, inputs, outputs| {
            if inputs[0].rank_known() {
                let data = &inputs[0];
                let out = match attrs.get::<ArangeLikeParam>().axis {
                    None => data.clone(),
                    Some(a) => Shape::new(&[data.dims()[data.axis(a.into())?]]),
                };
                assign_shape(&mut outputs[0], "output", &out)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(same_type)
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let (p, out) = (call.attrs.get::<ArangeLikeParam>(), &call.outputs[0]);
            for i in 0..out.size() {
                let value = p.start + (i / p.repeat as usize) as f64 * p.step;
                // SAFETY: `i` is an element of the output.
                unsafe { write_f64(out.ptr(), out.dtype(), i, value) };
            }
            Ok(())
        }))
}

pub fn operators() -> Vec<OpDef> {
    let mut all = [hard_sigmoid(), quadratic()].concat();
    all.extend([gradient_multiplier(), div_sqrt_dim()]);
    all.extend(split_v2());
    all.extend(reshape_like());
    all.extend([slice_assign_scalar(), arange_like()]);
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = [Tensor::noise(&[2, 6], 1)];
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("hard_sigmoid", &[("alpha", "0.5"), ("beta", "0.25")]),
            ("_contrib_quadratic", &[("a", "2"), ("b", "3"), ("c", "1")]),
            ("_contrib_div_sqrt_dim", &[]),
            ("_split_v2", &[("indices", "(0, 1, 4)")]),
            ("_split_v2", &[("indices", "(0,)"), ("sections", "3")]),
        ];
        for (op, params) in cases {
            check_gradient(op, params, &x, &[0], true);
        }
        check_gradient("reshape_like", &[], &[x[0].clone(), Tensor::noise(&[12], 2)], &[0], true);
    }

    #[test]
    fn values_are_as_documented() {
        let x = Tensor::of(&[5], &[0., 1., 2., 3., 4.]);
        let at = |op, params: &[(&str, &str)]| values(op, params, &[x.clone()]);
        let region = [("scalar", "9"), ("begin", "(1,)"), ("end", "(None,)"), ("step", "(2,)")];
        assert_eq!(at("_slice_assign_scalar", &region), [0., 9., 2., 9., 4.]);
        assert_eq!(
            at("_contrib_arange_like", &[("start", "1"), ("step", "2")]),
            [1., 3., 5., 7., 9.]
        );
        let ran =
            run("_contrib_gradientmultiplier", &[("scalar", "-2")], &[x.clone()], true).unwrap();
        assert_eq!(ran.gradients(&[x.clone()]).unwrap()[0].values(), [0., -2., -4., -6., -8.]);
    }
}
