//! Built-in operators, one family a file. Each family has `register(&Registry)`.

pub mod elementwise;
mod higher;
pub mod nn;
pub mod tensor;
#[cfg(test)]
pub mod testing;

use crate::operator::Registry;

/// Registers every built-in operator; called once a registry.
pub fn register_all(registry: &Registry) {
    elementwise::register(registry);
    nn::register(registry);
    tensor::register(registry);
}
