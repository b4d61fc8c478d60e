//! An operator as the gradient, or a part of it, of another operator.

use super::def::OpDef;
use super::gradient::Gradient;
use super::param::Attrs;
use super::registry::Registry;
use super::value::Value;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use std::sync::Arc;

/// How an operator named by a gradient runs.
pub struct InGradient {
    pub attrs: Arc<Attrs>,
    /// True if it runs as anywhere else: without the node's state, and with inferred outputs.
    pub alone: bool,
}

impl OpDef {
    /// Returns true if the backward operator updates auxiliary states, such as moving averages. It
    /// then runs in every training step: where no gradient arrives, with zeros.
    pub fn updates_states_backward(&self, attrs: &Attrs, registry: &Registry) -> bool {
        let Gradient::Backward { op, .. } = &self.gradient else { return false };
        !self.mutates.is_never()
            && registry.get(op).is_some_and(|backward| {
                backward.is_backward && !backward.mutates.to_vec(attrs).is_empty()
            })
    }

    /// `params` of a call with `n` inputs, with the parameter that counts them filled in.
    pub fn with_count<'a>(
        &'a self,
        mut params: Vec<(&'a str, Value)>,
        n: usize,
    ) -> Vec<(&'a str, Value)> {
        if let Some(count) = self.key_var_num_args.as_deref()
            && !params.iter().any(|p| p.0 == count)
        {
            params.push((count, Value::Int(n as i64)));
        }
        params
    }

    /// Returns whether `name` is one of the operator's parameters.
    pub fn has_param(&self, name: &str) -> bool {
        self.schema.fields.iter().any(|f| f.name == name)
    }

    /// Of the parameters that a gradient rule sets on this backward operator those that say
    /// something: not those that the node of operator `of` was given so itself, nor those that only
    /// that operator has.
    pub fn own_params<'a>(
        &self,
        of: &OpDef,
        attrs: &Attrs,
        mut params: Vec<(&'a str, Value)>,
    ) -> Vec<(&'a str, Value)> {
        let is_given = |name: &str, text: &str| {
            attrs.given().iter().any(|(k, v)| k == name && v.to_string() == text)
        };
        params.retain(|(name, value)| match self.has_param(name) {
            true => !is_given(name, &value.to_string()),
            false => !of.has_param(name),
        });
        params
    }

    /// The parameters of this backward operator where a gradient rule sets `own` ones: beside them
    /// those of the node that it has, too. Nothing if there are no own ones.
    pub fn attrs_in_gradient(
        &self,
        attrs: &Attrs,
        own: &[(&str, Value)],
        n_inputs: usize,
    ) -> Result<Option<Arc<Attrs>>> {
        if own.is_empty() {
            return Ok(None);
        }
        let is_kept = |name: &str| self.has_param(name) && !own.iter().any(|o| o.0 == name);
        let kept = attrs.given().iter().filter(|(k, _)| is_kept(k));
        let mut params: Vec<_> = kept.map(|(k, v)| (k.as_str(), v.clone())).collect();
        params.extend(own.iter().cloned());
        self.parse_shared(&self.with_count(params, n_inputs)).map(Some)
    }

    /// This operator as the gradient, or a part of it, of a node of operator `of` with parameters
    /// `attrs`: it has the same texts for parameters, but for its `own` ones. A family of operators
    /// shares what was parsed of them; any other operator parses them for itself, and then counts
    /// its own inputs. Errors are for the caller to place.
    pub fn in_gradient_of(
        &self,
        of: &OpDef,
        attrs: &Arc<Attrs>,
        own: &[(&str, Value)],
        n_inputs: usize,
        n_wanted: usize,
    ) -> Result<InGradient> {
        let parsed = self.attrs_in_gradient(attrs, own, n_inputs);
        if let Some(attrs) = parsed.map_err(|e| self.refused_by(of, e))? {
            return Ok(InGradient { attrs, alone: !self.is_backward });
        }
        let native = self.is_native();
        if native == of.is_native() && (native || self.is_backward) {
            return Ok(InGradient { attrs: attrs.clone(), alone: false });
        }
        let count = self.key_var_num_args.as_deref();
        let given = attrs.given().iter().filter(|(k, _)| Some(k.as_str()) != count);
        let given = given.map(|(k, v)| (k.as_str(), v.clone())).collect();
        let attrs = self.parse_shared(&self.with_count(given, n_inputs));
        let attrs = attrs.map_err(|e| self.refused_by(of, e))?;
        let alone = !self.is_backward;
        let (takes, gives) = (self.num_inputs(&attrs), self.num_visible_outputs(&attrs));
        if alone && (takes, gives) != (n_inputs, n_wanted) {
            let text = format!(
                "it has {takes} inputs and {gives} outputs, expected {n_inputs} inputs, as passed \
                 by the gradient rule, and {n_wanted} outputs, one for each input of '{}'",
                of.name
            );
            return Err(self.refused_by(of, Error::value(text)));
        }
        Ok(InGradient { attrs, alone })
    }

    /// Explains an `error` of this operator, which the gradient of `of` names. Exceptions from
    /// Python stay as they are.
    fn refused_by(&self, of: &OpDef, error: Error) -> Error {
        if error.payload().is_some() {
            return error;
        }
        let text = format!(
            "operator '{}' is named as the gradient of '{}' and called with its parameters: {}",
            self.name,
            of.name,
            error.message()
        );
        Error::new(error.kind(), text)
    }

    /// Fails if `got`, the gradient of an input, does not have the input's shape and dtype. The
    /// caller places the error.
    pub fn check_gradient(
        &self,
        attrs: &Attrs,
        input: usize,
        got: (&Shape, DType),
        expected: (&Shape, DType),
    ) -> Result<()> {
        if got == expected {
            return Ok(());
        }
        let names = self.inputs(attrs);
        let name = names.get(input).map_or("?", |n| n);
        let what = |(shape, dtype): (&Shape, DType)| format!("{dtype} of shape {shape}");
        Err(Error::value(format!(
            "the gradient of input '{name}' is {}, expected {}, as the input is",
            what(got),
            what(expected)
        )))
    }
}
