//! Operators of neural networks: layers, activations, normalisations, loss heads, matrix products.

mod fully_connected;
mod half;
mod infer;

use crate::operator::{OpDef, Registry};

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] = &[fully_connected::operators];
    for family in families {
        for def in family() {
            registry.add(def).expect("built-in operators have names of their own");
        }
    }
}
