//! Parsing the parameters of a call. Programs repeat themselves, so the results of the last calls
//! are cached.

use super::def::OpDef;
use super::param::Attrs;
use super::value::Value;
use crate::error::{AtNode, Error, Result, shown};
use std::fmt::Write;
use std::sync::Arc;

/// The most inputs of an operator that takes any number.
const MOST_INPUTS: i64 = 65_535;

impl OpDef {
    /// Parses parameters; the error names the operator.
    pub fn parse(&self, given: &[(&str, Value)]) -> Result<Attrs> {
        self.parse_at(given, "")
    }

    /// As [`OpDef::parse`], for the node of this name; the error names it, too.
    pub fn parse_at(&self, given: &[(&str, Value)], node: &str) -> Result<Attrs> {
        self.parse_unnamed(given).at_node(&self.name, node)
    }

    fn parse_unnamed(&self, given: &[(&str, Value)]) -> Result<Attrs> {
        let fail = |e: Error| {
            let mut call = format!("{}, in operator {}(name=\"\"", e.message(), self.name);
            for (k, v) in given {
                let _ = write!(call, ", {}=\"{}\"", shown(k), shown(v));
            }
            Error::new(e.kind(), call + ")")
        };
        let lenient: Vec<(&str, Value)>;
        let relevant = if self.schema.fields.is_empty() && self.library.is_none() {
            lenient = Vec::new(); // rsnet's operators without parameters ignore unknown keywords
            &lenient
        } else {
            given
        };
        let values = self.schema.parse(relevant).map_err(fail)?;
        let kept: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let typed = (self.typed)(&values, &kept)?;
        self.check_count(&values).map_err(fail)?;
        Ok(Attrs::new(self.schema.clone(), values, typed, kept))
    }

    /// As [`OpDef::parse`]; calls with the same parameters share the result.
    pub fn parse_shared(&self, given: &[(&str, Value)]) -> Result<Arc<Attrs>> {
        if given.is_empty() {
            if let Some(plain) = self.recent.plain.get() {
                return Ok(plain.clone());
            }
            let plain = Arc::new(self.parse(given)?);
            return Ok(self.recent.plain.get_or_init(|| plain).clone());
        }
        if !self.shares {
            return Ok(Arc::new(self.parse(given)?));
        }
        if let Some(known) = self.recent.find(given) {
            return Ok(known);
        }
        let fresh = Arc::new(self.parse(given)?);
        self.recent.keep(fresh.clone());
        Ok(fresh)
    }

    /// Refuses absurd counts of inputs, which would allocate that many names.
    fn check_count(&self, values: &[Value]) -> Result<()> {
        let Some(count) = self.key_var_num_args.as_deref() else { return Ok(()) };
        let at = self.schema.fields.iter().position(|f| f.name == count);
        match at.and_then(|i| values.get(i)) {
            Some(Value::Int(n)) if *n > MOST_INPUTS => Err(Error::parameter(format!(
                "value {n} for Parameter {count} should be smaller equal to {MOST_INPUTS}"
            ))),
            _ => Ok(()),
        }
    }
}
