//! The names in conditions of kernels, resolved by the operator that the kernels are of.

use super::abi;
use super::decl::OpDecl;
use super::reading::MOST_ARRAYS;
use crate::error::{Error, Result};
use crate::operator::{Match, Value};

/// The condition with the names that arrays have in calls; an error names what the operator does
/// not have.
pub fn resolved(condition: &Match, op: &OpDecl) -> Result<Match> {
    let array = |name: &str| {
        let (arg, i) = name.rsplit_once('#').unwrap_or((name, "0"));
        let i: usize = i.parse().unwrap_or(usize::MAX);
        let mut args = op.inputs.iter().chain(&op.outputs);
        let found = args.find(|a| a.name == arg);
        match found {
            Some(a) if i < a.count || (a.has(abi::AT_LEAST) && i <= MOST_ARRAYS as usize) => {
                Ok(a.array(i))
            }
            Some(a) => Err(Error::value(format!(
                "invalid condition of a kernel: argument '{arg}' has {} arrays, index {i} is out \
                 of range",
                a.count
            ))),
            // What `names` will list cannot be known here.
            None if op.calls.names.is_some() => Ok(arg.to_owned()),
            None => {
                let known = op.inputs.iter().chain(&op.outputs).map(|a| a.name.as_str());
                Err(Error::value(format!(
                    "invalid argument '{arg}' in the condition of a kernel: expected one of: {}",
                    known.collect::<Vec<_>>().join(", ")
                )))
            }
        }
    };
    let boxed = |m: &Match| resolved(m, op).map(Box::new);
    Ok(match condition {
        Match::Always | Match::Device(_) => condition.clone(),
        Match::DTypeOf(name, dtypes) => Match::DTypeOf(array(name)?, dtypes.clone()),
        Match::RankOf(name, how, n) => Match::RankOf(array(name)?, *how, *n),
        Match::Attr(name, how, text) => {
            let known = op.attrs.iter().find(|a| a.field.name == *name).ok_or_else(|| {
                let known: Vec<_> = op.attrs.iter().map(|a| a.field.name.as_str()).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                Error::value(format!(
                    "invalid attribute '{name}' in the condition of a kernel: expected one of: {known}"
                ))
            })?;
            let value = known.field.ty.coerce(&Value::Str(text.clone())).ok_or_else(|| {
                Error::value(format!(
                    "invalid value '{text}' of attribute '{name}' in the condition of a kernel: \
                     expected {}",
                    known.field.ty.display()
                ))
            })?;
            Match::Attr(name.clone(), *how, value.to_string())
        }
        Match::And(a, b) => Match::And(boxed(a)?, boxed(b)?),
        Match::Or(a, b) => Match::Or(boxed(a)?, boxed(b)?),
        Match::Not(a) => Match::Not(boxed(a)?),
    })
}
