//! The operands of a callback as arrays: fresh ones over the same bytes, with variables of their
//! own, which order what the callback pushes. The operation is complete when they are idle; then
//! they are revoked, because the bytes belong to others again.

use super::inline::are_idle;
use crate::dtype::DType;
use crate::engine::{Engine, Prop, Push, RunOn, Task, Var};
use crate::error::Result;
use crate::ndarray::{Base, NDArray};
use crate::operator::{Done, OpReq, OwnedCall};
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::sync::Arc;

/// Fresh arrays over the operands' bytes: inputs, then outputs. Those that overlap share a
/// variable.
pub struct Operands {
    arrays: Vec<NDArray>,
    /// Arrays of temporary space, which end with the operands.
    space: Vec<NDArray>,
    /// How many of them are inputs.
    inputs: usize,
    engine: Arc<dyn Engine>,
}

fn span(v: &View) -> (usize, usize) {
    (v.ptr() as usize, v.ptr() as usize + v.size_bytes())
}

impl Operands {
    pub fn new(base: &Arc<Base>, call: &OwnedCall) -> Self {
        let views: SmallVec<[&View; 8]> = call.inputs.iter().chain(&*call.outputs).collect();
        let n = call.inputs.len();
        let spans: SmallVec<[(usize, usize); 8]> = views.iter().map(|v| span(v)).collect();
        let disjoint = spans.iter().enumerate().all(|(i, &(begin, end))| {
            spans[..i].iter().all(|other| other.0.max(begin) >= other.1.min(end))
        });
        let arrays: Vec<NDArray> = if disjoint {
            views.iter().map(|v| over(base, call, v)).collect()
        } else {
            shared(base, call, &views)
        };
        let mutated = |i: usize| call.mutated.contains(&i);
        for (i, array) in arrays[..n].iter().enumerate() {
            let may_be_written = mutated(i)
                || !disjoint
                    && (arrays[n..].iter().any(|o| o.same_chunk(array))
                        || (0..n).any(|j| mutated(j) && arrays[j].same_chunk(array)));
            array.begin_as_operand(!may_be_written, false);
        }
        for (array, req) in arrays[n..].iter().zip(&call.req) {
            array.begin_as_operand(false, disjoint && *req == OpReq::Write);
        }
        Operands { arrays, space: Vec::new(), inputs: n, engine: base.engine.clone() }
    }

    /// Adds arrays of temporary space, which end with the operands.
    pub fn add_space(&mut self, space: Vec<NDArray>) {
        self.space.extend(space);
    }

    /// Inputs, then outputs.
    pub fn arrays(&self) -> &[NDArray] {
        &self.arrays
    }

    pub fn inputs(&self) -> &[NDArray] {
        &self.arrays[..self.inputs]
    }

    pub fn outputs(&self) -> &[NDArray] {
        &self.arrays[self.inputs..]
    }

    /// Outputs that the function should have written and did not hold what was there before: they
    /// become zeros, because programs leave out gradients that are not needed.
    fn zero_unwritten(&self) -> Result<()> {
        for array in self.outputs().iter().filter(|a| a.is_unwritten()) {
            array.zero_now()?;
        }
        Ok(())
    }

    /// Returns true if a reference from outside, such as a NumPy view, still holds an operand on
    /// which nothing is pending.
    pub fn are_lent(&self) -> bool {
        let mut lent = self.arrays.iter().filter(|array| array.is_lent());
        lent.any(|array| {
            let own = self.arrays.iter().filter(|a| a.same_chunk(array)).count();
            array.is_held_beyond(own) && are_idle(&*self.engine, array.known_var().as_slice())
        })
    }

    /// The variables of operands on which an operation was queued.
    fn vars(&self) -> SmallVec<[Var; 8]> {
        let mut vars: SmallVec<[Var; 8]> = SmallVec::new();
        for var in self.arrays.iter().chain(&self.space).filter_map(NDArray::known_var) {
            if !vars.contains(&var) {
                vars.push(var);
            }
        }
        vars
    }

    /// Ends the operation with `result`, once nothing uses the operands any more.
    pub fn finish(self, result: Result<()>, call: OwnedCall, done: Done) {
        let vars = self.vars();
        if !are_idle(&*self.engine, &vars) {
            return self.end_later(&vars, result, done, call);
        }
        let computed = self.end(result);
        drop(self);
        drop(call);
        done(computed);
    }

    /// Revokes the operands, which are no longer in use; an error if an output was not computed.
    /// That error becomes the operation's own, so the operand must not raise it as well.
    fn end(&self, result: Result<()>) -> Result<()> {
        let outputs = self.outputs();
        let computed = result
            .and_then(|()| {
                let readable = outputs.iter().try_for_each(NDArray::readable);
                readable.inspect_err(|_| outputs.iter().for_each(|array| drop(array.take_error())))
            })
            .and_then(|()| self.zero_unwritten());
        for array in self.arrays.iter().chain(&self.space) {
            array.revoke();
        }
        computed
    }

    #[cold]
    fn end_later(self, vars: &[Var], result: Result<()>, done: Done, call: OwnedCall) {
        call.within.leave_push();
        let engine = self.engine.clone();
        let task = Task::sync(move |_| {
            let computed = self.end(result);
            drop((self, call));
            done(computed);
            Ok(())
        });
        let push = Push {
            prop: Prop::NoSkip,
            run_on: RunOn::Pusher,
            ..Push::new("callback end", &[], vars)
        };
        // A push that is refused drops the task, and with it `done`, which then reports a failure.
        let _ = engine.push(task, push);
    }
}

fn over(base: &Arc<Base>, call: &OwnedCall, v: &View) -> NDArray {
    external(base, call, v.ptr(), v.shape(), v.dtype())
}

fn external(
    base: &Arc<Base>,
    call: &OwnedCall,
    ptr: *mut u8,
    shape: &Shape,
    dtype: DType,
) -> NDArray {
    // SAFETY: the views of a call are valid as long as its keeper; the operation they belong to
    // orders access until `finish` revokes these arrays.
    unsafe { NDArray::external(base, call.keep.clone(), ptr, shape, dtype, call.ctx.device) }
}

/// Arrays for operands of which some overlap: one chunk for each group of overlapping spans.
fn shared(base: &Arc<Base>, call: &OwnedCall, views: &[&View]) -> Vec<NDArray> {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for v in views.iter().filter(|v| v.size() > 0) {
        let mut joined = span(v);
        groups.retain(|g| {
            let touches = g.0 < joined.1 && joined.0 < g.1;
            if touches {
                joined = (joined.0.min(g.0), joined.1.max(g.1));
            }
            !touches
        });
        groups.push(joined);
    }
    let chunks: Vec<NDArray> = groups
        .iter()
        .map(|g| {
            let first = views.iter().filter(|v| v.size() > 0).find(|v| span(v).0 == g.0);
            let ptr = first.map_or(std::ptr::null_mut(), |v| v.ptr());
            external(base, call, ptr, &Shape::new(&[(g.1 - g.0) as i64]), DType::U8)
        })
        .collect();
    views
        .iter()
        .map(|v| {
            let at =
                groups.iter().position(|g| v.size() > 0 && g.0 <= span(v).0 && span(v).1 <= g.1);
            let part =
                at.and_then(|i| chunks[i].part(span(v).0 - groups[i].0, v.shape(), v.dtype()).ok());
            part.unwrap_or_else(|| over(base, call, v))
        })
        .collect()
}
