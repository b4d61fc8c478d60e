//! Operators that make arrays: shapes are taken as they are, `()` and extents of 0 too.

use super::{kernel, original, shaped_by, text};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::copy::fill;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Gradient, OpDef, Registry, Value};
use crate::ops::tensor::common::shape_of;
use crate::ops::tensor::creation::{self, InitParam};
use crate::params;

params! {
    /// Parameters of `_npi_eye`.
    #[allow(non_snake_case)] // the operator's parameter is called so
    pub struct EyeParam {
        N: i64, required.ge(0.0), "Number of rows.";
        M: Option<i64>, default(None), "Number of columns; None means as many as rows.";
        k: i64, default(0), "The diagonal: above the main one if positive.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
    }
}

params! {
    /// Parameters of `_npi_full_like`.
    pub struct FullLikeParam {
        fill_value: f64, required, "The value of every element.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: Option<DType>, default(None), "The dtype; None is that of the input.";
    }
}

fn dtype(of: DType) -> (&'static str, Value) {
    ("dtype", Value::Str(of.name().to_owned()))
}

fn filled(registry: &Registry) -> Vec<OpDef> {
    let rows = [("_npi_zeros", "_zeros", "zeros", "0."), ("_npi_ones", "_ones", "ones", "1.")];
    let filled = rows.map(|(name, from, what, shown)| {
        let notes = "A shape ``()`` has one element, an extent of 0 none.";
        let example = format!("{name}(shape=(2,))\n[{shown} {shown}]");
        original(registry, from)
            .renamed(name)
            .doc(&text(&format!("An array of {what}."), notes, &example))
            .infer_shape(|attrs, _, outputs| {
                let shape = shape_of(&attrs.get::<InitParam>().shape, "shape")?;
                assign_shape(&mut outputs[0], "output", &shape)?;
                Ok(true)
            })
    });
    filled.into()
}

fn matrices(registry: &Registry) -> Vec<OpDef> {
    let identity = original(registry, "_eye")
        .renamed("_npi_identity")
        .taking(|p: &InitParam| match p.shape[..] {
            [n, m] => Ok(vec![("N", Value::Int(n)), ("M", Value::Int(m)), dtype(p.dtype)]),
            _ => Err(Error::invalid("number of extents of shape", p.shape.len(), "2")),
        })
        .doc(&text(
            "The identity matrix.",
            "``shape`` is (n, n).",
            "_npi_identity(shape=(2, 2))\n[[1. 0.]\n [0. 1.]]",
        ));
    let eye = original(registry, "_eye")
        .renamed("_npi_eye")
        .taking(|p: &EyeParam| {
            let columns = p.M.unwrap_or(p.N);
            Ok(vec![
                ("N", Value::Int(p.N)),
                ("M", Value::Int(columns)),
                ("k", Value::Int(p.k)),
                dtype(p.dtype),
            ])
        })
        // No columns are none here, where `_eye` takes them for as many as rows.
        .infer_shape(|attrs, _, outputs| {
            let p = attrs.get::<creation::EyeParam>();
            assign_shape(&mut outputs[0], "output", &shape_of(&[p.N, p.M], "shape")?)?;
            Ok(true)
        })
        .doc(&text(
            "A matrix with 1 on a diagonal and 0 elsewhere.",
            "The main diagonal, or one above (``k > 0``) or below it.",
            "_npi_eye(N=2, M=3, k=1)\n[[0. 1. 0.]\n [0. 0. 1.]]",
        ));
    vec![identity, eye]
}

fn full_like() -> OpDef {
    let def = OpDef::new::<FullLikeParam>("_npi_full_like")
        .doc(&text(
            "An array of the shape of another one, filled with one value.",
            "The dtype is the array's unless it is given. The gradient is zero.",
            "_npi_full_like(nd.zeros((2,)), fill_value=3)\n[3. 3.]",
        ))
        .inputs_are(&[("a", "Gives shape and dtype.")])
        .ignores(&[0])
        .infer_type(|attrs, inputs, outputs| {
            let Some(own) = inputs[0] else { return Ok(false) };
            let dtype = attrs.get::<FullLikeParam>().dtype.unwrap_or(own);
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(true)
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| -> Result<()> {
            fill(&call.outputs[0], call.attrs.get::<FullLikeParam>().fill_value);
            Ok(())
        }));
    shaped_by(def, |_, from| Ok(from.clone()))
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    let arange = original(registry, "_arange").renamed("_npi_arange").doc(&text(
        "The numbers from ``start`` to ``stop``, or from 0 to ``start``.",
        "There are ceil((stop - start) / step); a step of 0 is an error.",
        "_npi_arange(start=1, stop=3, step=0.5)\n[1.  1.5 2.  2.5]",
    ));
    let mut all = filled(registry);
    all.extend(matrices(registry));
    all.extend([full_like(), arange]);
    all
}
