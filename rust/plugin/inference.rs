//! Shapes and dtypes of a library's operators, by asking its callbacks.

use super::abi;
use super::call;
use super::decl::OpDecl;
use super::frame::{Asks, Frame, Said, Slot};
use super::learn::{Learnt, demands, learn_types};
use super::parse::with_parsed;
use super::remember::Accepted;
use crate::context::Context;
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
        let frame =
            Frame::with_arrays(parsed, Context::default(), inputs, outputs).asking(Asks::Inference);
        let answered = call::ask(&frame, f.0, f.1, op.calls.user)?;
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

fn assign_all(slots: &mut [Shape], shapes: &[Shape], names: &[String]) -> Result<()> {
    let mut pairs = slots.iter_mut().zip(shapes).zip(names);
    pairs.try_for_each(|((slot, shape), name)| infer::assign_shape(slot, name, shape))
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

/// Learns dtypes of inputs that are unknown, with the shapes of the outputs: what `infer` sets
/// becomes known, and of the others the answer says what it accepts. Asks once for inputs of which
/// more and more becomes known.
fn learn(
    attrs: &Attrs,
    op: &Arc<OpDecl>,
    (shapes, types): (&[Shape], &mut [Option<DType>]),
    n_outputs: usize,
) -> Result<Accepted> {
    if let Some(answer) = with_parsed(attrs, op, |p| p.remembered.learnt(shapes, types))? {
        return answer;
    }
    let question = types.to_vec();
    let ask = |types: &[Option<DType>]| ask_infer(attrs, op, shapes, types, n_outputs);
    let answer =
        learn_types(types, &arguments(attrs, op)?, &ask).map(|Learnt { said, accepted }| {
            let shapes =
                |said: Said| said.tensors[1].iter().map(|slot| slot.shape.clone()).collect();
            (accepted, said.map(shapes))
        });
    if *types == *question {
        with_parsed(attrs, op, |p| p.remembered.keep_learnt(shapes, types, &answer))?;
    }
    answer
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
    let mut types = vec![None; ins.len()];
    let (_, supposed) = learn(attrs, op, (ins, &mut types), outs.len())?;
    let shapes = match supposed {
        Some(shapes) => shapes,
        None if types.iter().all(Option::is_some) => {
            let Some(said) = ask_infer(attrs, op, ins, &types, outs.len())? else {
                return Ok(false);
            };
            said.tensors[1].iter().map(|slot| slot.shape.clone()).collect()
        }
        None => return Ok(false),
    };
    assign_all(outs, &shapes, &names.to_vec(attrs))?;
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
    let shapes = unknown(ins.len());
    if ins.iter().any(Option::is_none) {
        // A dtype that it refuses may be accepted when shapes are known.
        if let Ok((accepted, _)) = learn(attrs, op, (&shapes, ins), outs.len()) {
            let demanded = demands(ins, &accepted);
            ins.copy_from_slice(&demanded);
        }
        if ins.iter().any(Option::is_none) {
            return Ok(false);
        }
    }
    let Some(said) = ask_infer(attrs, op, &shapes, ins, outs.len())? else { return Ok(false) };
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
) -> Result<Vec<Option<DType>>> {
    let n = out_shapes.len();
    if in_types.iter().any(Option::is_none) {
        let (accepted, shapes) = learn(attrs, op, (in_shapes, in_types), n)?;
        if in_types.iter().any(Option::is_none) {
            // The shapes are those of accepted dtypes; the dtypes stay unknown.
            if let Some(shapes) = shapes {
                assign_all(out_shapes, &shapes, &names.to_vec(attrs))?;
            }
            return Ok(demands(in_types, &accepted));
        }
    }
    let (ins, outs) = ((in_shapes, &*in_types), (&mut *out_shapes, &mut *out_types));
    if with_parsed(attrs, op, |p| p.remembered.both(ins, outs))? {
        return Ok(Vec::new());
    }
    let said = ask_infer(attrs, op, in_shapes, in_types, n)?.ok_or_else(|| {
        Error::value(
            "infer has no answer although shapes and dtypes of all inputs are known: expected \
             those of the outputs",
        )
    })?;
    let names = names.to_vec(attrs);
    refuse_unset(&said.tensors[1], &names)?;
    assign_shapes(out_shapes, &said.tensors[1], &names)?;
    assign_types(out_types, &said.tensors[1], &names)?;
    let outs = (&*out_shapes, &*out_types);
    with_parsed(attrs, op, |p| p.remembered.keep_both((in_shapes, in_types), outs))?;
    Ok(Vec::new())
}

/// The argument of each input; where the library lists the names, each is one by itself.
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
        return Err(Error::value(format!(
            "infer left the {what} of output '{name}' unset: expected one for each output"
        )));
    }
    Ok(())
}
