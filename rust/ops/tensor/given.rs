//! Arrays whose values, storage or dtype are set from outside: `_set_value`, `cast_storage`,
//! `_zeros_without_dtype`.

use super::common::{elementwise, zero_view};
use super::kernel;
use crate::dtype::DType;
use crate::error::Error;
use crate::kernels::copy::{copy, fill};
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape};
use crate::operator::{Gradient, OpDef, Tuple};
use crate::shape::Shape;
use crate::{param_enum, params};

params! {
    /// Parameters of `_set_value`.
    pub struct SetValueParam {
        src: f32, required, "The value.";
    }
}

params! {
    /// Parameters of `cast_storage`.
    pub struct StorageParam {
        stype: StorageType, required, "The kind of storage; arrays here are dense.";
    }
}

param_enum! {
    /// Kinds of storage.
    pub enum StorageType { Csr = "csr", Default = "default", RowSparse = "row_sparse" }
}

params! {
    /// Parameters of `_zeros_without_dtype`.
    pub struct PlainZerosParam {
        shape: Tuple, default(Tuple::new()), "The shape of the array.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: i32, default(-1), "The number of a dtype; -1 is float32.";
    }
}

fn set_value() -> OpDef {
    OpDef::new::<SetValueParam>("_set_value")
        .doc(SET_VALUE)
        .inputs_are(&[])
        .infer_shape(|_, _, outputs| Ok(outputs[0].is_known()))
        .infer_type(|_, _, outputs| Ok(outputs[0].is_some()))
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let value = call.attrs.get::<SetValueParam>().src;
            fill(&call.outputs[0], f64::from(value));
            Ok(())
        }))
}

fn cast_storage() -> OpDef {
    elementwise(OpDef::new::<StorageParam>("cast_storage"))
        .aliases(&["_sparse_cast_storage"])
        .doc(CAST_STORAGE)
        .inputs_are(&[("data", "The input array.")])
        .infer_shape(|attrs, inputs, outputs| match attrs.get::<StorageParam>().stype {
            StorageType::Default => elementwise_shape(attrs, inputs, outputs),
            StorageType::Csr | StorageType::RowSparse => Err(Error::not_implemented(
                "invalid stype: expected 'default', as arrays are dense",
            )),
        })
        .gradient(Gradient::rule_reading(&[], |builder, node| {
            Ok(vec![Some(node.out_grad(builder, 0)?)])
        }))
        .kernel(kernel(|call| {
            copy(&call.inputs[0], &call.outputs[0]);
            Ok(())
        }))
}

fn plain_zeros() -> OpDef {
    OpDef::new::<PlainZerosParam>("_zeros_without_dtype")
        .doc(PLAIN_ZEROS)
        .inputs_are(&[])
        .infer_shape(|attrs, _, outputs| {
            let shape = Shape::from_parameter(&attrs.get::<PlainZerosParam>().shape);
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(outputs[0].is_known())
        })
        .infer_type(|attrs, _, outputs| {
            let dtype = match attrs.get::<PlainZerosParam>().dtype {
                -1 => outputs[0].unwrap_or(DType::F32),
                flag => DType::from_flag(flag)?,
            };
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(true)
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            zero_view(&call.outputs[0]);
            Ok(())
        }))
}

const SET_VALUE: &str = "Every element of ``out`` is set to a number.

Notes
-----
The shape and dtype are those of ``out``; without it they are unknown, an error.

Examples
--------
>>> nd._internal._set_value(src=3, out=nd.zeros((2,)))
[3. 3.]
";

const CAST_STORAGE: &str = "The same numbers in another kind of storage.

Notes
-----
Any shape and dtype. Arrays are dense, so only ``stype='default'`` is possible; others are an error.

Examples
--------
>>> nd.cast_storage(nd.ones((2,)), stype='default')
[1. 1.]
";

const PLAIN_ZEROS: &str = "Zeros of a dtype that is decided elsewhere.

Notes
-----
With ``dtype=-1`` the dtype is float32, or what the graph expects.

Examples
--------
>>> nd._internal._zeros_without_dtype(shape=(2,))
[0. 0.]
";

pub fn operators() -> Vec<OpDef> {
    vec![set_value(), cast_storage(), plain_zeros()]
}
