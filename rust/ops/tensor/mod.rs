//! Operators on arrays as such: shapes, parts, reductions, creation, random numbers, optimizer
//! updates.

mod choosing;
pub mod common;
pub(in crate::ops) mod creation;
pub(in crate::ops) mod distributions;
pub(in crate::ops) mod extras;
mod given;
pub(in crate::ops) mod indexing;
pub(in crate::ops) mod movement;
pub(in crate::ops) mod moves;
pub(in crate::ops) mod optimizer;
pub(in crate::ops) mod order;
pub(in crate::ops) mod parts;
mod polygamma;
pub(in crate::ops) mod random;
pub(in crate::ops) mod reduce;
pub(in crate::ops) mod running;
pub(in crate::ops) mod shape;
mod signal;
pub(in crate::ops) mod updates;

use super::higher_order::complete;
use crate::error::Result;
use crate::operator::{Call, Kernel, OpDef, OpReq, Registry};

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] = &[
        shape::operators,
        parts::operators,
        reduce::operators,
        creation::operators,
        random::operators,
        optimizer::operators,
        movement::operators,
        indexing::operators,
        choosing::operators,
        order::operators,
        distributions::operators,
        updates::operators,
        extras::operators,
        running::operators,
        signal::operators,
        given::operators,
        polygamma::operators,
    ];
    for def in families.iter().flat_map(|family| family()) {
        registry.add(complete(def)).expect("built-in operators have names of their own");
    }
}

/// A CPU kernel that is not run when no output is wanted.
fn kernel(f: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static) -> Kernel {
    Kernel::cpu(
        move |call| {
            if call.req.iter().all(|r| *r == OpReq::Null) { Ok(()) } else { f(call) }
        },
    )
    .skips_null()
}
