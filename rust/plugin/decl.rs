//! What a library said of an operator, a kernel and a gradient: checked copies of the descriptions
//! of `plugin.h`, which keep nothing of the library but functions and `user` pointers.

use super::abi;
use super::condition::condition;
use super::library::Library;
use super::reading::{MOST_ARRAYS, damaged, needed, structs, texts};
use crate::error::{Error, Result};
use crate::operator::{ARG_COUNTS, CountedArg, Field, FieldType, Match, Value, dtype_names};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Inputs of operators that take any number are counted by this parameter, unless they name one.
pub const NUM_ARGS: &str = "num_args";

/// The parameter that counts the arrays of each output argument.
pub const OUT_COUNTS: &str = "out_counts";

/// Keywords of every call by name.
const KEYWORDS: [&str; 4] = ["name", "out", "ctx", "attr"];

/// An input or output argument.
#[derive(Clone, Debug)]
pub struct ArgDecl {
    pub name: String,
    pub doc: String,
    pub count: usize,
    pub flags: u32,
}

impl ArgDecl {
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if the number of arrays is the same for every call.
    pub fn is_fixed(&self) -> bool {
        !self.has(abi::OPTIONAL | abi::AT_LEAST)
    }

    /// The least number of arrays.
    pub fn least(&self) -> usize {
        if self.has(abi::OPTIONAL) { 0 } else { self.count }
    }

    /// The name of array `i`.
    pub fn array(&self, i: usize) -> String {
        if self.count == 1 && !self.has(abi::AT_LEAST) {
            self.name.clone()
        } else {
            format!("{}_{i}", self.name)
        }
    }
}

/// An attribute.
#[derive(Clone, Debug)]
pub struct AttrDecl {
    pub kind: i32,
    pub field: Field,
}

/// An operator.
pub struct OpDecl {
    pub name: String,
    pub doc: String,
    pub aliases: Vec<String>,
    pub inputs: Vec<ArgDecl>,
    pub outputs: Vec<ArgDecl>,
    pub attrs: Vec<AttrDecl>,
    /// The attribute that counts the inputs.
    pub count_attr: Option<String>,
    pub flags: u32,
    /// Functions and `user`; pointers to descriptions are not followed any more.
    pub calls: abi::Op,
    pub library: Arc<Library>,
}

// SAFETY: `plugin.h` says that callbacks and `user` may be used from any thread.
unsafe impl Send for OpDecl {}
// SAFETY: as above.
unsafe impl Sync for OpDecl {}

/// A kernel.
pub struct KernelDecl {
    pub op: String,
    pub name: String,
    pub matches: Match,
    pub calls: abi::Kernel,
    pub library: Arc<Library>,
}

// SAFETY: as for `OpDecl`.
unsafe impl Send for KernelDecl {}
// SAFETY: as for `OpDecl`.
unsafe impl Sync for KernelDecl {}

/// A gradient.
pub struct GradDecl {
    pub op: String,
    pub backward: String,
    pub calls: abi::Grad,
    pub library: Arc<Library>,
}

// SAFETY: as for `OpDecl`.
unsafe impl Send for GradDecl {}
// SAFETY: as for `OpDecl`.
unsafe impl Sync for GradDecl {}

/// Returns true if Python takes the name for an argument.
fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && letters.all(|c| c.is_alphanumeric() || c == '_')
}

impl OpDecl {
    /// Reads a description.
    ///
    /// # Safety
    /// `from` is as `plugin.h` says.
    pub unsafe fn read(from: *const abi::Op, library: &Arc<Library>) -> Result<OpDecl> {
        // SAFETY: the caller's promise, here and below.
        let (calls, _) = unsafe { abi::read(from) }.ok_or_else(|| damaged("operator"))?;
        // SAFETY: as above.
        let name = unsafe { needed(calls.name, "operator name") }?;
        // SAFETY: as above.
        unsafe { Self::read_named(&calls, &name, library) }.map_err(|e| e.in_operator(&name))
    }

    /// # Safety
    /// As [`OpDecl::read`].
    unsafe fn read_named(calls: &abi::Op, name: &str, library: &Arc<Library>) -> Result<OpDecl> {
        // SAFETY: the caller's promise, here and below.
        let (inputs, outputs) = unsafe {
            (
                structs(calls.inputs, calls.n_inputs, "inputs")?,
                structs(calls.outputs, calls.n_outputs, "outputs")?,
            )
        };
        // SAFETY: as above.
        let attrs = unsafe { structs(calls.attrs, calls.n_attrs, "attributes") }?;
        // SAFETY: as above.
        let decl = unsafe {
            OpDecl {
                name: name.to_owned(),
                doc: abi::text(calls.doc).unwrap_or_default(),
                aliases: texts(calls.aliases, calls.n_aliases, "aliases")?,
                inputs: inputs.iter().map(|a| arg(a, "input")).collect::<Result<_>>()?,
                outputs: outputs.iter().map(|a| arg(a, "output")).collect::<Result<_>>()?,
                attrs: attrs.iter().map(|a| attr(a)).collect::<Result<_>>()?,
                count_attr: abi::text(calls.count_attr),
                flags: calls.flags,
                calls: *calls,
                library: library.clone(),
            }
        };
        decl.check()?;
        Ok(decl)
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub fn args(&self, side: i32) -> &[ArgDecl] {
        if side == abi::INPUT { &self.inputs } else { &self.outputs }
    }

    /// The input arguments as calls share arrays out among them.
    pub fn counted_inputs(&self) -> Vec<CountedArg> {
        let one = |a: &ArgDecl| CountedArg {
            name: a.name.clone(),
            count: a.count,
            optional: a.has(abi::OPTIONAL),
            open: a.has(abi::AT_LEAST),
        };
        self.inputs.iter().map(one).collect()
    }

    /// The parameter that counts the inputs where their number varies.
    pub fn counted_by(&self) -> &str {
        self.count_attr.as_deref().unwrap_or(NUM_ARGS)
    }

    /// Returns true if parameters count the inputs.
    pub fn has_variable_inputs(&self) -> bool {
        self.inputs.iter().any(|a| !a.is_fixed())
    }

    /// Returns true if parameters count the outputs.
    pub fn has_variable_outputs(&self) -> bool {
        self.outputs.iter().any(|a| !a.is_fixed())
    }

    /// Returns true if the operator has SBP signatures.
    pub fn has_signatures(&self) -> bool {
        self.calls.sbp.is_some()
    }

    fn check(&self) -> Result<()> {
        self.check_names()?;
        self.check_functions()
    }

    fn check_names(&self) -> Result<()> {
        let args = self.inputs.iter().chain(&self.outputs).map(|a| &a.name);
        let mut known = HashSet::new();
        for name in args.chain(self.attrs.iter().map(|a| &a.field.name)) {
            if !known.insert(name) || *name == self.name || name == "tmp_buffer" {
                return Err(Error::value(format!(
                    "invalid name '{name}': expected another one for every input, output and \
                     attribute, and neither the operator's own nor tmp_buffer"
                )));
            }
            if !is_identifier(name) {
                return Err(Error::value(format!(
                    "invalid name '{name}': expected letters, digits and _, not beginning with a \
                     digit"
                )));
            }
        }
        for name in self.attrs.iter().map(|a| &a.field.name) {
            if self.is_taken(name) && self.count_attr.as_ref() != Some(name) {
                return Err(Error::value(format!(
                    "invalid name '{name}': expected another one, since every call has a use of \
                     its own for it"
                )));
            }
        }
        let counting = [NUM_ARGS, ARG_COUNTS];
        let counting = self.inputs.iter().find(|a| counting.contains(&a.name.as_str()));
        if let Some(input) = counting.filter(|_| self.has_variable_inputs()) {
            return Err(Error::value(format!(
                "invalid input name '{}': expected another one, since the parameter of this name \
                 counts the arrays of inputs that may be absent or any number",
                input.name
            )));
        }
        let count = self.count_attr.as_ref().filter(|count| {
            !self.attrs.iter().any(|a| a.field.name == **count && abi::kind::is_integer(a.kind))
        });
        if let Some(count) = count {
            return Err(Error::value(format!(
                "invalid count_attr '{count}': expected one of the operator's attributes, of a \
                 kind of integers"
            )));
        }
        check_arrays(&self.inputs)?;
        check_arrays(&self.outputs)?;
        check_hidden(self.outputs.iter().map(|a| (a.name.as_str(), a.has(abi::HIDDEN))))
    }

    /// Returns true if every call has a use of its own for a parameter of this name.
    fn is_taken(&self, name: &str) -> bool {
        (KEYWORDS.contains(&name) && !self.has(abi::BACKWARD))
            || (self.has_variable_inputs() && [NUM_ARGS, ARG_COUNTS].contains(&name))
            || (self.has_variable_outputs() && name == OUT_COUNTS)
    }

    fn check_functions(&self) -> Result<()> {
        if self.outputs.is_empty() && self.calls.names.is_none() && !self.has(abi::BACKWARD) {
            return Err(Error::value("invalid outputs: expected at least one, got none"));
        }
        let infers = self.calls.infer.is_some()
            || (self.calls.infer_shape.is_some() && self.calls.infer_type.is_some());
        if !infers && !self.has(abi::ELEMENTWISE | abi::BACKWARD) {
            return Err(Error::value(
                "invalid operator without inference: expected infer, or infer_shape and infer_type",
            ));
        }
        Ok(())
    }
}

/// Refuses arrays of arguments that would have the same name, such as array 1 of `x` and an
/// argument `x_1`.
fn check_arrays(args: &[ArgDecl]) -> Result<()> {
    let is_many = |a: &&ArgDecl| a.count > 1 || a.has(abi::AT_LEAST);
    let many: HashMap<_, _> = args.iter().filter(is_many).map(|a| (a.name.as_str(), a)).collect();
    for one in args.iter().filter(|a| !is_many(a)) {
        let Some((stem, number)) = one.name.rsplit_once('_') else { continue };
        let has =
            |a: &ArgDecl, i: usize| (i < a.count || a.has(abi::AT_LEAST)) && a.array(i) == one.name;
        if many.get(stem).is_some_and(|a| number.parse().is_ok_and(|i| has(a, i))) {
            return Err(Error::value(format!(
                "invalid name '{}': expected another one, since arrays of argument '{stem}' have \
                 names like this",
                one.name
            )));
        }
    }
    Ok(())
}

/// Refuses a visible output after a hidden one.
pub fn check_hidden<'a>(outputs: impl Iterator<Item = (&'a str, bool)>) -> Result<()> {
    let mut last = None;
    for (name, is_hidden) in outputs {
        match last {
            _ if is_hidden => last = Some(name),
            None => {}
            Some(hidden) => {
                return Err(Error::value(format!(
                    "invalid output '{name}' after the hidden output '{hidden}': expected hidden \
                     outputs last"
                )));
            }
        }
    }
    Ok(())
}

/// An argument of kind `what`.
///
/// # Safety
/// As [`OpDecl::read`].
unsafe fn arg(from: &abi::Arg, what: &str) -> Result<ArgDecl> {
    // SAFETY: the caller's promise.
    let name = unsafe { needed(from.name, &format!("{what} name")) }?;
    if !(0..=MOST_ARRAYS).contains(&from.count) {
        return Err(Error::value(format!(
            "invalid count {} of {what} '{name}': expected 0 to {MOST_ARRAYS}",
            from.count
        )));
    }
    // SAFETY: the caller's promise.
    let doc = unsafe { abi::text(from.doc) }.unwrap_or_default();
    Ok(ArgDecl { name, doc, count: from.count.max(1) as usize, flags: from.flags })
}

/// # Safety
/// As [`OpDecl::read`].
unsafe fn attr(from: &abi::Attr) -> Result<AttrDecl> {
    // SAFETY: the caller's promise, here and below.
    let (name, doc, default) = unsafe {
        (needed(from.name, "attribute name")?, abi::text(from.doc), abi::text(from.dflt))
    };
    // SAFETY: as above.
    let choices = unsafe { texts(from.choices, from.n_choices, "choices") }?;
    if from.kind == abi::kind::ENUM && choices.is_empty() {
        return Err(Error::value(format!(
            "invalid choices of attribute '{name}': expected one or more, since its kind is \
             RSNET_ENUM"
        )));
    }
    let inner = field_type(from.kind, choices).ok_or_else(|| {
        let (kind, last) = (from.kind, abi::kind::LIST_MAYBE_I64);
        Error::value(format!("invalid kind {kind} of attribute '{name}': expected 1 to {last}"))
    })?;
    let optional = from.flags & abi::MAY_BE_NONE != 0;
    let ty = if optional { FieldType::Optional(Box::new(inner)) } else { inner };
    let bound = |flag, value| (from.flags & flag != 0).then_some(value);
    let range = (bound(abi::HAS_LOW, from.low), bound(abi::HAS_HIGH, from.high));
    let doc = doc.unwrap_or_default();
    let mut field = Field { name, ty, default: None, doc, range };
    if let Some(text) = default {
        let value = field.parse(&Value::Str(text.clone())).map_err(|e| {
            Error::value(format!(
                "invalid default '{text}' of attribute '{}': {}",
                field.name,
                e.message()
            ))
        })?;
        field.default = Some(value);
    }
    Ok(AttrDecl { kind: from.kind, field })
}

fn field_type(kind: i32, choices: Vec<String>) -> Option<FieldType> {
    use abi::kind::*;
    let list = |inner| FieldType::List(Box::new(inner));
    Some(match kind {
        I32 => FieldType::Int,
        I64 => FieldType::Long,
        U32 => FieldType::UInt,
        U64 => FieldType::ULong,
        BOOL => FieldType::Bool,
        F32 => FieldType::Float,
        F64 => FieldType::Double,
        STR => FieldType::Str,
        SHAPE | LIST_I64 => FieldType::Shape,
        DTYPE => FieldType::Enum(dtype_names()),
        LIST_I32 => list(FieldType::Int),
        LIST_F32 => FieldType::FloatTuple,
        LIST_F64 => list(FieldType::Double),
        LIST_MAYBE_I64 => FieldType::OptIntTuple,
        LIST_DTYPE => list(FieldType::Enum(dtype_names())),
        LIST_SHAPE => list(FieldType::Shape),
        LIST_STR => list(FieldType::Str),
        ENUM => FieldType::Enum(choices),
        _ => return None,
    })
}

impl KernelDecl {
    /// Reads a description.
    ///
    /// # Safety
    /// `from` is as `plugin.h` says.
    pub unsafe fn read(from: *const abi::Kernel, library: &Arc<Library>) -> Result<KernelDecl> {
        // SAFETY: the caller's promise, here and below.
        let (calls, _) = unsafe { abi::read(from) }.ok_or_else(|| damaged("kernel"))?;
        // SAFETY: as above.
        let (op, name) =
            unsafe { (needed(calls.op, "operator name of a kernel")?, abi::text(calls.name)) };
        if calls.compute.is_none() {
            return Err(Error::value("invalid kernel: expected a function 'compute', got null")
                .in_operator(&op));
        }
        // SAFETY: as above.
        let matches = unsafe { condition(calls.program, calls.n_match) };
        Ok(KernelDecl {
            matches: matches.map_err(|e| e.in_operator(&op))?,
            name: name.unwrap_or_default(),
            op,
            calls,
            library: library.clone(),
        })
    }
}

impl GradDecl {
    /// Reads a description.
    ///
    /// # Safety
    /// `from` is as `plugin.h` says.
    pub unsafe fn read(from: *const abi::Grad, library: &Arc<Library>) -> Result<GradDecl> {
        // SAFETY: the caller's promise, here and below.
        let (calls, _) = unsafe { abi::read(from) }.ok_or_else(|| damaged("gradient"))?;
        // SAFETY: as above.
        let (op, backward) = unsafe {
            (needed(calls.op, "operator name of a gradient")?, abi::text(calls.backward))
        };
        let fits = match calls.kind {
            abi::GRAD_RULE => calls.rule.is_some(),
            abi::GRAD_BACKWARD => backward.as_deref().is_some_and(|b| !b.is_empty()),
            abi::GRAD_ZERO => true,
            _ => false,
        };
        if !fits {
            return Err(Error::value(
                "invalid gradient: expected a rule, the name of a backward operator, or zero",
            )
            .in_operator(&op));
        }
        let backward = backward.unwrap_or_default();
        Ok(GradDecl { op, backward, calls, library: library.clone() })
    }
}
