//! The tape's gradient builder: runs what a gradient rule composes at once.

use super::walk::TapeWalk;
use super::{Placed, Recorded, Rule, Saved, Tracked, invoke};
use crate::dtype::DType;
use crate::error::{AtNode, Error, Result};
use crate::executor::imperative::{CallState, Invoke};
use crate::operator::{
    Attrs, GradBuilder, GradEntry, InGradient, OpDef, OpReq, Value, name_in_rule,
};
use crate::shape::Shape;
use smallvec::SmallVec;
use std::sync::Arc;

/// Runs the operators of one gradient rule.
pub struct TapeBuilder<'a> {
    walk: &'a TapeWalk<'a>,
    attrs: &'a Arc<Attrs>,
    state: Option<&'a CallState>,
    record: &'a Recorded,
    values: Vec<Placed>,
    /// The calls that the rule has made without naming them.
    unnamed: usize,
}

impl<'a> TapeBuilder<'a> {
    /// A builder for the gradient of the call `record`.
    pub fn new(
        walk: &'a TapeWalk<'a>,
        attrs: &'a Arc<Attrs>,
        state: Option<&'a CallState>,
        record: &'a Recorded,
    ) -> Self {
        TapeBuilder { walk, attrs, state, record, values: Vec::new(), unnamed: 0 }
    }

    /// The array behind a value.
    pub fn placed(&self, value: GradEntry) -> Placed {
        self.values[value.0 as usize].clone()
    }

    /// Adds a value.
    pub fn value(&mut self, placed: Placed) -> GradEntry {
        self.values.push(placed);
        GradEntry(self.values.len() as u64 - 1)
    }

    /// How the calls of the gradient run: those without inputs on the device of the forward call.
    fn how(&self) -> Invoke<'static> {
        let first = self.record.inputs.first().map(|(saved, _)| saved.context());
        Invoke { ctx: first.unwrap_or_default(), ..self.walk.invoke() }
    }

    fn invoke(
        &mut self,
        op: &Arc<OpDef>,
        attrs: &Arc<Attrs>,
        inputs: &[GradEntry],
        how: &Invoke<'_>,
    ) -> Result<Vec<GradEntry>> {
        let inputs: Vec<Tracked> = inputs
            .iter()
            .map(|&g| {
                let (array, entry) = self.placed(g);
                Tracked::placed(array, entry)
            })
            .collect();
        let inputs: SmallVec<[&Tracked; 4]> = inputs.iter().collect();
        let outputs = invoke(self.walk.rt, op, attrs, &inputs, None, how)?;
        Ok(outputs.into_iter().map(|t| self.value((t.array.clone(), t.entry()))).collect())
    }
}

impl GradBuilder for TapeBuilder<'_> {
    fn backward_with(
        &mut self,
        op: &str,
        own: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let op = self.walk.rt.registry.find(op)?;
        let Rule::Op { op: of, .. } = &self.record.rule else {
            return Err(Error::internal("a function has no backward operator"));
        };
        let wanted = self.record.inputs.len();
        let name = match self.record.name() {
            "" => String::new(),
            of => format!("{of}_backward"),
        };
        let InGradient { attrs, alone } = op
            .in_gradient_of(of, self.attrs, own, inputs.len(), wanted)
            .at_node(&op.name, &name)?;
        let how = Invoke { name: &name, ..self.how() };
        if alone {
            return self.invoke(&op, &attrs, inputs, &how);
        }
        let like: SmallVec<[(Shape, DType); 4]> =
            self.record.inputs.iter().map(|(saved, _)| saved.spec()).collect();
        let req: SmallVec<[OpReq; 4]> = (self.record.inputs.iter())
            .map(|(_, e)| {
                let wanted = e.as_ref().is_some_and(|e| self.walk.is_useful(e));
                if wanted { OpReq::Write } else { OpReq::Null }
            })
            .collect();
        let how = Invoke { state: self.state, like: Some(&like), req: Some(&req), ..how };
        self.invoke(&op, &attrs, inputs, &how)
    }

    fn op(
        &mut self,
        op: &str,
        name: &str,
        params: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let made = match (name, self.record.name()) {
            ("", of) if !of.is_empty() => {
                self.unnamed += 1;
                name_in_rule(of, op, self.unnamed)
            }
            _ => String::new(),
        };
        let name = if made.is_empty() { name } else { &made };
        let op = self.walk.rt.registry.find(op)?;
        let params = op.with_count(params.to_vec(), inputs.len());
        let attrs = Arc::new(op.parse_at(&params, name)?);
        let how = Invoke { name, ..self.how() };
        self.invoke(&op, &attrs, inputs, &how)
    }

    fn is_train(&self) -> bool {
        self.walk.how.is_train
    }

    fn spec(&self, entry: GradEntry) -> Option<(Shape, DType)> {
        let (array, _) = &self.values[entry.0 as usize];
        Some((array.shape().clone(), array.dtype()))
    }

    fn rerun(&mut self, inputs: &[GradEntry]) -> Result<Vec<GradEntry>> {
        let Rule::Op { op, .. } = &self.record.rule else {
            return Err(Error::internal("a function is not an operator"));
        };
        let like: SmallVec<[(Shape, DType); 4]> =
            self.record.outputs.iter().map(Saved::spec).collect();
        let how = Invoke { state: self.state, like: Some(&like), ..self.how() };
        self.invoke(op, self.attrs, inputs, &how)
    }
}
