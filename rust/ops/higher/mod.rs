//! Gradients that can be differentiated again.
//!
//! A backward operator is one fast kernel, which ends the chain: it has no gradient of its own. Two ways lead
//! on, both tables by operator name:
//! - [`functions`]: the gradient written as an expression of ordinary operators. The tape uses it in place of
//!   the backward operator when the gradient itself is recorded (`create_graph`), so any order of
//!   derivatives follows. [`norms`] has those of normalisations, [`layers`] of what has several inputs or hidden outputs.
//! - [`linear`]: a backward operator that is linear in what it gets (of slicing, sums, matrix products ...) is
//!   differentiated by running the operator itself.

mod expr;
mod functions;
mod layers;
mod linear;
mod norms;

use crate::operator::{Gradient, OpDef};

/// Adds what the tables know of `def`.
pub fn complete(mut def: OpDef) -> OpDef {
    if def.is_backward {
        if matches!(def.gradient, Gradient::None)
            && let Some(gradient) = linear::gradient(&def.name)
        {
            def.gradient = gradient;
        }
    } else if matches!(def.gradient, Gradient::Backward { .. }) {
        def.composed = layers::rule(&def.name)
            .or_else(|| functions::rule(&def.name))
            .or_else(|| norms::rule(&def.name));
    }
    def
}
