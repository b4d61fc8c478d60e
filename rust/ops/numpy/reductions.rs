//! Reductions: over all axes to shape `()`.

use super::{in_scratch, kernel, only, only_floats, original, shaped_by, text};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::copy::copy;
use crate::kernels::reduce::{Reduction, reduce};
use crate::operator::{
    Attrs, Body, Call, Gradient, Mapped, OpDef, ParamType, Registry, Tuple, Value,
};
use crate::ops::tensor::reduce::{ReduceParam, arg_axis, axes};
use crate::params;
use crate::shape::Shape;
use std::sync::Arc;

params! {
    /// Parameters of sums and their kin.
    pub struct SumParam {
        axis: Option<Tuple>, default(None), "Axes to reduce; None is all of them.";
        dtype: Option<DType>, default(None), "The dtype of the output, which has to be that of the \
                                              input.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
        initial: Option<f64>, default(None), "Accepted as None only.";
    }
}

params! {
    /// Parameters of `_np_max` and `_np_min`.
    pub struct ExtremeParam {
        axis: Option<Tuple>, default(None), "Axes to reduce; None is all of them.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
        initial: Option<f64>, default(None), "Accepted as None only.";
    }
}

params! {
    /// Parameters of `_np_all` and `_np_any`.
    pub struct TruthParam {
        axis: Option<Tuple>, default(None), "Axes to reduce; None is all of them.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
    }
}

/// The parameters of an older reduction.
fn reduced(axis: &Option<Tuple>, keepdims: bool, initial: Option<f64>) -> Result<Mapped> {
    if axis.as_ref().is_some_and(|axes| axes.is_empty()) {
        return Err(Error::invalid("axis", "()", "None, or at least one axis"));
    }
    if let Some(initial) = initial {
        return Err(Error::invalid("initial", initial, "None"));
    }
    Ok(vec![("axis", axis.to_value()), ("keepdims", Value::Bool(keepdims))])
}

fn rule(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let (flags, keeps) = (axes(attrs).flags(from)?, attrs.get::<ReduceParam>().keepdims);
    let extents = from.dims().iter().zip(flags);
    Ok(extents
        .filter_map(|(&d, gone)| (!gone || keeps).then_some(if gone { 1 } else { d }))
        .collect())
}

/// Refuses a `dtype` that is not the input's.
fn of_own_dtype(def: OpDef) -> OpDef {
    let infer = def.infer_type.clone();
    def.infer_type(move |attrs, inputs, outputs| {
        if let (Some(Value::Str(wanted)), Some(own)) = (attrs.value("dtype"), inputs[0])
            && wanted != own.name()
        {
            return Err(Error::invalid("dtype", wanted, format!("None or {own}, the data's")));
        }
        infer.as_ref().map_or(Ok(true), |infer| infer(attrs, inputs, outputs))
    })
}

const INPUT: &[(&str, &str)] = &[("a", "The array.")];

fn sums(registry: &Registry) -> Vec<OpDef> {
    let rows = [
        ("_np_sum", "sum", &[][..], "sum", "10.0"),
        ("_np_prod", "prod", &["_np_product"][..], "product", "24.0"),
        ("_npi_mean", "mean", &[][..], "arithmetic mean", "2.5"),
    ];
    let sums = rows.map(|(name, from, aliases, what, shown)| {
        let notes =
            "Without axes all are reduced, to shape ``()``. The dtype is that of the input.";
        let example = format!("{name}(nd.array([[1, 2], [3, 4]])).asscalar().item()\n{shown}");
        let def = original(registry, from)
            .renamed(name)
            .aliases(aliases)
            .inputs_are(INPUT)
            .taking(|p: &SumParam| reduced(&p.axis, p.keepdims, p.initial))
            .doc(&text(&format!("The {what} over the given axes."), notes, &example));
        let def = of_own_dtype(shaped_by(def, rule));
        match name {
            "_npi_mean" => only_floats(def),
            _ => only(def, |dtype| dtype != DType::Bool, "a number, not bool"),
        }
    });
    sums.into()
}

fn extremes(registry: &Registry) -> Vec<OpDef> {
    let rows = [
        ("_np_max", "max", "_np_amax", "greatest", "4.0"),
        ("_np_min", "min", "_np_amin", "least", "1.0"),
    ];
    let extremes = rows.map(|(name, from, alias, what, shown)| {
        let notes = "Without axes all are reduced, to shape ``()``. The dtype is that of the \
                     input; each of several equal elements gets the whole gradient.";
        let example = format!("{name}(nd.array([[1, 2], [3, 4]])).asscalar().item()\n{shown}");
        let def = original(registry, from)
            .renamed(name)
            .aliases(&[alias])
            .inputs_are(INPUT)
            .taking(|p: &ExtremeParam| reduced(&p.axis, p.keepdims, p.initial))
            .doc(&text(&format!("The {what} element over the given axes."), notes, &example));
        shaped_by(def, rule)
    });
    extremes.into()
}

/// Whether all or any elements are not 0.
fn truths(call: &Call<'_>, how: Reduction) -> Result<()> {
    let (x, out) = (&call.inputs[0], &call.outputs[0]);
    let flags = axes(call.attrs).flags(x.shape())?;
    in_scratch(x, DType::Bool, |truth| {
        copy(x, truth);
        in_scratch(x, DType::I64, |whole| {
            copy(truth, whole);
            in_scratch(out, DType::I64, |counted| {
                reduce(how, whole, &flags, counted);
                copy(counted, out);
            });
        });
    });
    Ok(())
}

fn tests(registry: &Registry) -> Vec<OpDef> {
    let rows = [
        ("_np_all", Reduction::Product, &[][..], "all elements are", "False"),
        ("_np_any", Reduction::Sum, &["_np_sometrue"][..], "any element is", "True"),
    ];
    let tests = rows.map(|(name, how, aliases, what, shown)| {
        let notes = "Any dtype; the output is bool. Without axes all are reduced, to shape ``()``.";
        let example = format!("{name}(nd.array([1, 0])).asscalar().item()\n{shown}");
        let def = original(registry, "sum")
            .renamed(name)
            .aliases(aliases)
            .taking(|p: &TruthParam| reduced(&p.axis, p.keepdims, None))
            .doc(&text(&format!("Whether {what} not 0, over the given axes."), notes, &example))
            .gradient(Gradient::Zero)
            .infer_type(|_, inputs, outputs| {
                outputs[0] = Some(DType::Bool);
                Ok(inputs[0].is_some())
            });
        let mut def = shaped_by(def, rule);
        def.kernels = vec![Arc::new(kernel(move |call| truths(call, how)))];
        def
    });
    tests.into()
}

fn position_rule(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let (axis, keeps) = arg_axis(attrs);
    let gone = axis.map(|axis| from.axis(axis)).transpose()?;
    let extents = from.dims().iter().enumerate();
    Ok(extents
        .filter_map(|(i, &d)| match gone.is_none_or(|axis| axis == i) {
            true => keeps.then_some(1),
            false => Some(d),
        })
        .collect())
}

fn positions(registry: &Registry) -> Vec<OpDef> {
    let rows = [("_npi_argmax", "argmax", "greatest", 1), ("_npi_argmin", "argmin", "least", 0)];
    let positions = rows.map(|(name, from, what, shown)| {
        let notes = "The output is int64, of equal elements the first. Without an axis the array \
                     counts as one row.";
        let example = format!("{name}(nd.array([1, 3, 2])).asscalar().item()\n{shown}");
        let def = original(registry, from)
            .renamed(name)
            .doc(&text(
                &format!("The position of the {what} element along an axis."),
                notes,
                &example,
            ))
            .infer_type(|_, inputs, outputs| {
                outputs[0] = Some(DType::I64);
                Ok(inputs[0].is_some())
            });
        let mut def = shaped_by(def, position_rule);
        def.kernels.retain(|kernel| matches!(kernel.body, Body::Native(_))); // others give float32
        def
    });
    positions.into()
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    [sums(registry), extremes(registry), tests(registry), positions(registry)].concat()
}
