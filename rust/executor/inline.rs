//! Decides whether work runs inline, on the thread that asks for it.
//!
//! Work on few elements takes less time than a task of the engine, so it runs inline if its arrays
//! are idle. An attempt that declines says why, and the caller passes that answer on to the push
//! instead of asking again.

use crate::context::Context;
use crate::engine::{Engine, RunOn, Task, Var};
use crate::error::{Error, Result, guarded};
use crate::ndarray::{Attempt, Fresh, NDArray, run_exclusive};
use crate::operator::{Around, Attrs, Call, FEW_ELEMS, NativeFn, OpContext, OpDef, OpReq};
use crate::profiler::{Recorder, mode};

/// Work on at most this many elements is far shorter than a task of the engine, also on arrays that
/// have variables (`relu` and a wait: 3.2 us inline, 4.0 us as an operation on the same thread).
const TINY_ELEMS: usize = 512;

/// Why work has no result after an attempt to run it inline.
#[derive(Clone, Debug)]
pub enum Declined {
    /// It works on too many elements, on a device, may take long, or runs Python code.
    NotInline,
    /// It is short, but has to be an operation of the engine: an array has a variable, or a hook is
    /// to be notified of every operation. Whether the arrays are idle was not asked.
    NotAsked,
    /// An array is in use or poisoned.
    Busy,
    /// It ran and failed. It must not run again, since it may have written to its outputs.
    Failed(Error),
}

impl Declined {
    /// Which thread runs the operation that is pushed instead.
    pub fn run_on(&self) -> RunOn {
        match self {
            Declined::NotInline => RunOn::Worker,
            Declined::Busy => RunOn::Completer,
            Declined::NotAsked | Declined::Failed(_) => RunOn::Pusher,
        }
    }
}

/// The task of work that has failed inline: it fails again, so that every failure of work, inline
/// or not, arrives at a wait.
pub fn failed(error: Error) -> Task {
    Task::sync(move |_| Err(error))
}

/// How the profiler labels the work.
#[derive(Clone, Copy)]
pub struct Label<'a> {
    pub profiler: &'a Recorder,
    pub name: &'a str,
    pub node: &'a str,
    pub device: Context,
}

/// Runs `f`, which works on `elems` elements, on the calling thread if that takes little time and
/// the arrays it reads and writes are idle. A panic of `f` is an error. Addresses of arrays must be
/// taken inside of `f`: memory that is pending is allocated with its first use.
#[inline]
pub fn run<R>(
    label: Label<'_>,
    reads: &[&NDArray],
    writes: &[&NDArray],
    elems: usize,
    f: impl Fn() -> Result<R>,
) -> Result<R, Declined> {
    if elems > FEW_ELEMS {
        return Err(Declined::NotInline);
    }
    let Some(array) = reads.first().or(writes.first()) else { return Err(Declined::NotAsked) };
    if array.base().engine.is_hooked() {
        return Err(Declined::NotAsked);
    }
    let Label { profiler, name, node, device } = label;
    let mut result = None;
    let mut body = || {
        let _span = profiler.operator(mode::IMPERATIVE, name, node, device);
        result = Some(guarded(&f));
    };
    let attempt = run_exclusive(reads, writes, elems <= TINY_ELEMS, &mut body);
    match result {
        None if attempt == Attempt::HasVariable => Err(Declined::NotAsked),
        None => Err(Declined::Busy),
        Some(result) => result.map_err(Declined::Failed),
    }
}

/// The result of `f`, which reads a few elements of the array, if it is idle.
pub fn value_if_idle<R>(array: &NDArray, f: impl Fn() -> R) -> Option<R> {
    let mut value = None;
    run_exclusive(&[array], &[], true, &mut || value = Some(f()));
    value
}

/// Returns true if nothing is pending on the variables, and none is poisoned.
pub fn are_idle(engine: &dyn Engine, vars: &[Var]) -> bool {
    vars.is_empty() || engine.try_run_exclusive(&[], vars, &mut || ())
}

/// Runs an element-wise operator, whose result is an array like its inputs, without inference:
/// returns memory that holds the result. `None`, and nothing was tried, if the call is not of that
/// form.
#[inline]
pub fn run_elementwise(
    op: &OpDef,
    attrs: &Attrs,
    inputs: &[&NDArray],
) -> Option<Result<Fresh, Declined>> {
    match *inputs {
        [a] => elementwise(op, op.elementwise_kernel(1)?, attrs, [a]),
        [a, b] if a.dtype() == b.dtype() && a.shape() == b.shape() => {
            elementwise(op, op.elementwise_kernel(2)?, attrs, [a, b])
        }
        _ => None,
    }
}

#[inline(always)]
fn elementwise<const N: usize>(
    op: &OpDef,
    kernel: &NativeFn,
    attrs: &Attrs,
    arrays: [&NDArray; N],
) -> Option<Result<Fresh, Declined>> {
    if !arrays.iter().all(|a| a.context().is_host()) {
        return None;
    }
    let a = arrays[0];
    let device = a.context();
    let compute = || {
        let inputs = NDArray::flat_views(arrays)?;
        let out = a.memory_like()?;
        let outputs = [a.flat_view_of(&out)];
        let ctx = OpContext { device, ..OpContext::default() };
        let (inputs, req, outputs) = (&inputs, &[OpReq::Write], &outputs);
        let (ctx, state, memory, around) = (&ctx, None, None, Around::NONE);
        kernel(&Call { attrs, ctx, state, inputs, req, outputs, memory, around })?;
        Ok(out)
    };
    let label = Label { profiler: &a.base().profiler, name: &op.name, node: "", device };
    Some(run(label, &arrays, &[], (N + 1) * a.size(), compute))
}
