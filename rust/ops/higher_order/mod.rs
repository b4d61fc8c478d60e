//! Gradients that can be differentiated again.
//!
//! A backward operator is one fast kernel without a gradient of its own. Two tables by operator
//! name make higher derivatives:
//! - [`functions`]: the gradient as an expression of ordinary operators. The tape uses it instead
//!   of the backward operator when the gradient itself is recorded (`create_graph`), so any order
//!   of derivatives follows. [`norms`] has those of normalisations, [`densities`] those of
//!   densities, [`layers`] those of operators with several inputs or hidden outputs.
//! - [`linear`]: a backward operator that is linear in its inputs (of slicing, sums, matrix
//!   products ...) is differentiated by running the operator itself.

mod densities;
mod expr;
mod functions;
mod layers;
mod linear;
mod norms;

use crate::operator::{Gradient, OpDef};

/// Adds what the tables by operator name have for `def`: the gradients below, and kernels for
/// devices.
pub fn complete(mut def: OpDef) -> OpDef {
    if def.is_backward {
        if matches!(def.gradient, Gradient::None)
            && let Some(gradient) = linear::gradient(&def.name)
        {
            def.gradient = gradient;
        }
    } else if matches!(def.gradient, Gradient::Backward { .. }) {
        def.differentiable_gradient = layers::rule(&def.name)
            .or_else(|| functions::rule(&def.name))
            .or_else(|| norms::rule(&def.name))
            .or_else(|| densities::rule(&def.name))
            .or(def.differentiable_gradient.take());
    }
    super::device::complete(def)
}
