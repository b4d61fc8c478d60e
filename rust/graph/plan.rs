//! The plan of a symbol: [`plan`] runs the passes in the order that [`passes`] documents.

use super::passes::{self, mirror::Mirror};
use super::planner::{Plan, Planner, prepare};
use super::request::PlanRequest;
use crate::error::Result;

/// Plans a symbol; within the memory limit of the request, or an error says the least that it
/// takes.
pub fn plan(request: &PlanRequest) -> Result<Plan> {
    let forward = prepare(request)?;
    let mirror = Mirror::by_attributes(&forward.graph, request.options.mirrored_step());
    let unlimited = Planner { request, forward: &forward }.finish(&mirror)?;
    match request.memory_limit {
        Some(limit) if unlimited.total_arena_bytes() > limit => {
            let planner = Planner { request, forward: &forward };
            passes::recompute::within(&planner, &mirror, unlimited, limit)
        }
        _ => Ok(unlimited),
    }
}
