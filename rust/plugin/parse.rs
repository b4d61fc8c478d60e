//! Reading the attributes of a call: what the library makes of them, once for every set.

use super::abi;
use super::call::{call, make};
use super::counts::{counts, schema};
use super::decl::{ArgDecl, OpDecl, check_hidden};
use super::frame::{Asks, Frame};
use super::library::Owned;
use super::parsed::Parsed;
use super::values::Values;
use crate::error::{Error, Result};
use crate::operator::{Attrs, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// An operator's view of values in normal form: those of the attributes, then the counts of
/// arrays.
pub fn parse(op: &Arc<OpDecl>, values: &[Value]) -> Result<Parsed> {
    let (own, more) = values.split_at(op.attrs.len().min(values.len()));
    let counts = counts(op, own, more)?;
    let names = |args: &[ArgDecl], counts: &[usize]| {
        let arrays = args.iter().zip(counts);
        arrays.flat_map(|(a, n)| (0..*n).map(|i| (a.array(i), a.flags))).collect()
    };
    let names = [names(&op.inputs, &counts[0]), names(&op.outputs, &counts[1])];
    let mut parsed = Parsed::new(op.clone(), Values::new(&op.attrs, own)?, counts, names);
    let user = op.calls.user;
    let made = make(&Frame::new(&parsed), "parse", op.calls.parse, user)?;
    parsed.made = made.map(|made| Owned::new(made, op.calls.free_parsed, &op.library));
    call(&Frame::new(&parsed), "check", op.calls.check, user)?;
    if op.calls.names.is_some() {
        let frame = Frame::new(&parsed).asking(Asks::Names);
        call(&frame, "names", op.calls.names, user)?;
        let listed = frame.into_said().names;
        parsed.names = checked_names(listed)?;
    }
    Ok(parsed)
}

/// Calls `f` with the reading of `attrs` by `op`, whose own they are, or a forward operator's.
#[inline]
pub fn with_parsed<R>(attrs: &Attrs, op: &Arc<OpDecl>, f: impl FnOnce(&Parsed) -> R) -> Result<R> {
    let parsed = attrs.typed().downcast_ref::<Parsed>().ok_or_else(|| {
        Error::internal("an operator of a library was given the attributes of another one")
    })?;
    if Arc::ptr_eq(&parsed.op, op) || parsed.op.name == op.name {
        return Ok(f(parsed));
    }
    Ok(f(&*other(parsed, attrs, op)?))
}

/// The reading of another operator's attributes.
fn other(parsed: &Parsed, attrs: &Attrs, op: &Arc<OpDecl>) -> Result<Arc<Parsed>> {
    let mut others = parsed.others.lock();
    if let Some(known) = others.iter().find(|p| Arc::ptr_eq(&p.op, op)) {
        return Ok(known.clone());
    }
    let schema = schema(op);
    let known = |name: &str| schema.fields.iter().any(|f| f.name == name);
    let given = attrs.given().iter().filter(|(k, _)| known(k));
    let given: Vec<_> = given.map(|(k, v)| (k.as_str(), v.clone())).collect();
    let values = schema.parse(&given).map_err(|e| e.in_operator(&op.name))?;
    let fresh = Arc::new(parse(op, &values)?);
    others.push(fresh.clone());
    Ok(fresh)
}

/// Names that `names` listed: distinct, hidden outputs last.
fn checked_names(listed: [Vec<(String, u32)>; 2]) -> Result<[Vec<(String, u32)>; 2]> {
    for side in &listed {
        let mut known = HashSet::with_capacity(side.len());
        for (name, _) in side {
            if name.is_empty() || !known.insert(name) {
                return Err(Error::value(format!(
                    "invalid name '{name}', which 'names' listed: expected distinct names"
                )));
            }
        }
    }
    let hidden = |output: &(String, u32)| output.1 & abi::HIDDEN != 0;
    check_hidden(listed[1].iter().map(|output| (output.0.as_str(), hidden(output))))?;
    Ok(listed)
}
