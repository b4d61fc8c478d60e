//! Shapes and dtypes of a library's operators, by asking its callbacks.

use super::abi;
use super::call::call;
use super::decl::OpDecl;
use super::frame::{Frame, Said, Slot};
use super::learn::learn_types;
use super::parse::with_parsed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::{Attrs, Listed, OpDef, infer};
use crate::shape::Shape;
use std::sync::Arc;

/// Slots of arrays of which shapes or dtypes are known.
fn slots(shapes: &[Shape], dtypes: &[Option<DType>]) -> Vec<Slot> {
    shapes.iter().zip(dtypes).map(|(shape, dtype)| Slot::new(shape, *dtype)).collect()
}

/// Runs an inference callback; `None` if it needs to know more.
fn ask(
    attrs: &Attrs,
    op: &Arc<OpDecl>,
    f: (&str, abi::CallFn),
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
) -> Result<Option<Said>> {
    with_parsed(attrs, op, |parsed| {
        let frame = Frame::with_arrays(parsed, inputs.into_iter(), outputs.into_iter());
        let answered = call(&frame, f.0, f.1, op.calls.user)?;
        Ok(answered.map(|()| frame.into_said()))
    })?
}

pub fn add_inference(def: &mut OpDef, op: &Arc<OpDecl>) {
    if op.has(abi::ELEMENTWISE) {
        *def = def.clone().elementwise();
        return;
    }
    if op.calls.infer.is_some() {
        add_complete_inference(def, op);
    }
    if op.calls.infer_shape.is_some() {
        add_shape_inference(def, op);
    }
    if op.calls.infer_type.is_some() {
        add_type_inference(def, op);
    }
}

/// Inference by `infer_shape`, in both directions.
fn add_shape_inference(def: &mut OpDef, op: &Arc<OpDecl>) {
    let (op, names) = (op.clone(), (def.input_names.clone(), def.output_names.clone()));
    def.infer_shape = Some(Arc::new(move |attrs, ins, outs| {
        if with_parsed(attrs, &op, |p| p.remembered.shapes(ins, outs))? {
            return Ok(true);
        }
        let question = ins.to_vec();
        let types = (vec![None; ins.len()], vec![None; outs.len()]);
        let slots = (slots(ins, &types.0), slots(outs, &types.1));
        let f = ("infer_shape", op.calls.infer_shape);
        let Some(said) = ask(attrs, &op, f, slots.0, slots.1)? else { return Ok(false) };
        let [new_ins, new_outs] = said.tensors;
        assign_shapes(ins, &new_ins, &names.0.to_vec(attrs))?;
        assign_shapes(outs, &new_outs, &names.1.to_vec(attrs))?;
        let complete = ins.iter().chain(outs.iter()).all(Shape::is_known);
        if complete && *question == *ins {
            with_parsed(attrs, &op, |p| p.remembered.keep_shapes(ins, outs))?;
        }
        Ok(complete)
    }));
}

/// Inference by `infer_type`, in both directions.
fn add_type_inference(def: &mut OpDef, op: &Arc<OpDecl>) {
    let (op, names) = (op.clone(), (def.input_names.clone(), def.output_names.clone()));
    def.infer_type = Some(Arc::new(move |attrs, ins, outs| {
        if with_parsed(attrs, &op, |p| p.remembered.types(ins, outs))? {
            return Ok(true);
        }
        let question = ins.to_vec();
        let slots = (slots(&unknown(ins.len()), ins), slots(&unknown(outs.len()), outs));
        let f = ("infer_type", op.calls.infer_type);
        let Some(said) = ask(attrs, &op, f, slots.0, slots.1)? else { return Ok(false) };
        let [new_ins, new_outs] = said.tensors;
        assign_types(ins, &new_ins, &names.0.to_vec(attrs))?;
        assign_types(outs, &new_outs, &names.1.to_vec(attrs))?;
        let complete = ins.iter().chain(outs.iter()).all(Option::is_some);
        if complete && *question == *ins {
            with_parsed(attrs, &op, |p| p.remembered.keep_types(ins, outs))?;
        }
        Ok(complete)
    }));
}

fn unknown(n: usize) -> Vec<Shape> {
    vec![Shape::unknown(); n]
}

fn assign_shapes(slots: &mut [Shape], learnt: &[Slot], names: &[String]) -> Result<()> {
    for ((slot, new), name) in slots.iter_mut().zip(learnt).zip(names) {
        infer::assign_shape(slot, name, &new.shape)?;
    }
    Ok(())
}

fn assign_types(slots: &mut [Option<DType>], learnt: &[Slot], names: &[String]) -> Result<()> {
    for ((slot, new), name) in slots.iter_mut().zip(learnt).zip(names) {
        if let Some(dtype) = new.dtype {
            infer::assign_type(slot, name, dtype)?;
        }
    }
    Ok(())
}

/// Asks `infer` about inputs, of which some may be unknown.
fn ask_infer(
    attrs: &Attrs,
    op: &Arc<OpDecl>,
    shapes: &[Shape],
    dtypes: &[Option<DType>],
    n_outputs: usize,
) -> Result<Option<Said>> {
    let outputs = slots(&unknown(n_outputs), &vec![None; n_outputs]);
    ask(attrs, op, ("infer", op.calls.infer), slots(shapes, dtypes), outputs)
}

/// Inference by `infer`, which is asked for everything at once where everything is known.
fn add_complete_inference(def: &mut OpDef, op: &Arc<OpDecl>) {
    let (own, names) = (op.clone(), def.output_names.clone());
    def.infer_shape =
        Some(Arc::new(move |attrs, ins, outs| shapes_alone(attrs, &own, ins, outs, &names)));
    let (own, names) = (op.clone(), def.output_names.clone());
    def.infer_type =
        Some(Arc::new(move |attrs, ins, outs| types_alone(attrs, &own, ins, outs, &names)));
    let (own, names) = (op.clone(), def.output_names.clone());
    def.infer_both = Some(Arc::new(move |attrs, ins, outs| both(attrs, &own, ins, outs, &names)));
}

/// Shapes by `infer`. Many rules look at dtypes, which a question about shapes alone does not tell:
/// those are supposed that the rule accepts.
fn shapes_alone(
    attrs: &Attrs,
    op: &Arc<OpDecl>,
    ins: &[Shape],
    outs: &mut [Shape],
    names: &Listed<String>,
) -> Result<bool> {
    if !ins.iter().all(Shape::is_known) {
        return Ok(false);
    }
    let ask = |types: &[Option<DType>]| ask_infer(attrs, op, ins, types, outs.len());
    let mut types = vec![None; ins.len()];
    let supposed = learn_types(&mut types, &arguments(attrs, op)?, &ask)?;
    let complete = || if types.iter().all(Option::is_some) { ask(&types) } else { Ok(None) };
    let Some(said) = supposed.map_or_else(complete, |said| Ok(Some(said)))? else {
        return Ok(false);
    };
    assign_shapes(outs, &said.tensors[1], &names.to_vec(attrs))?;
    Ok(outs.iter().all(Shape::is_known))
}

/// Dtypes by `infer`, where shapes are unknown.
fn types_alone(
    attrs: &Attrs,
    op: &Arc<OpDecl>,
    ins: &mut [Option<DType>],
    outs: &mut [Option<DType>],
    names: &Listed<String>,
) -> Result<bool> {
    if !ins.is_empty() && ins.iter().all(Option::is_none) {
        return Ok(false);
    }
    let n = ins.len();
    let ask = |types: &[Option<DType>]| ask_infer(attrs, op, &unknown(n), types, outs.len());
    // What it refuses, it may accept when shapes are known.
    let _ = learn_types(ins, &arguments(attrs, op)?, &ask);
    if ins.iter().any(Option::is_none) {
        return Ok(false);
    }
    let Some(said) = ask(ins)? else { return Ok(false) };
    assign_types(outs, &said.tensors[1], &names.to_vec(attrs))?;
    Ok(outs.iter().all(Option::is_some))
}

/// Shapes and dtypes by `infer`, from known shapes of inputs.
fn both(
    attrs: &Attrs,
    op: &Arc<OpDecl>,
    (in_shapes, in_types): (&[Shape], &mut [Option<DType>]),
    (out_shapes, out_types): (&mut [Shape], &mut [Option<DType>]),
    names: &Listed<String>,
) -> Result<()> {
    let n = out_shapes.len();
    let ask = |types: &[Option<DType>]| ask_infer(attrs, op, in_shapes, types, n);
    if in_types.iter().any(Option::is_none) {
        let supposed = learn_types(in_types, &arguments(attrs, op)?, &ask);
        if in_types.iter().any(Option::is_none) {
            // The shapes are those of likely dtypes; the dtypes stay unknown. A refusal is reported
            // once they are known.
            let Ok(Some(said)) = supposed else { return Ok(()) };
            return assign_shapes(out_shapes, &said.tensors[1], &names.to_vec(attrs));
        }
    }
    let (ins, outs) = ((in_shapes, &*in_types), (&mut *out_shapes, &mut *out_types));
    if with_parsed(attrs, op, |p| p.remembered.both(ins, outs))? {
        return Ok(());
    }
    let said = ask(in_types)?.ok_or_else(|| {
        Error::value("infer has no answer although shapes and dtypes of all inputs are known")
    })?;
    let names = names.to_vec(attrs);
    refuse_unset(&said.tensors[1], &names)?;
    assign_shapes(out_shapes, &said.tensors[1], &names)?;
    assign_types(out_types, &said.tensors[1], &names)?;
    let outs = (&*out_shapes, &*out_types);
    with_parsed(attrs, op, |p| p.remembered.keep_both((in_shapes, in_types), outs))
}

/// Which argument each input is of; where the library lists the names, each is one by itself.
fn arguments(attrs: &Attrs, op: &Arc<OpDecl>) -> Result<Vec<usize>> {
    with_parsed(attrs, op, |parsed| match op.calls.names {
        Some(_) => (0..parsed.names[0].len()).collect(),
        None => {
            let counts = parsed.counts[0].iter().enumerate();
            counts.flat_map(|(i, n)| std::iter::repeat_n(i, *n)).collect()
        }
    })
}

fn refuse_unset(outputs: &[Slot], names: &[String]) -> Result<()> {
    for (slot, name) in outputs.iter().zip(names) {
        let what = match (slot.shape.is_known(), slot.dtype) {
            (false, _) => "shape",
            (_, None) => "dtype",
            _ => continue,
        };
        return Err(Error::value(format!("infer left the {what} of output '{name}' unset")));
    }
    Ok(())
}
