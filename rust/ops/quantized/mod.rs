//! Operators on 8-bit integers that stand for real numbers: inference in less memory and time.

mod arithmetic;
mod calibration;
pub(in crate::ops) mod conversion;
mod forms;
mod layers;
mod normalisation;
mod ranges;

use super::higher_order::complete;
use crate::operator::{OpDef, Registry};

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] = &[
        conversion::operators,
        layers::operators,
        forms::operators,
        arithmetic::operators,
        normalisation::operators,
        calibration::operators,
    ];
    for def in families.iter().flat_map(|family| family()) {
        registry.add(complete(def)).expect("built-in operators have names of their own");
    }
}
