//! Short work runs at once, on the thread that asks for it.

use crate::context::Context;
use crate::error::{Result, guarded};
use crate::ndarray::{NDArray, with_quiet};
use crate::profiler::{Recorder, mode};

/// Work on at most so many elements (inputs and outputs together) takes some microseconds: it runs on the thread
/// that pushes it.
pub const CHEAP_ELEMS: usize = 4096;
/// Work on at most so many elements is far shorter than a task.
const TINY_ELEMS: usize = 512;

/// What the profiler knows it by.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub profiler: &'a Recorder,
    pub name: &'a str,
    pub node: &'a str,
    pub device: Context,
}

/// Runs `f` at once, if its `elems` elements are few and nothing is in the way on the arrays that it reads and
/// writes, and nobody wants to be told of every task. None: it was not run. A panic of `f` is an error. Only inside of
/// `f` may it be known where arrays are: the memory of one that is pending is taken when it is made.
#[inline]
pub fn at_once<R>(
    named: Named<'_>,
    reads: &[&NDArray],
    writes: &[&NDArray],
    elems: usize,
    f: impl Fn() -> Result<R>,
) -> Option<Result<R>> {
    if elems > CHEAP_ELEMS || reads.first().or(writes.first())?.base().engine.is_hooked() {
        return None;
    }
    let Named { profiler, name, node, device } = named;
    let mut result = None;
    let mut run = || {
        let _span = profiler.operator(mode::IMPERATIVE, name, node, device);
        result = Some(guarded(&f));
    };
    with_quiet(reads, writes, elems <= TINY_ELEMS, &mut run);
    result
}
