//! The names in conditions of kernels, resolved by the operator that the kernels are of.

use super::abi;
use super::decl::OpDecl;
use super::reading::MOST_ARRAYS;
use crate::error::{Error, Result};
use crate::operator::{Match, Value};

/// The condition with the names that arrays have in calls; an error names what the operator does
/// not have.
pub fn resolved(condition: &Match, op: &OpDecl) -> Result<Match> {
    let boxed = |m: &Match| resolved(m, op).map(Box::new);
    Ok(match condition {
        Match::Always | Match::Device(_) => condition.clone(),
        Match::DTypeOf(name, dtypes) => Match::DTypeOf(array(name, op)?, dtypes.clone()),
        Match::RankOf(name, how, n) => Match::RankOf(array(name, op)?, *how, *n),
        Match::Attr(name, how, text) => Match::Attr(name.clone(), *how, value(name, text, op)?),
        Match::And(a, b) => Match::And(boxed(a)?, boxed(b)?),
        Match::Or(a, b) => Match::Or(boxed(a)?, boxed(b)?),
        Match::Not(a) => Match::Not(boxed(a)?),
    })
}

/// The name of an array, of which a condition says `argument#number`, or the argument alone.
fn array(name: &str, op: &OpDecl) -> Result<String> {
    let (arg, i) = name.rsplit_once('#').unwrap_or((name, "0"));
    let i: usize = i.parse().unwrap_or(usize::MAX);
    let args = || op.inputs.iter().chain(&op.outputs);
    match args().find(|a| a.name == arg) {
        Some(a) if i < a.count || (a.has(abi::AT_LEAST) && i <= MOST_ARRAYS as usize) => {
            Ok(a.array(i))
        }
        Some(a) => Err(Error::value(format!(
            "invalid condition of a kernel: argument '{arg}' has {} arrays, index {i} is out of \
             range",
            a.count
        ))),
        // The names that `names` will list cannot be known here.
        None if op.calls.names.is_some() => Ok(arg.to_owned()),
        None => {
            let known: Vec<_> = args().map(|a| a.name.as_str()).collect();
            Err(Error::value(format!(
                "invalid argument '{arg}' in the condition of a kernel: expected one of: {}",
                known.join(", ")
            )))
        }
    }
}

/// The value that an attribute is compared with, in the normal form of its kind.
fn value(name: &str, text: &str, op: &OpDecl) -> Result<String> {
    let attr = op.attrs.iter().find(|a| a.field.name == name).ok_or_else(|| {
        let known: Vec<_> = op.attrs.iter().map(|a| a.field.name.as_str()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Error::value(format!(
            "invalid attribute '{name}' in the condition of a kernel: expected one of: {known}"
        ))
    })?;
    let value = attr.field.ty.coerce(&Value::Str(text.to_owned())).ok_or_else(|| {
        Error::value(format!(
            "invalid value '{text}' of attribute '{name}' in the condition of a kernel: expected \
             {}",
            attr.field.ty.display()
        ))
    })?;
    Ok(value.to_string())
}
