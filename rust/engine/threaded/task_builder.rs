//! A task under construction: the record of a push is written straight into its slot.

use crate::context::Context;
use crate::engine::data::inline_slot::INLINE_SLOT;
use crate::engine::data::interner::Interner;
use crate::engine::data::slot::{Body, Extra, Head, TaskRef, VARS, flag};
use crate::engine::data::slot_allocator::ReturnedSlots;
use crate::engine::data::task_slab::{Slab, SpareSlots};
use crate::engine::data::variables::{VarState, find_in};
use crate::engine::push::{Prop, Push, RunOn};
use crate::engine::threaded::core::{Core, PushState};
use crate::engine::validate::MAX_VARIABLES;
use std::sync::Arc;

/// A slot on its way to become a task, and its body. Exclusive to the pusher until it is opened.
#[derive(Clone, Copy)]
pub struct TaskBuilder {
    pub slot: u32,
    pub body: *mut Body,
}

/// Clears what an earlier task left. The allocation stays with the slot, for the next call site.
#[cold]
#[inline(never)]
fn clear_extra(extra: &mut Extra) {
    let Extra { name, call_site, vars, priority, waiting } = extra;
    (*name, *call_site, *priority, *waiting) = (None, None, 0, Vec::new());
    if vars.capacity() <= 64 {
        vars.clear();
    } else {
        *vars = Vec::new();
    }
}

/// The [`flag`]s of a push.
#[inline(always)]
fn flags(push: &Push<'_>) -> u8 {
    // An asynchronous function may do anything: only its pusher runs it inline.
    let by_cost = if push.run_on == RunOn::Worker { 0 } else { flag::CHEAP };
    let by_prop = by_cost
        | match push.prop {
            Prop::Normal | Prop::Async | Prop::CopyFromDevice | Prop::CopyToDevice => 0,
            Prop::CpuPrioritized | Prop::GpuPrioritized => flag::HIGH,
            Prop::DeleteVar => flag::HIGH | flag::NO_SKIP | flag::TO_THE_END,
            Prop::NoSkip => flag::NO_SKIP,
        };
    match push.priority {
        0 => by_prop,
        1.. => by_prop | flag::HIGH,
        _ if by_prop & flag::HIGH != 0 => by_prop,
        _ => by_prop | flag::LOW,
    }
}

impl TaskBuilder {
    /// Takes a free slot; `None` if the slab is full.
    #[inline]
    pub fn new(state: &mut PushState, slab: &Slab, returned: &ReturnedSlots) -> Option<Self> {
        let slot = state.slots.allocate(slab, returned)?;
        Some(TaskBuilder { slot, body: slab.get(slot).body() })
    }

    /// For a task that is to run inside its push: takes the inline slot if it is free.
    #[inline(always)]
    pub fn inline(core: &Core, state: &mut PushState) -> Option<Self> {
        if !core.inline_slot.0.take() {
            return Self::new(state, &core.slab, &core.returned);
        }
        Some(TaskBuilder { slot: INLINE_SLOT, body: core.slab.get(INLINE_SLOT).body() })
    }

    /// For a task that cannot run inside its push after all: moves its variables to an ordinary
    /// slot. `None` if the slab is full; the inline slot is free again in either case.
    #[inline(never)]
    pub fn leave_inline_slot(mut self, core: &Core, state: &mut PushState) -> Option<Self> {
        if self.slot != INLINE_SLOT {
            return Some(self);
        }
        let mut ordinary = Self::new(state, &core.slab, &core.returned);
        if let Some(ordinary) = &mut ordinary {
            let (from, to) = (self.body_mut(), ordinary.cleared());
            let Head { vars, reads, writes, .. } = from.head;
            (to.head.vars, to.head.reads, to.head.writes) = (vars, reads, writes);
            if from.head.counts().1 > VARS {
                std::mem::swap(&mut from.extra, &mut to.extra);
            }
        }
        core.inline_slot.0.release();
        ordinary
    }

    /// Gives up the task: its slot is free again.
    #[cold]
    pub fn abandon(self, core: &Core, state: &mut PushState) {
        match self.slot {
            INLINE_SLOT => core.inline_slot.0.release(),
            slot => state.slots.give_back(slot),
        }
    }

    #[inline]
    pub fn body(&self) -> &Body {
        // SAFETY: the slot is free and exclusive to this builder; all bytes of a body are
        // initialised from the start, except the function.
        unsafe { &*self.body }
    }

    #[inline]
    fn body_mut(&mut self) -> &mut Body {
        // SAFETY: as in `body`; `extra` is `None` or a box.
        unsafe { &mut *self.body }
    }

    /// The body, with `extra` cleared.
    #[inline(always)]
    fn cleared(&mut self) -> &mut Body {
        let body = self.body_mut();
        if let Some(extra) = &mut body.extra {
            clear_extra(extra);
        }
        body
    }

    /// First: writes the variables of a push, and returns what the probe found. `None` if a
    /// variable is deleted or named twice, or if there are too many. (Copying the indices here
    /// later would stall on the stores that have just written them.)
    #[inline(always)]
    pub fn probe(
        &mut self,
        push: &Push<'_>,
        state: &mut PushState,
        probe: Probe<'_>,
    ) -> Option<Found> {
        let (reads, writes) = self.set_counts(push.reads.len(), push.writes.len())?;
        let mark = state.vars.new_mark();
        let states = state.vars.states();
        let mut found = Found { max_edges: 0, is_idle: true };
        for (&v, index) in push.reads.iter().zip(reads) {
            let (i, var) = find_in(states, v, mark)?;
            *index = i;
            found.max_edges += 1;
            found.is_idle &= probe.read(var);
        }
        for (&v, index) in push.writes.iter().zip(writes) {
            let (i, var) = find_in(states, v, mark)?;
            *index = i;
            found.max_edges += var.max_before_write();
            found.is_idle &= probe.write(var);
        }
        Some(found)
    }

    /// Sets the numbers of variables and returns the space for them; `None` if there are too many.
    #[inline(always)]
    fn set_counts(&mut self, reads: usize, writes: usize) -> Option<(&mut [u32], &mut [u32])> {
        let body = self.cleared();
        body.head.reads = reads as u16;
        body.head.writes = writes as u16;
        if reads + writes > VARS && !reserve_vars(body, reads + writes) {
            return None;
        }
        Some(body.vars_mut())
    }

    /// Then: writes the rest of a push, except function and sequence number.
    #[inline(always)]
    pub fn describe(&mut self, push: &Push<'_>, names: &mut Interner, call_site: Option<Arc<str>>) {
        let name = names.intern(push.name);
        let head = &mut self.body_mut().head;
        head.name = name.unwrap_or_else(|| names.empty());
        head.overwrites = push.overwrites as u16;
        head.flags = flags(push);
        head.device_type = push.ctx.device_type as u8;
        head.device_id = push.ctx.device_id;
        if name.is_none() || call_site.is_some() || push.priority != 0 {
            self.set_extra(name.is_none().then_some(push.name), call_site, push.priority);
        }
    }

    #[cold]
    fn set_extra(&mut self, name: Option<&str>, call_site: Option<Arc<str>>, priority: i32) {
        let extra = self.body_mut().extra.get_or_insert_default();
        extra.name = name.map(Arc::from);
        extra.call_site = call_site;
        extra.priority = priority;
    }

    /// For a signal: the running operations that wait for it.
    pub fn set_waiting(&mut self, waiting: Vec<TaskRef>) {
        if !waiting.is_empty() {
            self.body_mut().extra.get_or_insert_default().waiting = waiting;
        }
    }

    /// Describes a task of the engine itself, which writes at most one variable.
    pub fn describe_internal(&mut self, name: *const Box<str>, flags: u8, var: Option<u32>) {
        let mut head = Head::new(name, flags, Context::default());
        (head.vars[0], head.writes) = (var.unwrap_or(0), u16::from(var.is_some()));
        self.cleared().head = head;
    }

    /// Last: the position in push order.
    #[inline(always)]
    pub fn set_sequence(&mut self, pushed: u64) {
        self.body_mut().head.sequence = pushed as u32;
    }
}

/// Makes room for more variables than a slot holds; false if there are too many.
#[cold]
#[inline(never)]
fn reserve_vars(body: &mut Body, n: usize) -> bool {
    if n > MAX_VARIABLES {
        return false;
    }
    body.extra.get_or_insert_default().vars.resize(n, 0);
    true
}

/// What a probe found out about the variables of a push.
#[derive(Clone, Copy)]
pub struct Found {
    /// An upper bound of the task's predecessors.
    pub max_edges: usize,
    /// True if the task has to wait for nothing; false if the probe did not ask.
    pub is_idle: bool,
}

/// How a push inspects its variables before it changes anything.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    pub slab: &'a Slab,
    /// Asks whether the variables are idle. Otherwise the slots that are likely to gain successors
    /// are prefetched: not that of a last writer before a writer, nearly always the last task
    /// pushed.
    pub asks: bool,
}

impl Probe<'_> {
    /// Inspects a variable to be read.
    #[inline(always)]
    fn read(self, var: &VarState) -> bool {
        if self.asks {
            return var.is_idle_for_read(self.slab);
        }
        self.slab.prefetch_word(var.before_read());
        false
    }

    /// Inspects a variable to be written.
    #[inline(always)]
    fn write(self, var: &VarState) -> bool {
        if self.asks {
            return var.is_idle_for_write(self.slab);
        }
        var.first_readers().for_each(|t| self.slab.prefetch_word(t));
        false
    }
}
