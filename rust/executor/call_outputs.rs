//! The outputs of one operator call: their shapes and dtypes, and the arrays.

use crate::context::{Context, DeviceType};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::ndarray::NDArray;
use crate::operator::{Attrs, MatchFacts, OpDef, infer};
use crate::shape::Shape;
use smallvec::SmallVec;
use std::sync::Arc;

pub type Specs = SmallVec<[(Shape, DType); 1]>;

pub type Shapes = SmallVec<[Shape; 2]>;

pub type Types = SmallVec<[Option<DType>; 4]>;

/// Inputs that the error of a wrong number of inputs names, at most.
const MOST_NAMED: usize = 12;

/// An error if a call has another number of inputs than its operator.
#[inline]
pub fn check_count(op: &OpDef, attrs: &Attrs, got: usize) -> Result<()> {
    let expected = op.num_inputs(attrs);
    if got == expected || op.is_backward {
        return Ok(());
    }
    let names = op.inputs(attrs);
    let names = names[..names.len().min(MOST_NAMED)].join(", ");
    Err(Error::value(format!("invalid number of inputs {got}: expected {expected}: {names}")))
}

/// Shapes and dtypes of all outputs, of which some may be `given`.
#[inline]
pub fn infer(
    op: &OpDef,
    attrs: &Attrs,
    in_shapes: &mut [Shape],
    in_types: &mut [Option<DType>],
    given: &[&NDArray],
) -> Result<Specs> {
    if op.is_backward && op.infer_shape.is_none() {
        return Err(Error::value("a backward operator runs only for a forward call"));
    }
    let n_outputs = op.num_outputs(attrs);
    let mut out_types: Types = SmallVec::from_elem(None, n_outputs);
    if let Some(rule) = &op.infer_both {
        let mut out_shapes: Shapes = (0..n_outputs).map(|_| Shape::unknown()).collect();
        rule(attrs, (in_shapes, in_types), (&mut out_shapes, &mut out_types))?;
        return known_specs(out_shapes, out_types);
    }
    let known = match &op.infer_type {
        Some(infer) => infer(attrs, in_types, &mut out_types)?,
        None => infer::same_type(attrs, in_types, &mut out_types)?,
    };
    if !known && out_types.iter().any(Option::is_none) {
        // Only outputs that the caller passed can still determine it.
        for (slot, a) in out_types.iter_mut().zip(given) {
            slot.get_or_insert(a.dtype());
        }
    }
    // Outputs are inferred from the inputs alone first: only then is it the given output that is
    // wrong.
    let mut out_shapes: Shapes = (0..n_outputs).map(|_| Shape::unknown()).collect();
    let rule = op.infer_shape.as_ref().ok_or_else(|| {
        Error::not_implemented(
            "the shapes of the outputs cannot be inferred: expected an operator that infers them",
        )
    })?;
    let complete = rule(attrs, in_shapes, &mut out_shapes)?;
    if !complete && !out_shapes.iter().all(Shape::is_known) {
        for (i, shape) in out_shapes.iter_mut().enumerate() {
            *shape = given.get(i).map_or(Shape::unknown(), |a| a.shape().clone());
        }
        rule(attrs, in_shapes, &mut out_shapes)?;
    }
    known_specs(out_shapes, out_types)
}

fn known_specs(shapes: Shapes, types: Types) -> Result<Specs> {
    let outputs = shapes.into_iter().zip(types).enumerate();
    let known = |(i, (shape, dtype)): (usize, (Shape, Option<DType>))| {
        let dtype = infer::known(format_args!("output {i}"), &shape, dtype)?;
        Ok((shape, dtype))
    };
    outputs.map(known).collect()
}

/// Shapes and dtypes of the outputs of a call on inputs of these.
pub fn infer_outputs(
    op: &OpDef,
    attrs: &Attrs,
    inputs: &[(Shape, DType)],
) -> Result<Vec<(Shape, DType)>> {
    let mut shapes: Shapes = inputs.iter().map(|i| i.0.clone()).collect();
    let mut types: Types = inputs.iter().map(|i| Some(i.1)).collect();
    let outputs = check_count(op, attrs, inputs.len())
        .and_then(|()| infer(op, attrs, &mut shapes, &mut types, &[]));
    Ok(outputs.map_err(|e| e.in_operator(&op.name))?.into_vec())
}

/// For every kernel of `op`, a line that says whether it would run on inputs of these shapes and
/// dtypes, and why.
pub fn explain_kernels(
    op: &OpDef,
    attrs: &Attrs,
    inputs: &[(Shape, DType)],
    device: DeviceType,
) -> Result<String> {
    let outputs = infer_outputs(op, attrs, inputs)?;
    let names: Vec<_> = op.inputs(attrs).into_iter().chain(op.outputs(attrs)).collect();
    let tensors = names.iter().zip(inputs.iter().chain(&outputs));
    let tensors: Vec<_> =
        tensors.map(|(name, (s, dtype))| (name.as_str(), *dtype, s.ndim())).collect();
    let facts = MatchFacts { device, attrs, tensors: &tensors };
    Ok(op.explain_kernels(&facts).join("\n"))
}

/// The output arrays of a call: those given, of which shape and dtype are checked, or new ones.
pub fn outputs_for(
    rt: &Arc<Runtime>,
    specs: &[(Shape, DType)],
    visible: usize,
    out: Option<&[&NDArray]>,
    device: Context,
) -> Result<SmallVec<[NDArray; 1]>> {
    if let Some(out) = out {
        if out.len() != visible && out.len() != specs.len() {
            return Err(Error::invalid("number of arrays in out", out.len(), visible));
        }
        for (i, (a, (shape, dtype))) in out.iter().zip(specs).enumerate() {
            if a.shape() != shape {
                return Err(Error::value(format!(
                    "output {i} has shape {}, expected {shape}",
                    a.shape()
                )));
            }
            if a.dtype() != *dtype {
                return Err(Error::type_(format!(
                    "output {i} has dtype {}, expected {dtype}",
                    a.dtype()
                )));
            }
        }
    }
    specs
        .iter()
        .enumerate()
        .map(|(i, (shape, dtype))| match out.and_then(|o| o.get(i)) {
            Some(a) => Ok((*a).clone()),
            None => NDArray::pending(rt, shape, *dtype, device),
        })
        .collect()
}
