//! Built-in operators, one family a file. Each family has `register(&Registry)`.

mod device;
pub mod elementwise;
mod higher_order;
mod image;
mod linalg;
pub mod nn;
mod numpy;
mod quantized;
pub mod tensor;
#[cfg(test)]
pub mod testing;
pub mod vision;

use crate::operator::Registry;

/// A registry with every built-in operator.
pub fn builtins() -> Registry {
    let registry = Registry::default();
    elementwise::register(&registry);
    nn::register(&registry);
    linalg::register(&registry);
    tensor::register(&registry);
    image::register(&registry);
    vision::register(&registry);
    quantized::register(&registry);
    numpy::register(&registry);
    registry
}
