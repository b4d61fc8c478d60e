//! Copies between arrays: whole, a strided part, or by position; and filling.

use super::call_site;
use super::inline::{self, Declined, Label};
use super::on_device::with_host_views;
use super::run::distinct;
use crate::engine::{FindCallSite, OnComplete, Push, RunOn, Task, Var};
use crate::error::{Error, Result};
use crate::kernels::copy::{Buffer, add, copy, copy_strided, fill, gather, region_fits, scatter};
use crate::ndarray::NDArray;
use crate::profiler::mode;
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::borrow::Borrow;

/// Runs `work` on the views of `sources` and of `target`: inline if possible, else as an operation
/// that reads the sources and writes the target. `work` has to cope with any overlap.
fn push_work(
    name: &'static str,
    sources: &[&NDArray],
    target: &NDArray,
    elems: usize,
    whole: bool,
    work: impl Fn(&[View], &View) + Send + 'static,
) -> Result<()> {
    if are_on_host(sources, target) {
        return push_run(name, sources, target, elems, whole, move |sources, target| {
            work(&views(sources)?, &target.view()?);
            Ok(())
        });
    }
    push_run(name, sources, target, usize::MAX, whole, move |sources, target| {
        with_host_views(sources, target, whole, |from, to| {
            work(from, to);
            Ok(())
        })
    })
}

/// Returns true if all the arrays are in memory of the host.
#[inline]
fn are_on_host(sources: &[&NDArray], target: &NDArray) -> bool {
    target.context().is_host() && sources.iter().all(|s| s.context().is_host())
}

/// Pushes `run`, inline if it works on few elements, with the arrays that it reads and writes.
fn push_run(
    name: &'static str,
    sources: &[&NDArray],
    target: &NDArray,
    elems: usize,
    whole: bool,
    run: impl Fn(&[&NDArray], &NDArray) -> Result<()> + Send + 'static,
) -> Result<()> {
    check_access(sources, target, whole)?;
    let base = target.base();
    let ctx = target.context();
    let label = Label { profiler: &base.profiler, name, node: "", device: ctx };
    let inline = inline::run(label, sources, &[target], elems, || run(sources, target));
    let Err(declined) = inline else { return Ok(()) };
    let run_on = declined.run_on();
    if let Declined::Failed(error) = declined {
        let task = inline::failed(error);
        return push_task(name, sources, target, whole, run_on, task);
    }
    let from: SmallVec<[NDArray; 1]> = sources.iter().map(|&s| s.clone()).collect();
    let to = target.clone();
    let scope = base.profiler.carry_scope();
    let task = Task::sync(move |_| {
        let _scope = scope.enter();
        let _span = to.base().profiler.operator(mode::IMPERATIVE, name, "", ctx);
        let from: SmallVec<[&NDArray; 1]> = from.iter().collect();
        run(&from, &to)
    });
    push_task(name, sources, target, whole, run_on, task)
}

/// An error if an array may not be used so.
fn check_access(sources: &[&NDArray], target: &NDArray, whole: bool) -> Result<()> {
    if whole {
        target.writable()?
    } else {
        target.writable_in_part()?
    }
    sources.iter().try_for_each(|s| s.usable())
}

/// Pushes `task`, which reads the sources and writes the target.
fn push_task(
    name: &'static str,
    sources: &[&NDArray],
    target: &NDArray,
    whole: bool,
    run_on: RunOn,
    task: Task,
) -> Result<()> {
    let mut reads: SmallVec<[Var; 6]> = sources.iter().map(|s| s.var()).collect();
    let mut writes: SmallVec<[Var; 6]> = SmallVec::from_slice(&[target.var()]);
    distinct(&mut reads, &mut writes);
    let overwrites = whole && target.is_whole() && !sources.iter().any(|s| s.same_chunk(target));
    let overwrites = usize::from(overwrites);
    let (ctx, call_site): (_, Option<FindCallSite<'_>>) =
        (target.context(), Some(&call_site::current));
    let push = Push { ctx, overwrites, run_on, call_site, ..Push::new(name, &reads, &writes) };
    target.base().engine.push(task, push)
}

/// Pushes a copy to, from or between devices, which ends when the copy is done and takes no thread
/// meanwhile.
fn push_device_copy(source: &NDArray, target: &NDArray) -> Result<()> {
    let name = "_copyto";
    check_access(&[source], target, true)?;
    let (from, to) = (source.clone(), target.clone());
    let task = Task::asynchronous(move |_, done: OnComplete| {
        let _span = to.base().profiler.operator(mode::IMPERATIVE, name, "", to.context());
        let keep = (from.clone(), to.clone());
        let end = move |result: Result<()>| {
            drop(keep);
            done.complete(result);
        };
        from.start_copy(&to, Box::new(end));
    });
    push_task(name, &[source], target, true, RunOn::Worker, task)
}

fn views<A: Borrow<NDArray>>(arrays: &[A]) -> Result<SmallVec<[View; 1]>> {
    arrays.iter().map(|a| a.borrow().view()).collect()
}

/// Pushes `target[...] = value`.
pub fn push_fill(target: &NDArray, value: f64) -> Result<()> {
    push_work("_full", &[], target, target.size(), true, move |_, to| fill(to, value))
}

/// Pushes a copy between two arrays of equal size, converting the dtype.
pub fn push_copy(source: &NDArray, target: &NDArray) -> Result<()> {
    if source.size() != target.size() {
        return Err(Error::value(format!(
            "cannot copy an array of shape {} into one of shape {}: expected equal sizes",
            source.shape(),
            target.shape()
        )));
    }
    if source.overlaps(target) && source.dtype() != target.dtype() {
        return Err(Error::value(
            "cannot convert an array into its own memory: expected another target",
        ));
    }
    if are_on_host(&[source], target) {
        let elems = source.size();
        return push_work("_copyto", &[source], target, elems, true, |from, to| copy(&from[0], to));
    }
    if source.dtype() == target.dtype() && !source.same_chunk(target) && source.size() > 0 {
        return push_device_copy(source, target);
    }
    push_run("_copyto", &[source], target, usize::MAX, true, |from, to| {
        copy_between(from[0], to, false)
    })
}

/// Pushes `target += source` of one dtype, without overlap.
pub fn push_add(source: &NDArray, target: &NDArray) -> Result<()> {
    if source.size() != target.size() || source.dtype() != target.dtype() {
        return Err(Error::internal("arrays that are added differ in size or dtype"));
    }
    push_work("_add_to", &[source], target, source.size(), false, |from, to| add(&from[0], to))
}

/// A new array of the same values.
pub fn copied(array: &NDArray) -> Result<NDArray> {
    let copy = NDArray::pending(array.base(), array.shape(), array.dtype(), array.context())?;
    push_copy(array, &copy)?;
    Ok(copy)
}

/// Copies to or from a device, or adds there, now.
pub fn copy_between(source: &NDArray, target: &NDArray, sum: bool) -> Result<()> {
    if !sum && source.dtype() == target.dtype() && !source.overlaps(target) {
        return if source.size() > 0 { source.copy_now(target) } else { Ok(()) };
    }
    with_host_views(&[source], target, !sum, |from, to| {
        if sum {
            add(&from[0], to)
        } else {
            copy(&from[0], to)
        }
        Ok(())
    })
}

/// A strided part of an array: where it begins, extents and steps, in elements.
#[derive(Clone, Debug)]
pub struct Region {
    pub offset: usize,
    pub extents: Vec<i64>,
    pub steps: Vec<i64>,
}

impl Region {
    fn check(&self, array: &NDArray) -> Result<()> {
        if region_fits(array.size(), self.offset, &self.extents, &self.steps) {
            return Ok(());
        }
        let Region { offset, extents, steps } = self;
        let region = format!("offset {offset}, extents {extents:?}, steps {steps:?}");
        let shape = array.shape();
        Err(Error::index(format!(
            "invalid region ({region}): expected a part of an array of shape {shape}"
        )))
    }

    fn is_all_of(&self, array: &NDArray) -> bool {
        let full = Shape::new(&self.extents);
        self.offset == 0
            && full.size() == array.size()
            && full
                .strides()
                .iter()
                .zip(&self.steps)
                .zip(&self.extents)
                .all(|((want, step), extent)| *extent == 1 || want == step)
    }
}

/// Pushes a copy of a region of `source` to a region of `target`; equal extents, dtype converted.
pub fn push_region(source: &NDArray, from: Region, target: &NDArray, to: Region) -> Result<()> {
    from.check(source)?;
    to.check(target)?;
    let elems = Shape::new(&to.extents).size();
    let whole = to.is_all_of(target);
    let through_copy = source.same_chunk(target) || source.dtype() != target.dtype();
    let size = source.size();
    push_work("_copy_region", &[source], target, elems, whole, move |sources, dst| {
        let src = &sources[0];
        if !through_copy {
            copy_strided(src, from.offset, &from.steps, dst, to.offset, &to.steps, &to.extents);
            return;
        }
        let mut buffer = Buffer::new(size * dst.dtype().size());
        let own = buffer.view(0, src.shape().clone(), dst.dtype());
        copy(src, &own);
        copy_strided(&own, from.offset, &from.steps, dst, to.offset, &to.steps, &to.extents);
    })
}

/// Pushes `target[i] = source[positions[i]]` over flat positions.
pub fn push_gather(source: &NDArray, positions: Vec<i64>, target: &NDArray) -> Result<()> {
    check_positions(&positions, source.size())?;
    let elems = positions.len();
    push_work("_gather", &[source], target, elems, true, move |s, t| gather(&s[0], &positions, t))
}

/// Pushes `target[positions[i]] = source[i]` over flat positions.
pub fn push_scatter(source: &NDArray, positions: Vec<i64>, target: &NDArray) -> Result<()> {
    check_positions(&positions, target.size())?;
    let elems = positions.len();
    push_work("_scatter", &[source], target, elems, false, move |s, t| {
        scatter(&s[0], &positions, t)
    })
}

fn check_positions(positions: &[i64], size: usize) -> Result<()> {
    match positions.iter().find(|&&p| p < 0 || p >= size as i64) {
        Some(bad) => Err(Error::index(format!(
            "invalid position {bad}: expected 0 or more, and less than {size}"
        ))),
        None => Ok(()),
    }
}
