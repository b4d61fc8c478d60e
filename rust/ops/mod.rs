//! Built-in operators, one family a file. Each family has `register(&Registry)`.

pub mod elementwise;
mod higher_order;
pub mod nn;
pub mod tensor;
pub mod vision;
#[cfg(test)]
pub mod testing;

use crate::operator::Registry;

/// A registry with every built-in operator.
pub fn builtins() -> Registry {
    let registry = Registry::default();
    elementwise::register(&registry);
    nn::register(&registry);
    tensor::register(&registry);
    vision::register(&registry);
    registry.end_of_builtins();
    registry
}
