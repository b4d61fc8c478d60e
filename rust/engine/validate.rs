//! Argument checks of pushes and prepared operations, shared by both engines. Devices are for the
//! caller to check: an engine only passes them on.

use crate::engine::push::{Push, Var};
use crate::error::{Error, Result};
use std::collections::HashSet;

/// Up to this many variables are compared pairwise; more go through a hash set.
const PAIRWISE: usize = 16;

/// The most variables one operation may name.
pub const MAX_VARIABLES: usize = u16::MAX as usize;

/// The most threads of an engine.
pub const MAX_THREADS: usize = if cfg!(loom) { 1 } else { 128 };

/// Refuses a number of threads that is out of range.
pub fn check_threads(n: usize) -> Result<()> {
    if (1..=MAX_THREADS).contains(&n) {
        return Ok(());
    }
    Err(Error::invalid("number of threads", n, format!("1 to {MAX_THREADS}")))
}

/// Refuses a push that overwrites more variables than it writes.
#[inline]
pub fn check_overwrites(push: &Push<'_>) -> Result<()> {
    #[cold]
    fn too_many(push: &Push<'_>) -> Error {
        let (name, all, n) = (push.name, push.overwrites, push.writes.len());
        let expected = format!("at most {n}, the number of variables that it writes");
        Error::value(format!("operation '{name}': invalid overwrites {all}: expected {expected}"))
    }
    if push.overwrites <= push.writes.len() { Ok(()) } else { Err(too_many(push)) }
}

/// Returns true if every variable is named once and there are at most [`MAX_VARIABLES`].
#[inline(always)]
pub fn all_distinct(reads: &[Var], writes: &[Var]) -> bool {
    // As nearly always (`naive`: 18 ns a push; with loops 24).
    match (reads, writes) {
        ([], [_]) => true,
        ([a], [w]) => a != w,
        ([a, b], [w]) => a != b && a != w && b != w,
        _ => are_distinct(reads, writes),
    }
}

fn are_distinct(reads: &[Var], writes: &[Var]) -> bool {
    let n = reads.len() + writes.len();
    if n > PAIRWISE {
        let mut seen = HashSet::with_capacity(n);
        return n <= MAX_VARIABLES && reads.iter().chain(writes).all(|v| seen.insert(v.0));
    }
    let is_new = |(i, v)| !reads[..i].contains(v) && !writes.contains(v);
    reads.iter().enumerate().all(is_new)
        && writes.iter().enumerate().all(|(i, v)| !writes[..i].contains(v))
}

/// Refuses more variables than one operation may name.
pub fn check_count(name: &str, n: usize) -> Result<()> {
    if n <= MAX_VARIABLES {
        return Ok(());
    }
    let text = format!("invalid number of variables {n}: expected at most {MAX_VARIABLES}");
    Err(Error::value(format!("operation '{name}': {text}")))
}

/// Refuses a variable that is named twice, or both read and written, with its positions.
pub fn check_variables(name: &str, reads: &[Var], writes: &[Var]) -> Result<()> {
    let fail = |what: String| Err(Error::value(format!("operation '{name}': {what}")));
    check_count(name, reads.len() + writes.len())?;
    if all_distinct(reads, writes) {
        return Ok(());
    }
    for (i, w) in writes.iter().enumerate() {
        let number = w.number();
        if let Some(j) = writes[..i].iter().position(|v| v == w) {
            return fail(format!("variable {number} is written twice (positions {j} and {i})"));
        }
        if let Some(j) = reads.iter().position(|v| v == w) {
            return fail(format!(
                "variable {number} is both read (position {j}) and written (position {i})"
            ));
        }
    }
    for (i, r) in reads.iter().enumerate() {
        if let Some(j) = reads[..i].iter().position(|v| v == r) {
            let number = r.number();
            return fail(format!("variable {number} is read twice (positions {j} and {i})"));
        }
    }
    Ok(())
}
