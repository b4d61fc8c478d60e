//! The conditions of kernels: programs of `plugin.h` as [`Match`]es.

use super::abi;
use super::dtypes::{dtype_from, dtype_text};
use super::reading::{checked_count, needed};
use crate::context::DeviceType;
use crate::error::{Error, Result};
use crate::operator::{Compare, Match};

/// The deepest nesting of conditions.
const DEEPEST: usize = 1000;

/// A condition from its program.
///
/// # Safety
/// `program` has `n` steps with texts that are null or end with 0.
pub unsafe fn condition(program: *const abi::Match, n: i32) -> Result<Match> {
    let n = checked_count(n, "conditions")?;
    let wrong = |why: &str| Error::value(format!("invalid condition of a kernel: {why}"));
    if n == 0 {
        return Ok(Match::Always);
    }
    if program.is_null() {
        return Err(wrong("it has a length, but no program"));
    }
    // Conditions, and how deep each is nested.
    let mut stack: Vec<(Match, usize)> = Vec::new();
    for i in 0..n {
        // SAFETY: the program has `n` steps, as the caller promises.
        let step = unsafe { *program.add(i) };
        let mut depth = 0;
        let mut pop = || {
            let (part, deep) =
                stack.pop().ok_or_else(|| wrong("a connective has nothing to connect"))?;
            depth = depth.max(deep + 1);
            Ok(Box::new(part))
        };
        let made = match step.op {
            abi::matching::AND | abi::matching::OR => {
                let (right, left) = (pop()?, pop()?);
                if step.op == abi::matching::AND {
                    Match::And(left, right)
                } else {
                    Match::Or(left, right)
                }
            }
            abi::matching::NOT => Match::Not(pop()?),
            // SAFETY: as above.
            _ => unsafe { leaf(&step) }?,
        };
        if depth > DEEPEST {
            return Err(wrong(&format!("it is nested deeper than {DEEPEST} times")));
        }
        stack.push((made, depth));
    }
    match (stack.pop(), stack.is_empty()) {
        (Some((condition, _)), true) => Ok(condition),
        _ => Err(wrong("the program leaves several values, expected one")),
    }
}

/// # Safety
/// As [`condition`].
unsafe fn leaf(step: &abi::Match) -> Result<Match> {
    const COMPARES: [Compare; 6] =
        [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge];
    let wrong = |why: String| Error::value(format!("invalid condition of a kernel: {why}"));
    // SAFETY: texts of the library.
    let name = || unsafe { needed(step.name, "name in a condition of a kernel") };
    let compare = || {
        let found = usize::try_from(step.compare).ok().and_then(|i| COMPARES.get(i));
        found.copied().ok_or_else(|| {
            wrong(format!("comparison {} is unknown, expected 0 to 5", step.compare))
        })
    };
    Ok(match step.op {
        abi::matching::TRUE => Match::Always,
        abi::matching::DEVICE => {
            let device = i32::try_from(step.number).ok().and_then(DeviceType::from_id);
            Match::Device(
                device.ok_or_else(|| wrong(format!("device {} is unknown", step.number)))?,
            )
        }
        abi::matching::DTYPE => {
            let dtype = dtype_from(step.dtype).ok_or_else(|| {
                wrong(format!("dtype {} is not one of rsnet's", dtype_text(step.dtype)))
            })?;
            Match::DTypeOf(array_name(&name()?, step.index), vec![dtype])
        }
        abi::matching::NDIM => {
            let rank = usize::try_from(step.number)
                .map_err(|_| wrong(format!("number of axes {} is negative", step.number)))?;
            Match::RankOf(array_name(&name()?, step.index), compare()?, rank)
        }
        abi::matching::ATTR => {
            // SAFETY: as above.
            let text = unsafe { abi::text(step.text) }.unwrap_or_default();
            Match::Attr(name()?, compare()?, text)
        }
        other => return Err(wrong(format!("step {other} is unknown, expected 1 to 8"))),
    })
}

/// An array in a condition, until [`resolved`] knows the operator's arguments.
fn array_name(arg: &str, i: i32) -> String {
    format!("{arg}#{i}")
}
