//! Variables: what pushers know of them, and the edges that follow from it.
//!
//! Everything here is touched under the push lock only, but for the versions. Of each variable the last
//! writer is known and the readers pushed since. A writer waits for these readers, or for the last writer if
//! there are none; a reader waits for the last writer.

use crate::engine::Var;
use crate::engine::data::task_slab::{Slab, TaskRef};
use crate::engine::data::virtual_array::Reserved;
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// (With these a variable fits into two lines; the second one is needed for more than five.)
const FEW: usize = 12;

/// The readers of a variable since its last write.
#[derive(Default)]
#[repr(C)]
struct Readers {
    len: u32,
    /// Completed readers are dropped when so many are known.
    limit: u32,
    few: [u64; FEW],
    /// Those beyond the first few. (A box, so that a variable fits into its lines.)
    #[allow(clippy::box_collection)] // as just said
    many: Option<Box<Vec<u64>>>,
}

impl Readers {
    #[inline(always)]
    fn push(&mut self, task: TaskRef, slab: &Slab) {
        // A task whose slot is used again is done: those that run inside their push leave one reader at a time.
        if TaskRef(self.few[0]).slot() == task.slot() {
            self.few[0] = task.0;
            self.len = self.len.max(1);
            return;
        }
        match self.few.get_mut(self.len as usize) {
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
        match self.few.get_mut(self.len as usize) {
            Some(place) => *place = task,
            None => self.many.get_or_insert_default().push(task),
        }
        self.len += 1;
    }

    /// Drops completed readers, or a weight that is only read would grow for ever.
    #[cold]
    fn prune(&mut self, slab: &Slab) {
        let all: Vec<u64> = self.iter().filter(|&r| !slab.is_done(r)).map(|r| r.0).collect();
        self.clear();
        all.iter().for_each(|&r| self.append(r));
        self.limit = (2 * self.len).max(16);
    }

    fn iter(&self) -> impl Iterator<Item = TaskRef> + '_ {
        let few = self.few.iter().take(self.len as usize);
        few.chain(self.many.iter().flat_map(|many| many.iter())).map(|&r| TaskRef(r))
    }

    #[inline]
    fn clear(&mut self) {
        if self.len as usize > FEW {
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

/// One variable, in lines of its own.
#[repr(C, align(128))]
pub struct VarState {
    generation: u32,
    /// The push that looked at this variable last: finds duplicates without comparing all with all.
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
    /// Is this the state of `var`, which is alive then?
    #[inline(always)]
    fn is(&self, var: Var) -> bool {
        self.generation == (var.0 >> 32) as u32
    }

    /// Is nothing pending that writes it?
    #[inline(always)]
    pub fn may_be_read(&self, slab: &Slab) -> bool {
        slab.is_done(self.last_writer)
    }

    /// Is nothing pending on it?
    #[inline(always)]
    pub fn may_be_written(&self, slab: &Slab) -> bool {
        // (When the last writer is done, so are readers from before it, whose places may not have been used since.)
        slab.is_done(self.last_writer)
            && slab.is_done(TaskRef(self.readers.few[0]))
            && (self.readers.len <= 1 || self.readers.iter().all(|r| slab.is_done(r)))
    }

    /// A task that is to write waits for at most so many.
    #[inline(always)]
    pub fn most_before_write(&self) -> usize {
        self.readers.len.max(1) as usize
    }

    /// The first of those that a task that is to write waits for.
    #[inline(always)]
    pub fn first_readers(&self) -> impl Iterator<Item = TaskRef> + '_ {
        self.readers.few[..2].iter().take(self.readers.len as usize).map(|&t| TaskRef(t))
    }

    /// What a task that is to read waits for, if it is pending.
    pub fn before_read(&self) -> TaskRef {
        self.last_writer
    }

    /// What a task that is to write waits for, as far as it is pending.
    #[inline(always)]
    pub fn before_write(&self) -> impl Iterator<Item = TaskRef> + '_ {
        let writer = (self.readers.len == 0).then_some(self.last_writer);
        writer.into_iter().chain(self.readers.iter())
    }

    /// Makes `task` a reader; `wait_for` is called with the task that it must wait for, and says whether that is
    /// pending.
    #[inline(always)]
    pub fn read(&mut self, task: TaskRef, slab: &Slab, wait_for: impl FnOnce(TaskRef) -> bool) {
        if !wait_for(self.last_writer) {
            self.last_writer = TaskRef::NONE; // whose slot need not be looked at again
        }
        self.readers.push(task, slab);
    }

    /// Makes `task` the last writer; `wait_for` is called with each task that it must wait for.
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
    /// See [`Vars::gone`].
    gone: u64,
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

    /// The slot of a live variable.
    #[inline]
    pub fn find(&self, var: Var) -> Option<u32> {
        let i = var.number();
        self.states.get(i as usize).filter(|s| s.is(var)).map(|_| i)
    }

    /// How many handles find no variable any more: while this stands, those that were found are found again.
    #[inline]
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// A mark that no variable carries.
    #[inline]
    pub fn new_mark(&mut self) -> u32 {
        self.mark = self.mark.wrapping_add(1);
        if self.mark == 0 {
            self.forget_marks();
        }
        self.mark
    }

    #[cold]
    #[inline(never)]
    fn forget_marks(&mut self) {
        self.mark = 1;
        self.states.iter_mut().for_each(|s| s.mark = 0);
    }

    /// The slot of `var`, marked. None if it is deleted or carries the mark already.
    #[inline(always)]
    pub fn take(&mut self, var: Var, mark: u32) -> Option<u32> {
        find_in(&mut self.states, var, mark).map(|(i, _)| i)
    }

    /// All variables, live or not, by their slots.
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

    /// No handle finds the variable from here on; the slot stays taken until [`Vars::recycle`].
    pub fn bury(&mut self, i: u32) {
        let s = &mut self.states[i as usize];
        s.generation |= DELETED;
        self.gone += 1;
    }

    /// Lets a buried variable's slot be used again. Nothing that names it is pending any more.
    pub fn recycle(&mut self, i: u32) {
        let s = &mut self.states[i as usize];
        self.gone += u64::from(s.generation & DELETED == 0); // or it was counted when it was buried
        s.generation = (s.generation & !DELETED).wrapping_add(1) & !DELETED;
        s.last_writer = TaskRef::NONE;
        s.readers.len = 0;
        s.readers.many = None;
        self.free.push(i);
    }

    /// Forgets all tasks: calls `lost` with each live variable whose last writer is not done, and with that.
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

    pub fn name(i: u32) -> String {
        format!("variable {i}")
    }
}

/// A live variable among `states`, which is marked. None as well if it carries the mark already.
#[inline(always)]
pub fn find_in(states: &mut [VarState], var: Var, mark: u32) -> Option<(u32, &mut VarState)> {
    let i = var.number();
    let s = states.get_mut(i as usize).filter(|s| s.is(var) && s.mark != mark)?;
    s.mark = mark;
    Some((i, s))
}

/// Says what is wrong with lists of variables for which [`Vars::take`] gave none.
#[cold]
pub fn explain(vars: &Vars, name: &str, reads: &[Var], writes: &[Var]) -> Error {
    for (kind, list) in [("reads", reads), ("writes", writes)] {
        if let Some(v) = list.iter().find(|&&v| vars.find(v).is_none()) {
            let v = v.0 as u32;
            return Error::value(format!(
                "operation '{name}' {kind} variable {v}, which is deleted or of another engine"
            ));
        }
    }
    match crate::engine::check_variables(name, reads, writes) {
        Err(e) => e,
        Ok(()) => Error::internal(format!("operation '{name}': variables refused without reason")),
    }
}

/// For so many variables there are places.
pub const MOST: usize = 1 << 26;

/// Completed writes of each variable. Apart from the rest, because those who complete operations touch
/// these and those who push do not. Writers of one variable never overlap, so loads and stores suffice.
pub struct Versions(Reserved<AtomicU64>);

impl Versions {
    pub fn new() -> Self {
        Versions(Reserved::new(MOST))
    }

    #[inline]
    fn get(&self, i: u32) -> &AtomicU64 {
        // SAFETY: all of the reservation is zeroed memory, and zero is a valid value.
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

/// The live variable's slot, or an error that says it is gone.
pub fn living(vars: &Vars, var: Var) -> Result<u32> {
    vars.find(var).ok_or_else(|| gone(var))
}

/// Says that a variable is gone.
#[cold]
pub fn gone(var: Var) -> Error {
    Error::value(format!("variable {} is deleted or of another engine", var.0 as u32))
}
