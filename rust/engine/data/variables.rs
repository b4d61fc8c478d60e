//! Variables: their pending accesses, and the edges that follow from these.
//!
//! Everything here except the versions is accessed under the push lock only. Each variable records
//! its last writer and the readers pushed since. A writer waits for these readers, or for the last
//! writer if there are none; a reader waits for the last writer.

use crate::engine::data::slot::TaskRef;
use crate::engine::data::task_slab::Slab;
use crate::engine::data::virtual_array::VirtualArray;
use crate::engine::messages::{deleted_variable, names_deleted_variable};
use crate::engine::push::Var;
use crate::engine::validate::check_variables;
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Readers stored inline. A variable then fits into two cache lines.
const INLINE: usize = 12;

/// The readers of a variable since its last write.
#[derive(Default)]
#[repr(C)]
struct Readers {
    len: u32,
    /// Completed readers are dropped at this length.
    limit: u32,
    inline: [u64; INLINE],
    /// Readers beyond the inline ones.
    #[expect(clippy::box_collection, reason = "keeps a variable within two cache lines")]
    many: Option<Box<Vec<u64>>>,
}

impl Readers {
    #[inline(always)]
    fn push(&mut self, task: TaskRef, slab: &Slab) {
        match self.inline.get_mut(self.len as usize) {
            Some(place) => {
                *place = task.0;
                self.len += 1;
            }
            None => self.push_many(task, slab),
        }
    }

    #[cold]
    fn push_many(&mut self, task: TaskRef, slab: &Slab) {
        if self.len >= self.limit.max(16) {
            self.prune(slab);
        }
        self.append(task.0);
    }

    fn append(&mut self, task: u64) {
        match self.inline.get_mut(self.len as usize) {
            Some(place) => *place = task,
            None => self.many.get_or_insert_default().push(task),
        }
        self.len += 1;
    }

    /// Drops completed readers, so that the list of a variable that is only read stays bounded.
    #[cold]
    fn prune(&mut self, slab: &Slab) {
        let all: Vec<u64> = self.iter().filter(|&r| !slab.is_done(r)).map(|r| r.0).collect();
        self.clear();
        all.iter().for_each(|&r| self.append(r));
        self.limit = (2 * self.len).max(16);
    }

    /// Returns true if no reader is pending.
    #[inline(always)]
    fn are_done(&self, slab: &Slab) -> bool {
        match self.inline.get(..self.len as usize) {
            Some(inline) => inline.iter().all(|&r| slab.is_done(TaskRef(r))),
            None => self.iter().all(|r| slab.is_done(r)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = TaskRef> + '_ {
        let inline = self.inline.iter().take(self.len as usize);
        inline.chain(self.many.iter().flat_map(|many| many.iter())).map(|&r| TaskRef(r))
    }

    #[inline]
    fn clear(&mut self) {
        if self.len as usize > INLINE {
            self.clear_many();
        }
        self.len = 0;
    }

    #[cold]
    fn clear_many(&mut self) {
        match &mut self.many {
            Some(many) if many.capacity() <= 1024 => many.clear(),
            _ => self.many = None,
        }
    }
}

/// One variable, on cache lines of its own.
#[repr(C, align(128))]
pub struct VarState {
    generation: u32,
    /// The last push that named this variable: detects duplicates in linear time.
    mark: u32,
    last_writer: TaskRef,
    readers: Readers,
}

const _: () = assert!(size_of::<VarState>() == 128);

impl Default for VarState {
    fn default() -> Self {
        let readers = Readers::default();
        VarState { generation: 0, mark: 0, last_writer: TaskRef::NONE, readers }
    }
}

impl VarState {
    /// Returns true if this is the state of `var`, which is then alive.
    #[inline(always)]
    fn is(&self, var: Var) -> bool {
        self.generation == (var.0 >> 32) as u32
    }

    /// Returns true if no writer is pending.
    #[inline(always)]
    pub fn is_idle_for_read(&self, slab: &Slab) -> bool {
        slab.is_done(self.last_writer)
    }

    /// Returns true if nothing is pending.
    #[inline(always)]
    pub fn is_idle_for_write(&self, slab: &Slab) -> bool {
        // If the last writer is complete, so are the readers before it, which may still be stored.
        slab.is_done(self.last_writer)
            && slab.is_done(TaskRef(self.readers.inline[0]))
            && (self.readers.len <= 1 || self.readers.are_done(slab))
    }

    /// An upper bound of the tasks that a new writer waits for.
    #[inline(always)]
    pub fn max_before_write(&self) -> usize {
        self.readers.len.max(1) as usize
    }

    /// The first readers that a new writer waits for.
    #[inline(always)]
    pub fn first_readers(&self) -> impl Iterator<Item = TaskRef> + '_ {
        self.readers.inline[..2].iter().take(self.readers.len as usize).map(|&t| TaskRef(t))
    }

    /// The task that a new reader waits for, if it is pending.
    pub fn before_read(&self) -> TaskRef {
        self.last_writer
    }

    /// The tasks that a new writer waits for, as far as they are pending.
    #[inline(always)]
    pub fn before_write(&self) -> impl Iterator<Item = TaskRef> + '_ {
        let writer = (self.readers.len == 0).then_some(self.last_writer);
        writer.into_iter().chain(self.readers.iter())
    }

    /// Makes `task` a reader; calls `wait_for` with its predecessor, which returns whether that is
    /// pending.
    #[inline(always)]
    pub fn read(&mut self, task: TaskRef, slab: &Slab, wait_for: impl FnOnce(TaskRef) -> bool) {
        if !wait_for(self.last_writer) {
            self.last_writer = TaskRef::NONE; // its slot need not be checked again
        }
        self.readers.push(task, slab);
    }

    /// Makes `task` the last writer; calls `wait_for` with each of its predecessors.
    #[inline(always)]
    pub fn write(&mut self, task: TaskRef, wait_for: impl FnMut(TaskRef)) {
        self.before_write().for_each(wait_for);
        self.readers.clear();
        self.last_writer = task;
    }
}

const DELETED: u32 = 1 << 31;

/// All variables of an engine; under the push lock.
#[derive(Default)]
pub struct Vars {
    states: Vec<VarState>,
    free: Vec<u32>,
    mark: u32,
}

impl Vars {
    pub fn create(&mut self) -> Var {
        let i = match self.free.pop() {
            Some(i) => i,
            None => {
                self.states.push(VarState::default());
                (self.states.len() - 1) as u32
            }
        };
        Var((self.states[i as usize].generation as u64) << 32 | i as u64)
    }

    /// The index of a live variable.
    #[inline]
    pub fn find(&self, var: Var) -> Option<u32> {
        let i = var.number();
        self.states.get(i as usize).filter(|s| s.is(var)).map(|_| i)
    }

    /// Returns a mark that no variable has.
    #[inline]
    pub fn new_mark(&mut self) -> u32 {
        self.mark = self.mark.wrapping_add(1);
        if self.mark == 0 {
            self.reset_marks();
        }
        self.mark
    }

    #[cold]
    #[inline(never)]
    fn reset_marks(&mut self) {
        self.mark = 1;
        self.states.iter_mut().for_each(|s| s.mark = 0);
    }

    /// Marks `var` and returns its index; `None` if it is deleted or already has the mark.
    #[inline(always)]
    pub fn take(&mut self, var: Var, mark: u32) -> Option<u32> {
        find_in(&mut self.states, var, mark).map(|(i, _)| i)
    }

    /// All variables, live or not, by index.
    #[inline(always)]
    pub fn states(&mut self) -> &mut [VarState] {
        &mut self.states
    }

    #[inline]
    pub fn last_writer(&self, i: u32) -> TaskRef {
        self.states[i as usize].last_writer
    }

    pub fn readers(&self, i: u32) -> impl Iterator<Item = TaskRef> + '_ {
        self.states[i as usize].readers.iter()
    }

    /// Makes the variable unknown to its handles; its index stays taken until [`Vars::free`].
    pub fn mark_deleted(&mut self, i: u32) {
        let s = &mut self.states[i as usize];
        s.generation |= DELETED;
    }

    /// Makes the index available again. Nothing that names the variable is pending.
    pub fn free(&mut self, i: u32) {
        let s = &mut self.states[i as usize];
        s.generation = (s.generation & !DELETED).wrapping_add(1) & !DELETED;
        s.last_writer = TaskRef::NONE;
        s.readers.len = 0;
        s.readers.many = None;
        self.free.push(i);
    }

    /// Discards all tasks; calls `lost` with each variable whose last writer is not complete, and
    /// that writer.
    pub fn forget_tasks(
        &mut self,
        is_done: impl Fn(TaskRef) -> bool,
        mut lost: impl FnMut(u32, TaskRef),
    ) {
        for (i, s) in self.states.iter_mut().enumerate() {
            if !is_done(s.last_writer) {
                lost(i as u32, s.last_writer);
            }
            s.last_writer = TaskRef::NONE;
            s.readers.clear();
        }
    }
}

/// Marks a live variable and returns its index and state; `None` if it is deleted or already
/// marked.
#[inline(always)]
pub fn find_in(states: &mut [VarState], var: Var, mark: u32) -> Option<(u32, &mut VarState)> {
    let i = var.number();
    let s = states.get_mut(i as usize).filter(|s| s.is(var) && s.mark != mark)?;
    s.mark = mark;
    Some((i, s))
}

/// The error for lists of variables that [`Vars::take`] refused.
#[cold]
pub fn explain(vars: &Vars, name: &str, reads: &[Var], writes: &[Var]) -> Error {
    for (kind, list) in [("reads", reads), ("writes", writes)] {
        if let Some(v) = list.iter().find(|&&v| vars.find(v).is_none()) {
            return names_deleted_variable(name, kind, *v);
        }
    }
    match check_variables(name, reads, writes) {
        Err(e) => e,
        Ok(()) => {
            Error::internal(format!("operation '{name}': variables refused without a reason"))
        }
    }
}

/// The most variables an engine can have.
pub const MAX: usize = 1 << 26;

/// Completed writes of each variable. Stored apart from the states, because completing threads
/// access these and pushers do not. Writers of one variable never overlap, so loads and stores
/// suffice.
pub struct Versions(VirtualArray<AtomicU64>);

impl Versions {
    pub fn new() -> Self {
        Versions(VirtualArray::new(MAX))
    }

    #[inline]
    fn get(&self, i: u32) -> &AtomicU64 {
        // SAFETY: the reservation is zeroed memory, and zero is a valid value.
        unsafe { &*self.0.get(i as usize) }
    }

    /// A new variable has version 0. Under the push lock.
    pub fn reset(&self, var: Var) {
        self.get(var.0 as u32).store(0, Ordering::Relaxed);
    }

    /// The version of a variable.
    pub fn read(&self, i: u32) -> u64 {
        self.get(i).load(Ordering::Relaxed)
    }

    #[inline]
    pub fn advance(&self, i: u32) {
        let version = self.get(i);
        version.store(version.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The index of a live variable, or the error that it is deleted.
pub fn live_index(vars: &Vars, var: Var) -> Result<u32> {
    vars.find(var).ok_or_else(|| deleted_variable(var))
}
