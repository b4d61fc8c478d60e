//! What a caller hands to a run: values of arguments, and gradients of outputs.

use super::bind::Executor;
use super::instance::{Instance, InstanceState};
use super::places::Places;
use super::transfer::push_copy;
use crate::error::{Error, Result};
use crate::ndarray::NDArray;

impl Executor {
    /// Copies values into arguments, by index; an instance of another thread gets an array of its
    /// own for each.
    pub(super) fn set_inputs(
        &self,
        instance: &Instance,
        state: &mut InstanceState,
        inputs: &[(usize, NDArray)],
    ) -> Result<()> {
        for (index, value) in inputs {
            let bound = state.args.get(*index).ok_or_else(|| {
                Error::index(format!(
                    "invalid argument {index}: expected less than {}",
                    state.args.len()
                ))
            })?;
            if value.shape() != bound.shape() {
                let name = &self.plan.graph.nodes[self.plan.arguments[*index] as usize].name;
                return Err(Error::argument(name, "shape", value.shape(), bound.shape()));
            }
            if instance.number > 0 && !state.own[*index] {
                let (shape, dtype) = (bound.shape().clone(), bound.dtype());
                let own = NDArray::pending(&self.rt, &shape, dtype, bound.context())?;
                self.replace_argument(state, *index, own);
            }
            let target = &state.args[*index];
            if !(target.same_chunk(value) && target.overlaps(value)) {
                push_copy(value, target)?;
            }
        }
        Ok(())
    }

    /// Puts an instance's own array in the place of an argument, also where the argument is an
    /// output.
    fn replace_argument(&self, state: &mut InstanceState, index: usize, own: NDArray) {
        let node = self.plan.arguments[index];
        for (output, entry) in state.outputs.iter_mut().zip(&self.plan.outputs) {
            if entry.node == node {
                *output = own.clone();
            }
        }
        state.args[index] = own;
        state.own[index] = true;
        state.ready = None;
    }

    /// Copies the gradients of the outputs into the instance, except those that have other arrays
    /// in their places.
    pub(super) fn set_head_grads(
        &self,
        state: &mut InstanceState,
        given: &[Option<NDArray>],
        places: &Places,
    ) -> Result<()> {
        let outputs = self.plan.outputs.len();
        if given.len() > outputs {
            let expected = format!("at most {outputs}, one for each output");
            return Err(Error::invalid("number of head gradients", given.len(), expected));
        }
        for i in 0..self.plan.head_grads.len() {
            let output = &state.outputs[i];
            let Some(grad) = given.get(i).and_then(Option::as_ref) else {
                if self.plan.head_grads[i].is_some() {
                    let node = &self.plan.graph.nodes[self.plan.outputs[i].node as usize];
                    let text =
                        format!("backward() needs a gradient of output {i}, which is not a loss");
                    return Err(Error::value(text).at_node(node.op_name(), &node.name));
                }
                continue;
            };
            let name = format!("head gradient {i}");
            if grad.shape() != output.shape() {
                return Err(Error::argument(&name, "shape", grad.shape(), output.shape()));
            }
            if self.plan.head_grads[i].is_none() {
                continue;
            }
            if let Some(own) = &state.head_grads[i] {
                if places.of(own).is_none() {
                    push_copy(grad, own)?;
                }
                continue;
            }
            let (shape, dtype) = (output.shape(), output.dtype());
            let own = NDArray::pending(&self.rt, shape, dtype, output.context())?;
            push_copy(grad, &own)?;
            state.head_grads[i] = Some(own);
            state.ready = None;
        }
        Ok(())
    }
}
