//! Operators made of others: the same computation under another name, with other parameters.
//!
//! What an operator is calculated from is the payload of its parameters. A derived operator has a
//! schema of its own and makes the payload of the original from it, so inference, kernels and
//! gradients of the original serve it unchanged.

use super::def::OpDef;
use super::param::ParamStruct;
use super::recent::Recent;
use super::value::Value;
use crate::error::{Error, Result};
use std::sync::Arc;

/// Parameters of the original, by name.
pub type Mapped = Vec<(&'static str, Value)>;

fn misfit() -> Error {
    Error::parameter("a parameter value does not fit its type")
}

impl OpDef {
    /// The same operator under another name, without aliases, and without a rule for second
    /// derivatives, which may be written for the original's parameters.
    pub fn renamed(&self, name: &str) -> OpDef {
        let (name, aliases, recent) = (name.to_owned(), Vec::new(), Recent::default());
        OpDef { name, aliases, recent, differentiable_gradient: None, ..self.clone() }
    }

    /// The operator with the parameters `P`, of which `map` makes its own.
    pub fn taking<P: ParamStruct>(mut self, map: fn(&P) -> Result<Mapped>) -> OpDef {
        let (schema, typed) = (self.schema.clone(), self.typed.clone());
        self.schema = Arc::new(P::schema());
        self.typed = Arc::new(move |values, _| {
            let own = P::from_values(values).ok_or_else(misfit)?;
            typed(&schema.parse(&map(&own)?)?, &[])
        });
        self
    }

    /// The operator with the parameters `P` as its payload: for one whose functions are replaced
    /// where they read parameters.
    pub fn reading<P: ParamStruct>(mut self) -> OpDef {
        self.schema = Arc::new(P::schema());
        self.typed = Arc::new(|values, _| match P::from_values(values) {
            Some(own) => Ok(Arc::new(own)),
            None => Err(misfit()),
        });
        self
    }
}
