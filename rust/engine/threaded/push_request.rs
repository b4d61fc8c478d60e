//! What a push is about: a function and its variables as the caller gives them, or a run of a ready-made operation.

use crate::context::Context;
use crate::engine::data::interner::Names;
use crate::engine::data::task_slab::{TaskRef, flag};
use crate::engine::data::variables::find_in;
use crate::engine::operation::OperationInner;
use crate::engine::threaded::core::PushState;
use crate::engine::threaded::task_builder::{Draft, Look};
use crate::engine::{Prop, Push, Var};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a push is about: the caller says, or a ready-made operation.
pub trait Source {
    fn name(&self) -> &str;
    /// What it reads, what it writes.
    fn lists(&self) -> (&[Var], &[Var]);
    /// Its property, whether it is cheap, its priority.
    fn treatment(&self) -> (Prop, bool, i32);
    /// Writes the variables of a draft, and tells how many edges the task may have at most; none if one is not found, or
    /// not as quiet as it is to be. (They are written where they are to stay: to copy what has just been written piece by
    /// piece takes as long as all the rest.)
    fn look(&self, state: &mut PushState, draft: &mut Draft, look: Look<'_>) -> Option<usize>;
    /// Writes the rest but for function and place in the order.
    fn write(&self, draft: &mut Draft, names: &mut Names, origin: Option<Arc<str>>);
    /// It is `task` now.
    fn opened(&self, _task: TaskRef) {}

    /// Is it run by its pusher, if it is ready?
    #[inline(always)]
    fn may_run_here(&self) -> bool {
        let (prop, cheap, priority) = self.treatment();
        cheap || matches!(prop, Prop::Async | Prop::DeleteVar) && priority == 0
    }
}

/// The bits of [`flag`] for a treatment.
#[inline(always)]
pub fn flags((prop, cheap, priority): (Prop, bool, i32)) -> u8 {
    // (An asynchronous function may do anything: only its pusher runs it in passing.)
    let by_cost = if cheap { flag::CHEAP } else { 0 };
    let by_prop = by_cost
        | match prop {
            Prop::Normal | Prop::Async | Prop::CopyFromDevice | Prop::CopyToDevice => 0,
            Prop::CpuPrioritized | Prop::GpuPrioritized => flag::URGENT,
            Prop::DeleteVar => flag::URGENT | flag::NO_SKIP | flag::TO_THE_END,
            Prop::NoSkip => flag::NO_SKIP,
        };
    match priority {
        0 => by_prop,
        1.. => by_prop | flag::URGENT,
        _ if by_prop & flag::URGENT != 0 => by_prop,
        _ => by_prop | flag::LATER,
    }
}

impl Source for Push<'_> {
    #[inline(always)]
    fn name(&self) -> &str {
        self.name
    }

    #[inline(always)]
    fn lists(&self) -> (&[Var], &[Var]) {
        (self.reads, self.writes)
    }

    #[inline(always)]
    fn treatment(&self) -> (Prop, bool, i32) {
        (self.prop, self.cheap, self.priority)
    }

    #[inline(always)]
    fn look(&self, state: &mut PushState, draft: &mut Draft, look: Look<'_>) -> Option<usize> {
        let (to_read, to_write) = draft.write_counts(self.reads.len(), self.writes.len())?;
        let mark = state.vars.new_mark();
        let states = state.vars.states();
        let mut edges = 0;
        for (&v, place) in self.reads.iter().zip(to_read) {
            let (i, var) = find_in(states, v, mark)?;
            *place = i;
            edges += look.at_read(var)?;
        }
        for (&v, place) in self.writes.iter().zip(to_write) {
            let (i, var) = find_in(states, v, mark)?;
            *place = i;
            edges += look.at_write(var)?;
        }
        Some(edges)
    }

    #[inline(always)]
    fn write(&self, draft: &mut Draft, names: &mut Names, origin: Option<Arc<str>>) {
        let name = names.keep(self.name);
        let kept = name.unwrap_or_else(|| names.unnamed());
        draft.write_rest(kept, flags(self.treatment()), self.overwrites, self.ctx);
        if name.is_none() || origin.is_some() || self.priority != 0 {
            draft.write_extra(name.is_none().then_some(self.name), origin, self.priority);
        }
    }
}

/// A run of a ready-made operation of few variables, which were compared when it was made.
pub struct Run<'a> {
    pub operation: &'a OperationInner,
    pub ctx: Context,
    pub priority: i32,
}

impl Source for Run<'_> {
    #[inline(always)]
    fn name(&self) -> &str {
        &self.operation.name
    }

    #[inline(always)]
    fn lists(&self) -> (&[Var], &[Var]) {
        self.operation.lists()
    }

    #[inline(always)]
    fn treatment(&self) -> (Prop, bool, i32) {
        (self.operation.prop, self.operation.cheap, self.priority)
    }

    #[inline(always)]
    fn look(&self, state: &mut PushState, draft: &mut Draft, look: Look<'_>) -> Option<usize> {
        let o = self.operation;
        if !o.is_found(&state.vars) {
            return None;
        }
        draft.write_head(&o.head);
        let (n_reads, n) = o.head.counts();
        let (reads, writes) = o.head.vars.get(..n)?.split_at(n_reads);
        let (states, mut edges) = (state.vars.states(), 0);
        for &v in reads {
            edges += look.at_read(&states[v as usize])?;
        }
        for &v in writes {
            edges += look.at_write(&states[v as usize])?;
        }
        Some(edges)
    }

    #[inline(always)]
    fn write(&self, draft: &mut Draft, _: &mut Names, origin: Option<Arc<str>>) {
        if self.ctx != Context::default() || self.priority != 0 {
            draft.write_treatment(flags(self.treatment()), self.ctx);
        }
        if origin.is_some() || self.priority != 0 {
            draft.write_extra(None, origin, self.priority);
        }
    }

    #[inline(always)]
    fn opened(&self, task: TaskRef) {
        self.operation.last.store(task.0, Ordering::Relaxed);
    }
}
