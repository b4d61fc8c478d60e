//! What a push is about: a function and its variables as the caller gives them, or a run of a ready-made operation.

use super::names::Names;
use super::operation::OperationInner;
use super::push::Draft;
use super::slot::{TaskRef, flag};
use super::{Prop, Push, Var};
use crate::context::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a push is about: the caller says, or a ready-made operation.
pub trait Source {
    /// Are its variables known to differ?
    const DIFFER: bool;

    fn name(&self) -> &str;
    /// What it reads, what it writes.
    fn lists(&self) -> (&[Var], &[Var]);
    /// Its property, whether it is cheap, its priority.
    fn treatment(&self) -> (Prop, bool, i32);
    /// Writes all but variables, function and place in the order.
    fn write(&self, draft: Draft, names: &mut Names, origin: Option<Arc<str>>);
    /// It is `task` now.
    fn opened(&self, _task: TaskRef) {}

    /// Is it run by its pusher, if it is ready?
    #[inline(always)]
    fn may_run_here(&self) -> bool {
        let (prop, cheap, priority) = self.treatment();
        (cheap || matches!(prop, Prop::Async | Prop::DeleteVar)) && priority == 0
    }

    /// The bits of [`flag`].
    #[inline(always)]
    fn flags(&self) -> u8 {
        let (prop, cheap, priority) = self.treatment();
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
}

impl Source for Push<'_> {
    const DIFFER: bool = false;

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
    fn write(&self, draft: Draft, names: &mut Names, origin: Option<Arc<str>>) {
        let name = names.keep(self.name);
        let kept = name.unwrap_or_else(|| names.unnamed());
        draft.write_rest(kept, self.flags(), self.overwrites, self.ctx);
        if name.is_none() || origin.is_some() || self.priority != 0 {
            draft.write_extra(name.is_none().then_some(self.name), origin, self.priority);
        }
    }
}

/// A run of a ready-made operation, whose variables were compared and whose name was kept when it was made.
pub struct Run<'a> {
    pub operation: &'a OperationInner,
    pub ctx: Context,
    pub priority: i32,
}

impl Source for Run<'_> {
    const DIFFER: bool = true;

    #[inline(always)]
    fn name(&self) -> &str {
        &self.operation.name
    }

    #[inline(always)]
    fn lists(&self) -> (&[Var], &[Var]) {
        (&self.operation.reads, &self.operation.writes)
    }

    #[inline(always)]
    fn treatment(&self) -> (Prop, bool, i32) {
        (self.operation.prop, self.operation.cheap, self.priority)
    }

    #[inline(always)]
    fn write(&self, draft: Draft, _: &mut Names, origin: Option<Arc<str>>) {
        let o = self.operation;
        draft.write_rest(o.kept_name, self.flags(), o.overwrites, self.ctx);
        if origin.is_some() || self.priority != 0 {
            draft.write_extra(None, origin, self.priority);
        }
    }

    #[inline(always)]
    fn opened(&self, task: TaskRef) {
        self.operation.last.store(task.0, Ordering::Relaxed);
    }
}
