//! An operator of a library as an [`OpDef`].

use super::abi;
use super::call::call;
use super::condition::resolved;
use super::decl::{GradDecl, KernelDecl, OpDecl};
use super::frame::{Frame, Said, Slot};
use super::gradient::gradient;
use super::kernel::{State, kernel, tmp_bytes};
use super::parsed::Parsed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::{
    Attrs, Field, FieldType, InplacePair, InputDoc, Listed, Match, OpDef, Registry,
    ResourceRequest, Resources, Schema, Value, infer,
};
use crate::shape::Shape;
use std::sync::{Arc, Weak};

/// All that libraries said of one operator.
#[derive(Clone)]
pub struct Parts {
    pub op: Arc<OpDecl>,
    pub kernels: Vec<Arc<KernelDecl>>,
    pub gradient: Option<Arc<GradDecl>>,
}

/// Inputs of operators that take any number are counted by this parameter, unless they name one.
pub const NUM_ARGS: &str = "num_args";
/// How many arrays each input argument has.
pub const ARG_COUNTS: &str = "arg_counts";

/// The parameters: the attributes, then those that count arrays.
pub fn schema(op: &OpDecl) -> Schema {
    let mut fields: Vec<Field> = op.attrs.iter().map(|a| a.field.clone()).collect();
    let mut add = |name: &str, ty, default, doc: &str| {
        let (name, doc, default) = (name.to_owned(), doc.to_owned(), Some(default));
        fields.push(Field { name, ty, default, doc, range: (None, None) });
    };
    let none = || Value::List(Vec::new());
    if op.has_variable_inputs() {
        add(NUM_ARGS, FieldType::Int, Value::Int(-1), "Number of input arrays.");
        let doc = "Number of arrays of each input argument.";
        add(ARG_COUNTS, FieldType::Shape, none(), doc);
    }
    if op.has_variable_outputs() {
        let doc = "Number of arrays of each output argument; by default the least there can be.";
        add("out_counts", FieldType::Shape, none(), doc);
    }
    Schema { fields, open: false }
}

/// The definition.
pub fn define(parts: &Parts, registry: &Weak<Registry>) -> Result<OpDef> {
    let op = &parts.op;
    let own = op.clone();
    let typed = Arc::new(move |values: &[Value], _: &[(String, Value)]| {
        Ok(Parsed::new(&own, values)?.payload())
    });
    let mut def = OpDef::dynamic(&op.name, schema(op), typed).shared();
    def.doc = op.doc.trim().to_owned();
    def.library = Some(op.library.name.clone());
    def.aliases = op.aliases.clone();
    def.is_backward = op.has(abi::BACKWARD);
    def.deterministic = !op.has(abi::NOT_DETERMINISTIC | abi::RANDOM);
    def.key_var_num_args = match &op.count_attr {
        Some(count) => Some(count.clone()),
        None => op.has_variable_inputs().then(|| NUM_ARGS.to_owned()),
    };
    add_names(&mut def, op);
    add_inference(&mut def, op);
    add_hints(&mut def, parts);
    add_kernels(&mut def, parts)?;
    if let Some(grad) = &parts.gradient {
        def.gradient = gradient(op, grad, registry);
    }
    let own = op.clone();
    def.deferred_error = Some(Arc::new(move |attrs| Parsed::with(attrs, &own, Parsed::fault)?));
    check_defaults(&def)?;
    Ok(def)
}

/// Tries the attributes' defaults, if all have one.
fn check_defaults(def: &OpDef) -> Result<()> {
    if def.schema.fields.iter().any(|f| f.default.is_none()) || def.is_backward {
        return Ok(());
    }
    def.parse(&[]).map(|_| ()).map_err(|error| {
        let text = format!("the defaults of the attributes are refused: {}", error.message());
        Error::new(error.kind(), text).in_operator(&def.name)
    })
}

fn add_names(def: &mut OpDef, op: &Arc<OpDecl>) {
    let listed = op.calls.names.is_some();
    let fixed = |args: &[super::decl::ArgDecl], flag: u32| -> (Vec<String>, Vec<usize>) {
        let arrays = args.iter().flat_map(|a| (0..a.count).map(move |i| (a.array(i), a.has(flag))));
        let (names, flags): (Vec<_>, Vec<_>) = arrays.unzip();
        let marked = flags.iter().enumerate().filter(|(_, f)| **f).map(|(i, _)| i).collect();
        (names, marked)
    };
    let names = |side: usize, op: &Arc<OpDecl>| {
        let op = op.clone();
        Listed::by(move |attrs: &Attrs| {
            let names = |p: &Parsed| p.names[side].iter().map(|n| n.0.clone()).collect();
            Parsed::with(attrs, &op, names).unwrap_or_default()
        })
    };
    let marked = |flag: u32, op: &Arc<OpDecl>| {
        let op = op.clone();
        Listed::by(move |attrs: &Attrs| {
            let marked = |p: &Parsed| {
                let inputs = p.names[0].iter().enumerate();
                inputs.filter(|(_, n)| n.1 & flag != 0).map(|(i, _)| i).collect()
            };
            Parsed::with(attrs, &op, marked).unwrap_or_default()
        })
    };
    if listed || op.has_variable_inputs() {
        def.input_names = names(0, op);
        def.mutates = marked(abi::STATE, op);
        def.ignores = marked(abi::IGNORED, op);
    } else {
        let (all, states) = fixed(&op.inputs, abi::STATE);
        def.input_names = Listed::fixed(&all);
        def.mutates = Listed::fixed(&states);
        def.ignores = Listed::fixed(&fixed(&op.inputs, abi::IGNORED).1);
    }
    if listed || op.has_variable_outputs() {
        def.output_names = names(1, op);
    } else {
        def.output_names = Listed::fixed(&fixed(&op.outputs, 0).0);
    }
    if listed || op.outputs.iter().any(|a| a.has(abi::HIDDEN)) {
        let own = op.clone();
        let visible = |p: &Parsed| p.names[1].iter().filter(|n| n.1 & abi::HIDDEN == 0).count();
        def.visible_outputs =
            Some(Arc::new(move |attrs| Parsed::with(attrs, &own, visible).unwrap_or_default()));
    }
    let kind = "NDArray-or-Symbol";
    let doc = |name: String, ty: &str, doc: &str| InputDoc { name, ty: ty.into(), doc: doc.into() };
    def.input_docs = if def.key_var_num_args.is_some() {
        vec![doc("data".into(), &format!("{kind}[]"), &described(&op.inputs))]
    } else {
        let arrays = |a: &super::decl::ArgDecl| {
            let text = a.doc.clone();
            (0..a.count).map(|i| doc(a.array(i), kind, &text)).collect::<Vec<_>>()
        };
        op.inputs.iter().flat_map(arrays).collect()
    };
}

/// What stands in the place of `data`, where the number of inputs varies.
fn described(args: &[super::decl::ArgDecl]) -> String {
    if let [only] = args
        && !only.doc.is_empty()
    {
        return only.doc.clone();
    }
    let one = |a: &super::decl::ArgDecl| {
        let more = if a.has(abi::AT_LEAST) { " or more" } else { "" };
        let optional = if a.has(abi::OPTIONAL) { ", optional" } else { "" };
        format!("{} ({}{more}{optional})", a.name, a.count)
    };
    format!("The inputs, in order: {}.", args.iter().map(one).collect::<Vec<_>>().join(", "))
}

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
    Parsed::with(attrs, op, |parsed| {
        let frame = Frame::with_arrays(parsed, inputs.into_iter(), outputs.into_iter());
        let answered = call(&frame, f.0, f.1, op.calls.user)?;
        Ok(answered.map(|()| frame.into_said()))
    })?
}

/// The first known dtype for those that are not.
fn filled(dtypes: &[Option<DType>]) -> Vec<Option<DType>> {
    let first = dtypes.iter().flatten().next().copied();
    dtypes.iter().map(|t| t.or(first)).collect()
}

fn add_inference(def: &mut OpDef, op: &Arc<OpDecl>) {
    if op.has(abi::ELEMENTWISE) {
        *def = def.clone().elementwise();
        return;
    }
    if op.calls.infer.is_some() {
        add_complete_inference(def, op);
    }
    let names = (def.input_names.clone(), def.output_names.clone());
    if let Some(f) = op.calls.infer_shape {
        let op = op.clone();
        let names = names.clone();
        def.infer_shape = Some(Arc::new(move |attrs, ins, outs| {
            if Parsed::with(attrs, &op, |p| p.remembered.shapes(ins, outs))? {
                return Ok(true);
            }
            let question = ins.to_vec();
            let types = (vec![None; ins.len()], vec![None; outs.len()]);
            let slots = (slots(ins, &types.0), slots(outs, &types.1));
            let f = ("infer_shape", Some(f));
            let Some(said) = ask(attrs, &op, f, slots.0, slots.1)? else { return Ok(false) };
            let [new_ins, new_outs] = said.tensors;
            assign_shapes(ins, &new_ins, &names.0.to_vec(attrs))?;
            assign_shapes(outs, &new_outs, &names.1.to_vec(attrs))?;
            let complete = ins.iter().chain(outs.iter()).all(Shape::is_known);
            if complete && *question == *ins {
                Parsed::with(attrs, &op, |p| p.remembered.keep_shapes(ins, outs))?;
            }
            Ok(complete)
        }));
    }
    if let Some(f) = op.calls.infer_type {
        let op = op.clone();
        def.infer_type = Some(Arc::new(move |attrs, ins, outs| {
            if Parsed::with(attrs, &op, |p| p.remembered.types(ins, outs))? {
                return Ok(true);
            }
            let question = ins.to_vec();
            let unknown = |n: usize| vec![Shape::unknown(); n];
            let slots = (slots(&unknown(ins.len()), ins), slots(&unknown(outs.len()), outs));
            let f = ("infer_type", Some(f));
            let Some(said) = ask(attrs, &op, f, slots.0, slots.1)? else { return Ok(false) };
            let [new_ins, new_outs] = said.tensors;
            assign_types(ins, &new_ins, &names.0.to_vec(attrs))?;
            assign_types(outs, &new_outs, &names.1.to_vec(attrs))?;
            let complete = ins.iter().chain(outs.iter()).all(Option::is_some);
            if complete && *question == *ins {
                Parsed::with(attrs, &op, |p| p.remembered.keep_types(ins, outs))?;
            }
            Ok(complete)
        }));
    }
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

/// Inference by `infer`, which is asked for everything at once where everything is known.
fn add_complete_inference(def: &mut OpDef, op: &Arc<OpDecl>) {
    let f = ("infer", op.calls.infer);
    let output_names = def.output_names.clone();
    let unknown = |n: usize| (vec![Shape::unknown(); n], vec![None; n]);
    let own = op.clone();
    let names = output_names.clone();
    def.infer_shape = Some(Arc::new(move |attrs, ins, outs| {
        if !ins.iter().all(Shape::is_known) {
            return Ok(false);
        }
        // Many rules look at dtypes, which a question about shapes alone does not tell: floating
        // point is likely, then indices.
        let ask_about = |dtype: DType| {
            let blank = unknown(outs.len());
            let inputs = slots(ins, &vec![Some(dtype); ins.len()]);
            ask(attrs, &own, f, inputs, slots(&blank.0, &blank.1))
        };
        let said = ask_about(DType::F32);
        let said = said.or_else(|error| ask_about(DType::I32).map_err(|_| error))?;
        let Some(said) = said else { return Ok(false) };
        assign_shapes(outs, &said.tensors[1], &names.to_vec(attrs))?;
        Ok(outs.iter().all(Shape::is_known))
    }));
    let own = op.clone();
    let names = output_names.clone();
    def.infer_type = Some(Arc::new(move |attrs, ins, outs| {
        if !ins.is_empty() && ins.iter().all(Option::is_none) {
            return Ok(false);
        }
        let dtypes = filled(ins);
        let blank = unknown(outs.len());
        let inputs = slots(&unknown(ins.len()).0, &dtypes);
        let Some(said) = ask(attrs, &own, f, inputs, slots(&blank.0, &blank.1))? else {
            return Ok(false);
        };
        ins.copy_from_slice(&dtypes);
        assign_types(outs, &said.tensors[1], &names.to_vec(attrs))?;
        Ok(outs.iter().all(Option::is_some))
    }));
    let own = op.clone();
    def.infer_both =
        Some(Arc::new(move |attrs, (in_shapes, in_types), (out_shapes, out_types)| {
            if in_types.iter().any(Option::is_none) {
                in_types.copy_from_slice(&filled(in_types));
            }
            let (ins, outs) = ((in_shapes, &*in_types), (&mut *out_shapes, &mut *out_types));
            if Parsed::with(attrs, &own, |p| p.remembered.both(ins, outs))? {
                return Ok(());
            }
            let blank = unknown(out_shapes.len());
            let inputs = slots(in_shapes, in_types);
            let said = ask(attrs, &own, f, inputs, slots(&blank.0, &blank.1))?;
            let said = said.ok_or_else(|| {
                Error::value(
                    "infer has no answer although shapes and dtypes of all inputs are known",
                )
            })?;
            let names = output_names.to_vec(attrs);
            for (slot, name) in said.tensors[1].iter().zip(&names) {
                let what = match (slot.shape.is_known(), slot.dtype) {
                    (false, _) => "shape",
                    (_, None) => "dtype",
                    _ => continue,
                };
                return Err(Error::value(format!(
                    "infer left the {what} of output '{name}' unset"
                )));
            }
            assign_shapes(out_shapes, &said.tensors[1], &names)?;
            assign_types(out_types, &said.tensors[1], &names)?;
            let outs = (&*out_shapes, &*out_types);
            Parsed::with(attrs, &own, |p| p.remembered.keep_both((in_shapes, in_types), outs))
        }));
}

/// In-place pairs and resources.
fn add_hints(def: &mut OpDef, parts: &Parts) {
    let op = &parts.op;
    let any = |f: fn(&abi::Kernel) -> bool| parts.kernels.iter().any(|k| f(&k.calls));
    if op.calls.inplace.is_some() || any(|k| k.inplace.is_some()) {
        let parts = parts.clone();
        def.inplace = Listed::by(move |attrs| {
            let pairs = |parsed: &Parsed| {
                let ask = || parsed.or_fault(pairs(&parts, parsed));
                parsed.remembered.pairs(parts.kernels.len(), ask)
            };
            Parsed::with(attrs, &parts.op, pairs).unwrap_or_default()
        });
    }
    let random = op.has(abi::RANDOM);
    if op.calls.resources.is_some() || any(|k| k.tmp_bytes.is_some()) {
        let parts = parts.clone();
        def.resources = Resources::by(move |attrs, inputs, outputs| {
            let ask = |p: &Parsed| asked_resources(&parts, p, inputs, outputs);
            let (bytes, random) = Parsed::with(attrs, &parts.op, ask)??;
            let mut requests = Vec::new();
            if bytes > 0 {
                requests.push(ResourceRequest::TempSpace { bytes: bytes as usize });
            }
            if random {
                requests.push(ResourceRequest::Random);
            }
            Ok(requests)
        });
    } else if random {
        def.resources = Resources::fixed(&[ResourceRequest::Random]);
    }
    if op.calls.create_state.is_some() || any(|k| k.create_state.is_some()) {
        let own = op.clone();
        def.state = Some(Arc::new(move |attrs, device, shapes, dtypes| {
            State::create(&own, attrs, device, shapes, dtypes)
        }));
    }
}

/// Pairs that the operator proposes, and those that all of its kernels do.
fn pairs(parts: &Parts, parsed: &Parsed) -> Result<Vec<InplacePair>> {
    let frame = Frame::new(parsed);
    call(&frame, "inplace", parts.op.calls.inplace, parts.op.calls.user)?;
    let mut pairs = frame.into_said().pairs;
    let mut common: Option<Vec<InplacePair>> = None;
    for kernel in &parts.kernels {
        let frame = Frame::new(parsed);
        call(&frame, "inplace", kernel.calls.inplace, kernel.calls.user)?;
        let proposed = frame.into_said().pairs;
        common = Some(match common {
            None => proposed,
            Some(known) => known.into_iter().filter(|p| proposed.contains(p)).collect(),
        });
    }
    pairs.extend(common.unwrap_or_default());
    Ok(pairs)
}

/// Bytes of temporary space (the operator's, and the most that a kernel asks for), and whether it
/// draws random numbers.
fn asked_resources(
    parts: &Parts,
    parsed: &Parsed,
    ins: &[Shape],
    outs: &[Shape],
) -> Result<(u64, bool)> {
    let frame = |dtype: DType| {
        let slot = |s: &Shape| Slot::new(s, Some(dtype));
        Frame::with_arrays(parsed, ins.iter().map(slot), outs.iter().map(slot))
    };
    let own = frame(DType::F32);
    call(&own, "resources", parts.op.calls.resources, parts.op.calls.user)?;
    // A plan knows shapes only, and not yet which kernel will run. Each is asked about the dtype of
    // its own condition; one that has no answer to that is asked again when it runs.
    let ask = |kernel: &KernelDecl| {
        tmp_bytes(kernel, &frame(dtype_in(&kernel.matches).unwrap_or(DType::F32)))
    };
    let most = parts.kernels.iter().filter_map(|k| ask(k).ok()).max().unwrap_or(0);
    let asked = own.into_said();
    Ok((asked.temp_bytes.saturating_add(most), asked.random || parts.op.has(abi::RANDOM)))
}

/// A dtype that a condition demands.
fn dtype_in(condition: &Match) -> Option<DType> {
    match condition {
        Match::DTypeOf(_, dtypes) => dtypes.first().copied(),
        Match::And(a, b) => dtype_in(a).or_else(|| dtype_in(b)),
        _ => None,
    }
}

fn add_kernels(def: &mut OpDef, parts: &Parts) -> Result<()> {
    for (i, decl) in parts.kernels.iter().enumerate() {
        let matches = resolved(&decl.matches, &parts.op).map_err(|e| e.in_operator(&def.name))?;
        let twin =
            def.kernels.iter().find(|k| k.matches == matches && k.priority == decl.calls.priority);
        if let Some(twin) = twin {
            return Err(Error::value(format!(
                "two kernels have the condition {matches} at priority {}: '{}' and one more; expected \
                 another condition or priority",
                twin.priority, twin.name
            ))
            .in_operator(&def.name));
        }
        def.kernels.push(Arc::new(kernel(&parts.op, decl, i, matches)));
    }
    Ok(())
}

/// The distribution signatures of a call, as texts.
pub fn signatures(
    parts: &Parts,
    attrs: &Attrs,
    inputs: &[(Shape, DType)],
    outputs: &[(Shape, DType)],
) -> Result<Vec<String>> {
    let slot = |(shape, dtype): &(Shape, DType)| Slot::new(shape, Some(*dtype));
    let op = &parts.op;
    Parsed::with(attrs, op, |parsed| {
        let slots = (inputs.iter().map(slot), outputs.iter().map(slot));
        let frame = Frame::with_arrays(parsed, slots.0, slots.1);
        call(&frame, "sbp", op.calls.sbp, op.calls.user)?;
        Ok(frame.into_said().signatures)
    })?
}
