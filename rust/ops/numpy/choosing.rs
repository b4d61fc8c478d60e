//! `where` with broadcasting, and with numbers in place of arrays.

use super::{kernel, spread, text};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::broadcast::broadcast_shape;
use crate::operator::infer::{assign_shape, assign_type, one_type};
use crate::operator::{
    Attrs, Call, GradBuilder, GradNode, Gradient, Gradients, OpDef, Registry, Value,
};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_dtype;

params! {
    /// Parameters of `_npi_where_lscalar` and `_npi_where_rscalar`.
    pub struct ScalarParam {
        scalar: f64, default(0.0), "The number.";
    }
}

params! {
    /// Parameters of `_npi_where_scalar2`.
    pub struct ScalarsParam {
        x: f64, default(0.0), "The number where the condition is true.";
        y: f64, default(0.0), "The number elsewhere.";
    }
}

/// What is chosen on one side.
enum Side<'a> {
    Array(&'a View),
    Number(f64),
}

fn choose(condition: &View, x: &Side<'_>, y: &Side<'_>, out: &View) {
    let shape = out.shape();
    let mut truth = vec![false; out.size()];
    // SAFETY: the vector has a byte for each element of the output.
    let flags = unsafe { View::new(truth.as_mut_ptr().cast(), shape.clone(), DType::Bool) };
    spread(condition, &flags);
    let fill = |side: &Side<'_>, to: &View| match side {
        Side::Array(view) => spread(view, to),
        Side::Number(number) => crate::kernels::copy::fill(to, *number),
    };
    fill(y, out);
    super::in_scratch(out, out.dtype(), |chosen| {
        fill(x, chosen);
        with_dtype!(out.dtype(), T => {
            // SAFETY: both hold the shape's elements, and the scratch is apart.
            let (from, to) = unsafe { (chosen.slice::<T>(), out.slice_mut::<T>()) };
            for ((to, from), &flag) in to.iter_mut().zip(from).zip(&truth) {
                if flag {
                    *to = *from;
                }
            }
        });
    });
}

fn infer_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let mut common = inputs[0].clone();
    for s in &inputs[1..] {
        common = broadcast_shape(&common, s)?;
    }
    assign_shape(&mut outputs[0], "output", &common)?;
    Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
}

fn infer_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let (condition, arrays) = inputs.split_at_mut(1);
    let known = one_type(&mut [("array", arrays), ("output", outputs)])?;
    if let Some(dtype) = outputs[0] {
        condition[0].get_or_insert(dtype);
    }
    Ok(known && condition[0].is_some())
}

/// The gradient of one side: what arrives where it was chosen, summed over what broadcasting
/// repeated.
fn side_gradient(
    builder: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    (input, chosen): (usize, bool),
) -> Result<crate::operator::GradEntry> {
    let g = node.out_grad(builder, 0)?;
    let zero = [("scalar", Value::Float(0.0))];
    let name = if chosen { "_npi_where_rscalar" } else { "_npi_where_lscalar" };
    let part = builder.op(name, "", &zero, &[node.inputs[0], g])?[0];
    Ok(builder.op("_sum_like", "", &[], &[part, node.inputs[input]])?[0])
}

/// The gradient for inputs that are the sides given: input number, and whether it is chosen where
/// the condition is true.
fn gradient(sides: &'static [(usize, bool)]) -> Gradient {
    Gradient::rule(move |builder: &mut dyn GradBuilder, node: &GradNode<'_>| -> Result<Gradients> {
        let mut grads = vec![None; node.inputs.len()];
        for &side in sides {
            if node.needed[side.0] {
                grads[side.0] = Some(side_gradient(builder, node, side)?);
            }
        }
        Ok(grads)
    })
}

const NOTES: &str = "Shapes are broadcast. The condition has any dtype and gets no gradient; \
                     arrays have one dtype.";
const CONDITION: (&str, &str) = ("condition", "What to choose.");

fn arrays() -> OpDef {
    let example = "_npi_where(nd.array([1, 0]), nd.array([1, 2]), nd.array([3]))\n[1. 3.]";
    OpDef::plain("_npi_where")
        .doc(&text(
            "The elements of x where the condition is not 0, else those of y.",
            NOTES,
            example,
        ))
        .inputs_are(&[CONDITION, ("x", "Where it is not 0."), ("y", "Where it is 0.")])
        .infer_shape(infer_shape)
        .infer_type(infer_type)
        .gradient(gradient(&[(1, true), (2, false)]))
        .kernel(kernel(|call: &Call<'_>| {
            let [condition, x, y] = [0, 1, 2].map(|i| &call.inputs[i]);
            choose(condition, &Side::Array(x), &Side::Array(y), &call.outputs[0]);
            Ok(())
        }))
}

/// `left`: the number stands on the left, for what is chosen where the condition is true.
fn with_number(name: &str, left: bool) -> OpDef {
    let (what, array, shown) = match left {
        true => {
            ("The number where the condition is not 0, else the elements of x.", "x", "[9. 2.]")
        }
        false => {
            ("The elements of y where the condition is not 0, else the number.", "y", "[1. 9.]")
        }
    };
    let example = format!("{name}(nd.array([1, 0]), nd.array([1, 2]), scalar=9)\n{shown}");
    OpDef::new::<ScalarParam>(name)
        .doc(&text(what, NOTES, &example))
        .inputs_are(&[CONDITION, (array, "The array.")])
        .infer_shape(infer_shape)
        .infer_type(infer_type)
        .gradient(gradient(if left { &[(1, false)] } else { &[(1, true)] }))
        .kernel(kernel(move |call: &Call<'_>| {
            let (array, number) = (
                Side::Array(&call.inputs[1]),
                Side::Number(call.attrs.get::<ScalarParam>().scalar),
            );
            let (x, y) = if left { (number, array) } else { (array, number) };
            choose(&call.inputs[0], &x, &y, &call.outputs[0]);
            Ok(())
        }))
}

fn numbers() -> OpDef {
    let example = "_npi_where_scalar2(nd.array([1, 0]), x=3, y=4)\n[3. 4.]";
    OpDef::new::<ScalarsParam>("_npi_where_scalar2")
        .doc(&text(
            "One number where the condition is not 0, else another.",
            "The output is float32; the condition has any dtype.",
            example,
        ))
        .inputs_are(&[CONDITION])
        .infer_shape(infer_shape)
        .infer_type(|_, inputs, outputs| {
            assign_type(&mut outputs[0], "output", DType::F32)?;
            Ok(inputs[0].is_some())
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(|call: &Call<'_>| {
            let p = call.attrs.get::<ScalarsParam>();
            choose(&call.inputs[0], &Side::Number(p.x), &Side::Number(p.y), &call.outputs[0]);
            Ok(())
        }))
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let left = with_number("_npi_where_lscalar", true);
    vec![arrays(), left, with_number("_npi_where_rscalar", false), numbers()]
}
