//! What to compute again so that a plan fits a memory limit.

use super::super::plan::{Plan, Planner};
use crate::error::{Error, Result};

/// A plan of at most `limit` bytes, or an error that says the least that can be had.
pub fn within(_planner: &Planner<'_>, unlimited: Plan, limit: usize) -> Result<Plan> {
    let _ = (unlimited, limit);
    Err(Error::not_implemented("memory_limit"))
}
