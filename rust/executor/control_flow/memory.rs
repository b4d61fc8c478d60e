//! The executors that run the bodies of a node, and the arrays that they share.
//!
//! Each body is planned once. Without gradients one executor runs all steps; with gradients every
//! step has an executor of its own, whose arena keeps what the gradient needs. What a body reads
//! from outside of the loop is one array, a copy that is made once per call, and its gradient is
//! summed in one array.

use super::layout::{Feed, Layout, Use, slice};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::executor::bind::{Binding, Executor, Planned};
use crate::executor::runtime::Runtime;
use crate::executor::segments::Mode;
use crate::graph::{InputPlace, Subgraph};
use crate::lock::Lock;
use crate::ndarray::NDArray;
use crate::operator::{OpReq, OwnedCall, RandomKey};
use crate::shape::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of a node: its executors, while no call uses them.
#[derive(Default)]
pub struct LoopState(pub Lock<Option<BodyMemory>>);

/// The executors of a node, and what its last forward run did.
pub struct BodyMemory {
    pub need_grad: bool,
    /// By operand: the copy that bodies read, if it is neither sliced nor a loop variable.
    pub shared: Vec<Option<NDArray>>,
    pub runs: Vec<BodyRun>,
    /// Steps that were made.
    pub steps: usize,
    /// The body of these steps.
    pub body: usize,
}

/// The executors of one body.
pub struct BodyRun {
    /// The first is for all steps, or there is one for each step.
    steps: Vec<StepExecutor>,
    planned: Option<Planned>,
    /// By input: where the gradients of all steps are summed.
    pub sums: Vec<Option<NDArray>>,
    /// Why the body has no gradient, if that turned out.
    pub no_gradient: Option<Error>,
}

/// An executor of a body.
#[derive(Clone)]
pub struct StepExecutor {
    pub executor: Arc<Executor>,
    /// By input of the body: the gradient of a slice or loop variable.
    pub grads: Arc<[Option<NDArray>]>,
}

impl BodyMemory {
    /// Memory for calls on operands like these.
    pub fn new(
        rt: &Arc<Runtime>,
        layout: &Layout,
        operands: &[NDArray],
        need_grad: bool,
    ) -> Result<BodyMemory> {
        let mut shared = vec![None; operands.len()];
        let feeds = layout.uses.iter().flat_map(|of| &of.feeds);
        for feed in feeds {
            let Feed::Whole(operand) = *feed else { continue };
            if layout.variable(operand).is_none() && shared[operand].is_none() {
                shared[operand] = Some(fresh(rt, &operands[operand])?);
            }
        }
        let run = |of: &Use| BodyRun {
            steps: Vec::new(),
            planned: None,
            sums: vec![None; of.feeds.len()],
            no_gradient: None,
        };
        let runs = layout.uses.iter().map(run).collect();
        Ok(BodyMemory { need_grad, shared, runs, steps: 0, body: 0 })
    }

    /// The executor of a body for a step.
    pub fn step_executor(
        &mut self,
        rt: &Arc<Runtime>,
        bodies: &[Subgraph],
        of: &Layout,
        number: usize,
        step: usize,
        operands: &[NDArray],
    ) -> Result<StepExecutor> {
        let run = &mut self.runs[number];
        let with_grad = self.need_grad && run.yields_gradients(&of.uses[number]);
        let at = if with_grad { step } else { 0 };
        while run.steps.len() <= at {
            let place = Site { rt, body: &bodies[number], feeds: &of.uses[number].feeds, operands };
            let step_executor = run.bind(&place, &self.shared, with_grad)?;
            run.steps.push(step_executor);
        }
        Ok(run.steps[at].clone())
    }
}

/// An array of its own for copies of another one.
fn fresh(rt: &Arc<Runtime>, like: &NDArray) -> Result<NDArray> {
    NDArray::pending(rt, like.shape(), like.dtype(), like.context())
}

/// What executors of a body are bound by.
struct Site<'a> {
    rt: &'a Arc<Runtime>,
    body: &'a Subgraph,
    feeds: &'a [Feed],
    operands: &'a [NDArray],
}

impl Site<'_> {
    fn context(&self) -> Context {
        self.operands.first().map_or_else(Context::default, NDArray::context)
    }

    /// A new array for values of input `at`.
    fn own(&self, at: usize) -> Result<NDArray> {
        let operand = &self.operands[self.feeds[at].operand()];
        let shape: Shape = match self.feeds[at] {
            Feed::Slice(_) => slice(operand.shape()),
            Feed::Whole(_) => operand.shape().clone(),
        };
        NDArray::pending(self.rt, &shape, operand.dtype(), operand.context())
    }
}

impl BodyRun {
    /// The executor that made a step.
    pub fn made(&self, step: usize) -> Result<StepExecutor> {
        let step_executor = self.steps.get(step).cloned();
        step_executor.ok_or_else(|| Error::internal("a step of a loop has no executor"))
    }

    /// A condition has no gradient.
    fn yields_gradients(&self, of: &Use) -> bool {
        self.no_gradient.is_none() && !of.yields.contains(&super::Yield::Condition)
    }

    /// A new executor; one without gradients if the body has none.
    fn bind(
        &mut self,
        site: &Site<'_>,
        shared: &[Option<NDArray>],
        with_grad: bool,
    ) -> Result<StepExecutor> {
        let step_executor = self.try_bind(site, shared, with_grad);
        match step_executor {
            Err(error) if with_grad && self.steps.is_empty() => {
                let step_executor = self.try_bind(site, shared, false)?;
                self.no_gradient = Some(error);
                Ok(step_executor)
            }
            step_executor => step_executor,
        }
    }

    fn try_bind(
        &mut self,
        site: &Site<'_>,
        shared: &[Option<NDArray>],
        with_grad: bool,
    ) -> Result<StepExecutor> {
        let count = site.feeds.len();
        let (mut args, mut aux) = (Vec::new(), Vec::new());
        let (mut grads, mut reqs) = (Vec::new(), Vec::new());
        let mut own_grads = vec![None; count];
        for at in 0..count {
            let outer = match site.feeds[at] {
                Feed::Whole(operand) => shared[operand].clone(),
                Feed::Slice(_) => None,
            };
            let is_free = outer.is_some();
            let array = outer.map_or_else(|| site.own(at), Ok)?;
            if let InputPlace::Auxiliary(_) = site.body.inputs[at] {
                aux.push(array);
                continue;
            }
            let (mut grad, mut req) = (None, OpReq::Null);
            if with_grad && array.dtype().is_float() {
                if is_free {
                    if self.sums[at].is_none() {
                        self.sums[at] = Some(fresh(site.rt, &array)?);
                    }
                    (grad, req) = (self.sums[at].clone(), OpReq::Add);
                } else {
                    own_grads[at] = Some(fresh(site.rt, &array)?);
                    (grad, req) = (own_grads[at].clone(), OpReq::Write);
                }
            }
            args.push(array);
            grads.push(grad);
            reqs.push(req);
        }
        let binding = Binding {
            symbol: site.body.symbol.clone(),
            ctx: site.context(),
            group2ctx: BTreeMap::new(),
            args,
            grads,
            reqs,
            aux,
            shared: None,
            lends_outputs: false,
            memory_limit: None,
        };
        let executor = match &self.planned {
            Some(planned) => Executor::with_plan(site.rt, planned.clone(), binding)?,
            None => Executor::bind(site.rt, binding)?,
        };
        if self.planned.is_none() {
            self.planned = Some(executor.planned());
        }
        Ok(StepExecutor { executor, grads: own_grads.into() })
    }
}

/// How a step runs: its random numbers follow from those of the call.
pub fn mode(call: &OwnedCall, body: usize, step: usize) -> Mode {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let RandomKey { seed, stream } = call.ctx.random;
    let number = (step as u64).wrapping_mul(4).wrapping_add(body as u64 + 1);
    let mixed = seed ^ stream.wrapping_add(1).wrapping_mul(GOLDEN).rotate_left(31);
    let seed = mixed.wrapping_add(number.wrapping_mul(GOLDEN));
    Mode { is_train: call.ctx.is_train, random: Some(RandomKey { seed, stream: 0 }) }
}
