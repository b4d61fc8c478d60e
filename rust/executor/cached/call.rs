//! A recorded call of a cached graph: its place on the tape, and its backward pass.

use super::{Lease, fresh};
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::executor::autograd::{Asked, TapeFunction, Tracked, Wanted};
use crate::executor::places::Places;
use crate::executor::transfer::{copied, push_copy, push_fill};
use crate::ndarray::NDArray;
use crate::operator::OpState;
use std::any::Any;
use std::sync::Arc;

/// Where an executor leaves a gradient.
pub(super) struct Grad {
    pub array: NDArray,
    /// Does the forward pass write there already?
    pub is_early: bool,
    /// Is the array the buffer of a leaf?
    pub is_buffer: bool,
    pub adds: bool,
}

/// A recorded call.
pub(super) struct CachedCall {
    pub name: String,
    pub rt: Arc<Runtime>,
    /// By input of the graph.
    pub grads: Vec<Option<Grad>>,
    pub lease: Lease,
    /// May other arrays take the places of the executor's?
    pub lends: bool,
}

impl CachedCall {
    /// The gradients of outputs, and arrays for those of inputs that are wanted as values, in the
    /// places of the executor's.
    fn places(&self, heads: &[Option<NDArray>], wanted: &[Wanted]) -> Result<Places> {
        let mut places = Places::default();
        if !self.lends {
            return Ok(places);
        }
        let executor = &self.lease.executor;
        let is_written = |array: &NDArray| {
            let grads = self.grads.iter().flatten().map(|grad| &grad.array);
            executor.arrays().aux.iter().chain(grads).any(|written| written.same_chunk(array))
        };
        for (own, head) in executor.own_heads().1.iter().zip(heads) {
            if let (Some(own), Some(head)) = (own, head)
                && (own.shape(), own.dtype()) == (head.shape(), head.dtype())
                && !is_written(head)
            {
                head.usable()?;
                places.put(own, head.clone());
            }
        }
        for (grad, wanted) in self.grads.iter().zip(wanted) {
            if let Some(grad) = grad.as_ref().filter(|grad| !grad.is_buffer && !grad.is_early)
                && *wanted != Wanted::No
            {
                places.put(&grad.array, fresh(&self.rt, &grad.array)?);
            }
        }
        Ok(places)
    }
}

impl TapeFunction for CachedCall {
    fn name(&self) -> &str {
        &self.name
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn visit_states(&self, visit: &mut dyn FnMut(&OpState)) {
        if Arc::strong_count(&self.lease.executor) == 1 {
            self.lease.executor.visit_own_states(visit);
        }
    }

    fn backward(&self, asked: Asked<'_>) -> Result<Vec<Option<Tracked>>> {
        if asked.create_graph {
            return Err(Error::not_implemented(
                "a cached graph has no gradient of higher order: do not hybridize a block whose \
                 gradients are computed with create_graph=True",
            ));
        }
        let heads: Vec<Option<NDArray>> =
            asked.out_grads.iter().map(|grad| Some(grad.array.clone())).collect();
        // A gradient that is wanted as a value is computed in a leaf's buffer all the same.
        let in_buffer = |i: usize| {
            let grad = self.grads[i].as_ref().filter(|grad| grad.is_buffer);
            grad.filter(|_| asked.wanted[i] != Wanted::ValueOrBuffer)
        };
        let mut restored = Vec::new();
        for grad in (0..self.grads.len()).filter_map(in_buffer) {
            if asked.keep_buffers || grad.adds {
                restored.push((copied(&grad.array)?, &grad.array));
            }
            if grad.adds {
                push_fill(&grad.array, 0.0)?;
            }
        }
        let places = Arc::new(self.places(&heads, asked.wanted)?);
        self.lease.executor.backward_at(asked.is_train, &heads, asked.retain_graph, &places)?;
        let mut found = Vec::with_capacity(self.grads.len());
        for (grad, wanted) in self.grads.iter().zip(asked.wanted) {
            found.push(match (grad, wanted) {
                (None, _) | (_, Wanted::No) => None,
                (Some(grad), Wanted::ValueOrBuffer) if grad.is_buffer => None,
                (Some(grad), _) => Some(Tracked::new(match places.of(&grad.array) {
                    Some(array) => array.clone(),
                    None => copied(&grad.array)?,
                })),
            });
        }
        restored.iter().try_for_each(|(before, buffer)| push_copy(before, buffer))?;
        Ok(found)
    }
}
