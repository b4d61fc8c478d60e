//! The choice among an operator's kernels.

use super::def::{Alone, OpDef};
use super::kernel::{Body, Kernel, MatchFacts, NativeFn};
use super::listed::Listed;
use crate::context::Context;
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::Arc;

impl OpDef {
    /// The kernel of an element-wise operator on `n_inputs` arrays in host memory, if it is the
    /// only one and takes little time on few elements.
    #[inline]
    pub fn elementwise_kernel(&self, n_inputs: usize) -> Option<&NativeFn> {
        let kernel = self.only_host_kernel()?;
        let fits = self.is_elementwise
            && self.alone != Alone::Always
            && matches!(&self.input_names, Listed::Fixed(names) if names.len() == n_inputs);
        match &kernel.body {
            Body::Native(native) if fits => Some(native),
            _ => None,
        }
    }

    /// The kernel of every call on arrays in host memory, if there is but one: it comes first, and
    /// those for devices after it.
    #[inline]
    pub fn only_host_kernel(&self) -> Option<&Arc<Kernel>> {
        let (first, rest) = self.kernels.split_first()?;
        let is_only = first.is_unconditional(Context::default())
            && rest.iter().all(|kernel| matches!(kernel.body, Body::Device(_)));
        is_only.then_some(first)
    }

    /// The kernel for these facts: of all that match, the one at the highest priority. None or
    /// several there is an error that lists every kernel's condition with its truth.
    pub fn choose_kernel(&self, facts: &MatchFacts<'_>) -> Result<&Arc<Kernel>> {
        let matching = self.kernels.iter().filter(|k| k.matches.holds(facts));
        let matching: SmallVec<[_; 8]> = matching.collect();
        let best = matching.iter().map(|k| k.priority).max();
        let mut at_best = matching.iter().filter(|k| Some(k.priority) == best);
        match (at_best.next(), at_best.next()) {
            (Some(kernel), None) => Ok(kernel),
            (first, _) => {
                let mut text = match first {
                    None => "no kernel matches".to_owned(),
                    Some(_) => "several kernels match at the highest priority".to_owned(),
                };
                let _ = write!(text, " on {} for", facts.device.name());
                for (name, dtype, rank) in facts.tensors {
                    let _ = write!(text, " {name}: {dtype} of {rank} axes;");
                }
                for line in self.explain_kernels(facts) {
                    let _ = write!(text, "\n  {line}");
                }
                Err(Error::not_implemented(text))
            }
        }
    }

    /// For every kernel whether it would run, and why.
    pub fn explain_kernels(&self, facts: &MatchFacts<'_>) -> Vec<String> {
        let line = |k: &Arc<Kernel>| {
            let verdict = if k.matches.holds(facts) { "matches" } else { "does not match" };
            let why = k.matches.explain(facts);
            format!("kernel '{}' at priority {} {verdict}: {why}", k.name, k.priority)
        };
        self.kernels.iter().map(line).collect()
    }
}
