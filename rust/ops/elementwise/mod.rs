//! Element-wise operators, each a row of a table: one array (`unary`), two arrays of equal shape,
//! two arrays that are broadcast, an array and a number (`binary`).

pub mod binary;
pub mod sum_n;
mod unary;

pub(in crate::ops) use unary::formulas as unary_formulas;

use super::higher_order::complete;
use crate::operator::{OpDef, Registry};

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] = &[unary::operators, binary::operators, sum_n::operators];
    for def in families.iter().flat_map(|family| family()) {
        registry.add(complete(def)).expect("built-in operators have names of their own");
    }
}
