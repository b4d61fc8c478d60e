//! The gradient of a loop or condition: the steps from the last to the first.
//!
//! The inputs of the call are the gradients of the outputs; its outputs those of the operands.

use super::layout::{Feed, Kind, Layout, Yield};
use super::memory::{BodyMemory, BodyRun, mode};
use crate::error::{Error, Result};
use crate::executor::operands::Operands;
use crate::executor::transfer::{push_add, push_copy, push_fill};
use crate::graph::{InputPlace, bodies};
use crate::ndarray::NDArray;
use crate::operator::{OpReq, OwnedCall};

/// Pushes the gradient of a call whose forward pass left `memory`.
pub fn push_backward(
    memory: &BodyMemory,
    layout: &Layout,
    operands: &Operands,
    call: &OwnedCall,
) -> Result<()> {
    let body = if layout.kind == Kind::Each { 0 } else { memory.body.max(1) };
    let run = &memory.runs[body];
    if let Some(error) = run.no_gradient.as_ref().filter(|_| memory.steps > 0) {
        return Err(error.clone());
    }
    let given = operands.inputs();
    let mut pass = LoopBackward {
        layout,
        call,
        body,
        given,
        results: operands.outputs(),
        gradients: layout.variables.iter().map(|v| given[v.output].clone()).collect(),
        written: vec![false; operands.outputs().len()],
    };
    let states = pass.states(memory);
    run.sums.iter().flatten().try_for_each(|sum| push_fill(sum, 0.0))?;
    states.iter().try_for_each(|(state, own)| push_copy(state, own))?;
    for step in (0..memory.steps).rev() {
        pass.step(run, step)?;
    }
    states.iter().try_for_each(|(state, own)| push_copy(own, state))?;
    pass.write_variables()?;
    pass.write_sums(run)?;
    pass.clear_others()
}

/// A pass under way.
struct LoopBackward<'a> {
    layout: &'a Layout,
    call: &'a OwnedCall,
    /// The body of the steps.
    body: usize,
    /// The gradients of the outputs.
    given: &'a [NDArray],
    /// The gradients of the operands.
    results: &'a [NDArray],
    /// Those of the loop variables after the steps that are still to come.
    gradients: Vec<NDArray>,
    /// By operand: whether its gradient has a value.
    written: Vec<bool>,
}

impl<'a> LoopBackward<'a> {
    fn is_wanted(&self, operand: usize) -> bool {
        self.call.req[operand] != OpReq::Null
    }

    fn feeds(&self) -> &'a [Feed] {
        &self.layout.uses[self.body].feeds
    }

    /// The auxiliary states that the bodies modify, and the copies that they read.
    fn states<'m>(&self, memory: &'m BodyMemory) -> Vec<(&'a NDArray, &'m NDArray)> {
        let mutated = self.layout.mutated(bodies(&self.call.attrs)).into_iter();
        let states = mutated.zip(self.given.get(self.layout.outputs..).unwrap_or(&[]));
        states.filter_map(|(at, state)| Some((state, memory.shared[at].as_ref()?))).collect()
    }

    /// Pushes the backward pass of one step, and carries the gradients on to the step before.
    fn step(&mut self, run: &BodyRun, step: usize) -> Result<()> {
        let runner = run.made(step)?;
        let heads = self.heads(step)?;
        let mode = mode(self.call, self.body + 3, step);
        runner.executor.backward_own(mode, &heads, true)?;
        self.carry(step, &runner.grads)
    }

    /// The gradients of the body's outputs in one step.
    fn heads(&self, step: usize) -> Result<Vec<Option<NDArray>>> {
        let head = |to: &Yield| match *to {
            Yield::Stacked(output) => {
                let of = &self.given[output];
                let rest = of.shape().dims().get(1..).unwrap_or(&[]);
                of.at(step)?.reshape(rest.iter().copied().collect())
            }
            Yield::Whole(output) => Ok(self.given[output].clone()),
            Yield::Variable(v) => Ok(self.gradients[v].clone()),
            Yield::Condition => Err(Error::internal("a condition has a gradient")),
        };
        self.layout.uses[self.body].yields.iter().map(|to| head(to).map(Some)).collect()
    }

    /// Takes over the gradients of one step's inputs: of slices, and of loop variables.
    fn carry(&mut self, step: usize, grads: &[Option<NDArray>]) -> Result<()> {
        let mut next: Vec<Option<NDArray>> = vec![None; self.gradients.len()];
        for (feed, grad) in self.feeds().iter().zip(grads) {
            let Some(grad) = grad else { continue };
            match *feed {
                Feed::Slice(operand) if self.is_wanted(operand) => {
                    self.written[operand] = true;
                    push_copy(grad, &self.results[operand].slice(step, step + 1)?)?;
                }
                Feed::Slice(_) => {}
                Feed::Whole(operand) => {
                    let Some(v) = self.layout.variable(operand) else { continue };
                    match &next[v] {
                        None => next[v] = Some(grad.clone()),
                        Some(sum) => push_add(grad, sum)?,
                    }
                }
            }
        }
        for (gradient, next) in self.gradients.iter_mut().zip(next) {
            *gradient = match next {
                Some(next) => next,
                // A variable without a gradient: of integers.
                None => zeros_like(gradient)?,
            };
        }
        Ok(())
    }

    /// Writes the gradients of the operands that the loop variables begin as.
    fn write_variables(&mut self) -> Result<()> {
        for (variable, gradient) in self.layout.variables.iter().zip(&self.gradients) {
            if self.is_wanted(variable.operand) {
                self.written[variable.operand] = true;
                push_copy(gradient, &self.results[variable.operand])?;
            }
        }
        Ok(())
    }

    /// Writes the gradients of what the bodies read from outside, summed over the steps.
    fn write_sums(&mut self, run: &BodyRun) -> Result<()> {
        let body = &bodies(&self.call.attrs)[self.body];
        for (at, (feed, sum)) in self.feeds().iter().zip(&run.sums).enumerate() {
            let operand = feed.operand();
            let (Some(sum), true) = (sum, self.is_wanted(operand)) else { continue };
            debug_assert!(matches!(body.inputs[at], InputPlace::Argument(_)));
            match std::mem::replace(&mut self.written[operand], true) {
                false => push_copy(sum, &self.results[operand])?,
                true => push_add(sum, &self.results[operand])?,
            }
        }
        Ok(())
    }

    /// Clears the gradients that no step has written.
    fn clear_others(&self) -> Result<()> {
        for (operand, result) in self.results.iter().enumerate() {
            if self.is_wanted(operand) && !self.written[operand] {
                push_fill(result, 0.0)?;
            }
        }
        Ok(())
    }
}

fn zeros_like(array: &NDArray) -> Result<NDArray> {
    let zeros = NDArray::pending(array.base(), array.shape(), array.dtype(), array.context())?;
    push_fill(&zeros, 0.0)?;
    Ok(zeros)
}
