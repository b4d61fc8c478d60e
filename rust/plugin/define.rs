//! An operator of a library as an [`OpDef`].

use super::abi;
use super::call::{ask, call};
use super::counts::schema;
use super::decl::{ArgDecl, GradDecl, KernelDecl, OpDecl};
use super::frame::{Asks, Frame, Slot};
use super::gradient::gradient;
use super::inference::add_inference;
use super::kernel::{State, kernel, tmp_bytes};
use super::library::Library;
use super::parse::{parse, with_parsed};
use super::parsed::Parsed;
use super::resolve::resolved;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::{
    Alone, Attrs, InplacePair, InputDoc, Listed, Match, OpDef, Registry, ResourceRequest,
    Resources, Value,
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

/// The definition.
pub fn define(parts: &Parts, registry: &Weak<Registry>) -> Result<OpDef> {
    let op = &parts.op;
    let own = op.clone();
    let typed =
        Arc::new(move |values: &[Value], _: &[(String, Value)]| Ok(parse(&own, values)?.payload()));
    let mut def = OpDef::dynamic(&op.name, schema(op), typed).shared();
    def.doc = op.doc.trim().to_owned();
    def.library = Some(op.library.name.clone());
    def.aliases = op.aliases.clone();
    def.is_backward = op.has(abi::BACKWARD);
    def.alone = if op.has(abi::LONG) { Alone::Always } else { Alone::BesideOthers };
    // `resources` depends on attributes and shapes: the operator may draw in some calls.
    def.deterministic =
        !op.has(abi::NOT_DETERMINISTIC | abi::RANDOM) && op.calls.resources.is_none();
    let is_counted = op.count_attr.is_some() || op.has_variable_inputs();
    def.key_var_num_args = is_counted.then(|| op.counted_by().to_owned());
    if op.has_variable_inputs() {
        def.arguments = op.counted_inputs();
    }
    add_names(&mut def, op);
    add_visible(&mut def, op);
    add_input_docs(&mut def, op);
    add_inference(&mut def, op);
    add_hints(&mut def, parts);
    add_kernels(&mut def, parts)?;
    if let Some(grad) = &parts.gradient {
        def.gradient = gradient(op, grad, registry);
    }
    let own = op.clone();
    def.deferred_error =
        Some(Arc::new(move |attrs| with_parsed(attrs, &own, |p| p.error.check())?));
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
    let fixed = |args: &[ArgDecl], flag: u32| -> (Vec<String>, Vec<usize>) {
        let arrays = args.iter().flat_map(|a| (0..a.count).map(move |i| (a.array(i), a.has(flag))));
        let (names, flags): (Vec<_>, Vec<_>) = arrays.unzip();
        let marked = flags.iter().enumerate().filter(|(_, f)| **f).map(|(i, _)| i).collect();
        (names, marked)
    };
    let names = |side: usize, op: &Arc<OpDecl>| {
        let op = op.clone();
        Listed::by(move |attrs: &Attrs| {
            let names = |p: &Parsed| p.names[side].iter().map(|n| n.0.clone()).collect();
            with_parsed(attrs, &op, names).unwrap_or_default()
        })
    };
    let marked = |flag: u32, op: &Arc<OpDecl>| {
        let op = op.clone();
        Listed::by(move |attrs: &Attrs| {
            let marked = |p: &Parsed| {
                let inputs = p.names[0].iter().enumerate();
                inputs.filter(|(_, n)| n.1 & flag != 0).map(|(i, _)| i).collect()
            };
            with_parsed(attrs, &op, marked).unwrap_or_default()
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
}

/// The number of visible outputs: all but the hidden ones.
fn add_visible(def: &mut OpDef, op: &Arc<OpDecl>) {
    if op.calls.names.is_none() && !op.outputs.iter().any(|a| a.has(abi::HIDDEN)) {
        return;
    }
    let own = op.clone();
    let visible = |p: &Parsed| p.names[1].iter().filter(|n| n.1 & abi::HIDDEN == 0).count();
    def.visible_outputs =
        Some(Arc::new(move |attrs| with_parsed(attrs, &own, visible).unwrap_or_default()));
}

/// The documentation of inputs: of every array, or, where their number varies, of every argument
/// after `data`, which is all of them.
fn add_input_docs(def: &mut OpDef, op: &OpDecl) {
    let kind = "NDArray-or-Symbol";
    let doc = |name: String, ty: &str, doc: &str| InputDoc { name, ty: ty.into(), doc: doc.into() };
    if def.key_var_num_args.is_none() {
        let arrays = |a: &ArgDecl| {
            let text = a.doc.clone();
            (0..a.count).map(|i| doc(a.array(i), kind, &text)).collect::<Vec<_>>()
        };
        def.input_docs = op.inputs.iter().flat_map(arrays).collect();
        return;
    }
    def.input_docs = vec![doc("data".into(), &format!("{kind}[]"), &described(&op.inputs))];
    for arg in op.inputs.iter().filter(|a| a.name != "data" && !def.arguments.is_empty()) {
        let many = if arg.count == 1 && !arg.has(abi::AT_LEAST) { "" } else { "[]" };
        let optional = if arg.has(abi::OPTIONAL) { ", optional" } else { "" };
        let ty = format!("{kind}{many}{optional}, by name");
        def.input_docs.push(doc(arg.name.clone(), &ty, &arg.doc));
    }
}

/// The documentation of the inputs where their number varies.
fn described(args: &[ArgDecl]) -> String {
    if let [only] = args
        && !only.doc.is_empty()
    {
        return only.doc.clone();
    }
    let one = |a: &ArgDecl| {
        let more = if a.has(abi::AT_LEAST) { " or more" } else { "" };
        let optional = if a.has(abi::OPTIONAL) { ", optional" } else { "" };
        format!("{} ({}{more}{optional})", a.name, a.count)
    };
    format!("The inputs, in order: {}.", args.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// In-place pairs and resources.
fn add_hints(def: &mut OpDef, parts: &Parts) {
    let op = &parts.op;
    let any = |f: fn(&abi::Kernel) -> bool| parts.kernels.iter().any(|k| f(&k.calls));
    if op.calls.inplace.is_some() || any(|k| k.inplace.is_some()) {
        let parts = parts.clone();
        def.inplace = Listed::by(move |attrs| {
            let pairs = |parsed: &Parsed| {
                let ask = || parsed.error.defer(pairs(&parts, parsed));
                parsed.remembered.pairs(parts.kernels.len(), ask)
            };
            with_parsed(attrs, &parts.op, pairs).unwrap_or_default()
        });
    }
    let random = op.has(abi::RANDOM);
    if op.calls.resources.is_some() || any(|k| k.tmp_bytes.is_some()) {
        let parts = parts.clone();
        def.resources = Resources::by(move |attrs, inputs, outputs| {
            let ask = |p: &Parsed| asked_resources(&parts, p, inputs, outputs);
            let (bytes, random) = with_parsed(attrs, &parts.op, ask)??;
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
        let device_of = |k: &Arc<KernelDecl>| demanded(&k.matches, &device_in).unwrap_or_default();
        let stays_on_host = parts.kernels.iter().all(|k| device_of(k).is_host());
        def.state = Some(Arc::new(move |attrs, device, shapes, dtypes| {
            let device = if stays_on_host { Context::default() } else { device };
            State::create(&own, attrs, device, shapes, dtypes)
        }));
    }
}

/// Pairs that the operator proposes, and those that all of its kernels do.
fn pairs(parts: &Parts, parsed: &Parsed) -> Result<Vec<InplacePair>> {
    let proposed = |library: &Library, f: abi::CallFn, user| -> Result<Vec<InplacePair>> {
        let frame = Frame::new(parsed).of(library).asking(Asks::InplacePairs);
        let answered = ask(&frame, "inplace", f, user)?;
        Ok(answered.map(|()| frame.into_said().pairs).unwrap_or_default())
    };
    let calls = &parts.op.calls;
    let mut pairs = proposed(&parts.op.library, calls.inplace, calls.user)?;
    let mut common: Option<Vec<InplacePair>> = None;
    for kernel in &parts.kernels {
        let proposed = proposed(&kernel.library, kernel.calls.inplace, kernel.calls.user)?;
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
    let frame = |device: Context, dtype: Option<DType>| {
        let slot = |s: &Shape| Slot::new(s, dtype);
        Frame::with_arrays(parsed, device, ins.iter().map(slot), outs.iter().map(slot))
    };
    let own = frame(Context::default(), None).asking(Asks::Resources);
    call(&own, "resources", parts.op.calls.resources, parts.op.calls.user)?;
    // A plan knows shapes only, and not yet which kernel will run. Each is asked about the device
    // and the dtype of its own condition; one that has no answer to that is asked again when it
    // runs.
    let ask = |kernel: &KernelDecl| {
        let device = demanded(&kernel.matches, &device_in).unwrap_or_default();
        let dtype = demanded(&kernel.matches, &dtype_in).unwrap_or(DType::F32);
        tmp_bytes(kernel, &frame(device, Some(dtype)).of(&kernel.library))
    };
    let most = parts.kernels.iter().filter_map(|k| ask(k).ok()).max().unwrap_or(0);
    let asked = own.into_said();
    Ok((asked.temp_bytes.saturating_add(most), asked.random || parts.op.has(abi::RANDOM)))
}

/// What `found` finds in a condition that is demanded.
fn demanded<T>(condition: &Match, found: &dyn Fn(&Match) -> Option<T>) -> Option<T> {
    match condition {
        Match::And(a, b) => demanded(a, found).or_else(|| demanded(b, found)),
        leaf => found(leaf),
    }
}

fn dtype_in(leaf: &Match) -> Option<DType> {
    if let Match::DTypeOf(_, dtypes) = leaf { dtypes.first().copied() } else { None }
}

fn device_in(leaf: &Match) -> Option<Context> {
    if let Match::Device(kind) = leaf {
        Some(Context { device_type: *kind, device_id: 0 })
    } else {
        None
    }
}

fn add_kernels(def: &mut OpDef, parts: &Parts) -> Result<()> {
    for (i, decl) in parts.kernels.iter().enumerate() {
        let matches = resolved(&decl.matches, &parts.op).map_err(|e| e.in_operator(&def.name))?;
        let twin =
            def.kernels.iter().find(|k| k.matches == matches && k.priority == decl.calls.priority);
        if let Some(twin) = twin {
            return Err(Error::value(format!(
                "two kernels have the condition {matches} at priority {}: '{}' and one more; \
                 expected another condition or priority",
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
    with_parsed(attrs, op, |parsed| {
        let slots = (inputs.iter().map(slot), outputs.iter().map(slot));
        let frame = Frame::with_arrays(parsed, Context::default(), slots.0, slots.1)
            .asking(Asks::Signatures);
        call(&frame, "sbp", op.calls.sbp, op.calls.user)?;
        Ok(frame.into_said().signatures)
    })?
}
