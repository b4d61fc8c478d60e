//! Gradient rules: written once per operator, run by two builders.
//!
//! A rule receives the node it differentiates, the gradients of its outputs and which input
//! gradients are needed, and composes these from operators through a [`GradBuilder`]. The graph's
//! gradient pass builds nodes; the autograd tape runs the operators at once.

use super::def::OpDef;
use super::param::Attrs;
use super::value::Value;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use std::sync::Arc;

/// A value inside a builder: opaque, only identity matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GradEntry(pub u64);

impl GradEntry {
    /// The error of a rule that refers to an entry which does not exist.
    pub fn missing() -> Error {
        Error::index(
            "the gradient rule refers to an entry that does not exist: expected one of the node or \
             of an earlier call",
        )
    }
}

/// What the gradient rule of node `of` calls the `n`th node that it makes without a name, counted
/// from 1.
pub fn name_in_rule(of: &str, op: &str, n: usize) -> String {
    match n {
        1 => format!("{of}_backward_{op}"),
        n => format!("{of}_backward_{op}{n}"),
    }
}

/// The operations with which a rule builds gradients.
pub trait GradBuilder {
    /// Runs the backward operator `op` of the node: it gets the node's parameters and state, is
    /// named `<node>_backward`, and has one output per input of the node, in order, of that input's
    /// shape and dtype. `op` may be any operator: see [`OpDef::in_gradient_of`].
    fn backward(&mut self, op: &str, inputs: &[GradEntry]) -> Result<Vec<GradEntry>> {
        self.backward_with(op, &[], inputs)
    }

    /// As [`GradBuilder::backward`], with parameters in place of the node's: see
    /// [`OpDef::own_params`].
    fn backward_with(
        &mut self,
        op: &str,
        own: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>>;

    /// Runs any operator; returns its visible outputs. `name` may be empty; see [`name_in_rule`].
    fn op(
        &mut self,
        op: &str,
        name: &str,
        params: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>>;

    /// Returns true for the gradient of a training run. (Known only on the tape, where it matters.)
    fn is_train(&self) -> bool {
        false
    }

    /// Shape and dtype of a value. (Known on the tape, where alone rules of second derivatives
    /// run.)
    fn spec(&self, _entry: GradEntry) -> Option<(Shape, DType)> {
        None
    }

    /// Runs the node's own operator, a backward operator, on other inputs; its outputs are like the
    /// node's.
    fn rerun(&mut self, _inputs: &[GradEntry]) -> Result<Vec<GradEntry>> {
        Err(Error::not_implemented("gradients of backward operators are taken on the tape only"))
    }
}

/// The node that a rule differentiates.
pub struct GradNode<'a> {
    pub op: &'a OpDef,
    pub attrs: &'a Attrs,
    pub name: &'a str,
    pub inputs: &'a [GradEntry],
    /// All outputs, hidden ones too.
    pub outputs: &'a [GradEntry],
    /// One per output; `None` where no gradient arrives (it is zero).
    pub out_grads: &'a [Option<GradEntry>],
    /// One flag per input: true if its gradient is needed.
    pub needed: &'a [bool],
}

impl GradNode<'_> {
    /// The gradient of output `i`, zeros if none arrives.
    pub fn out_grad(&self, builder: &mut dyn GradBuilder, i: usize) -> Result<GradEntry> {
        match self.out_grads[i] {
            Some(g) => Ok(g),
            None => Ok(builder.op("zeros_like", "", &[], &[self.outputs[i]])?[0]),
        }
    }

    fn dep(&self, builder: &mut dyn GradBuilder, dep: Dep) -> Result<GradEntry> {
        match dep {
            Dep::OutGrad(i) => self.out_grad(builder, i),
            Dep::Input(i) => Ok(self.inputs[i]),
            Dep::Output(i) => Ok(self.outputs[i]),
        }
    }
}

/// One entry that a backward operator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dep {
    OutGrad(usize),
    Input(usize),
    Output(usize),
}

/// Gradients of the inputs, in order; `None` is zero.
pub type Gradients = Vec<Option<GradEntry>>;

pub type GradFn =
    Arc<dyn Fn(&mut dyn GradBuilder, &GradNode<'_>) -> Result<Gradients> + Send + Sync>;
pub type DepsFn = Arc<dyn Fn(&Attrs, usize, usize) -> Vec<Dep> + Send + Sync>;

/// How an operator is differentiated.
#[derive(Clone, Default)]
pub enum Gradient {
    /// Not differentiable: taking the gradient is an error.
    #[default]
    None,
    /// All input gradients are zero.
    Zero,
    /// One backward operator, whose inputs are exactly these entries. The function is called with
    /// the parameters and the numbers of inputs and visible outputs.
    Backward { op: String, deps: DepsFn },
    /// A rule of its own, which may use everything, or only the values of these entries and the
    /// shapes of all.
    Rule { rule: GradFn, reads: Option<DepsFn> },
}

impl Gradient {
    fn over(op: &str, inputs: bool) -> Self {
        let deps: DepsFn = Arc::new(move |_, n_in, n_out| {
            let mut deps: Vec<Dep> = (0..n_out).map(Dep::OutGrad).collect();
            if inputs {
                deps.extend((0..n_in).map(Dep::Input));
            }
            deps
        });
        Gradient::Backward { op: op.to_owned(), deps }
    }

    /// Backward operator over the output gradients.
    pub fn use_none(op: &str) -> Self {
        Self::over(op, false)
    }

    /// Backward operator over the output gradients and the inputs.
    pub fn use_in(op: &str) -> Self {
        Self::over(op, true)
    }

    /// Backward operator over the entries that `deps` lists.
    pub fn declared(
        op: &str,
        deps: impl Fn(&Attrs, usize, usize) -> Vec<Dep> + Send + Sync + 'static,
    ) -> Self {
        Gradient::Backward { op: op.to_owned(), deps: Arc::new(deps) }
    }

    pub fn rule(
        rule: impl Fn(&mut dyn GradBuilder, &GradNode<'_>) -> Result<Gradients> + Send + Sync + 'static,
    ) -> Self {
        Gradient::Rule { rule: Arc::new(rule), reads: None }
    }

    /// A rule that uses the output gradients and these entries' values only, so that others may be
    /// freed.
    pub fn rule_reading(
        reads: &'static [Dep],
        rule: impl Fn(&mut dyn GradBuilder, &GradNode<'_>) -> Result<Gradients> + Send + Sync + 'static,
    ) -> Self {
        let reads: DepsFn = Arc::new(move |_, _, _| reads.to_vec());
        Gradient::Rule { rule: Arc::new(rule), reads: Some(reads) }
    }

    /// The entries whose values the gradient uses; `None` if it may use any.
    pub fn reads(&self, attrs: &Attrs, n_in: usize, n_out: usize) -> Option<Vec<Dep>> {
        match self {
            Gradient::None | Gradient::Zero => Some(Vec::new()),
            Gradient::Backward { deps, .. } => Some(deps(attrs, n_in, n_out)),
            Gradient::Rule { reads, .. } => reads.as_ref().map(|f| f(attrs, n_in, n_out)),
        }
    }

    /// Applies the rule: the gradients of the node's inputs. The caller, which owns the node,
    /// places the error.
    pub fn apply(&self, builder: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
        match self {
            Gradient::None => Err(Error::not_implemented(
                "non-differentiable, as no gradient is registered (f.gradient gives a function f \
                 of op.op one, the attribute FGradient an operator of op.register)",
            )),
            Gradient::Zero => Ok(vec![None; node.inputs.len()]),
            Gradient::Rule { rule, .. } => rule(builder, node),
            Gradient::Backward { op, deps } => {
                let n_out = node.op.num_visible_outputs(node.attrs);
                let read = deps(node.attrs, node.inputs.len(), n_out);
                if let Some(check) = &node.op.deferred_error {
                    check(node.attrs)?; // what the function of `deps` could not return
                }
                let mut inputs = Vec::new();
                for dep in read {
                    inputs.push(node.dep(builder, dep)?);
                }
                let grads = builder.backward(op, &inputs)?;
                Ok(grads.into_iter().map(Some).collect())
            }
        }
    }
}
