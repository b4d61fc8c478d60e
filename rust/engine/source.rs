//! What a push is about: a function and its variables as the caller gives them, or a run of a ready-made operation.

use super::names::Names;
use super::operation::OperationInner;
use super::push::Draft;
use super::slot::{TaskRef, flag};
use super::var::{self, VarState, Vars};
use super::{Prop, Push, Var};
use crate::context::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a push is about: the caller says, or a ready-made operation.
pub trait Source {
    fn name(&self) -> &str;
    /// What it reads, what it writes.
    fn lists(&self) -> (&[Var], &[Var]);
    /// Is it run by its pusher, if it is ready?
    fn may_run_here(&self) -> bool;
    /// Something by which [`Source::find`] knows variables that it has found before.
    fn mark(&self, vars: &mut Vars) -> u32;
    /// A variable that is alive, and was not found before.
    fn find<'a>(
        &self,
        states: &'a mut [VarState],
        var: Var,
        mark: u32,
    ) -> Option<(u32, &'a mut VarState)>;
    /// Writes all but variables, function and place in the order.
    fn write(&self, draft: Draft, names: &mut Names, origin: Option<Arc<str>>);
    /// It is `task` now.
    fn opened(&self, task: TaskRef);
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
    fn may_run_here(&self) -> bool {
        may_run_here(self.cheap, self.prop, self.priority)
    }

    #[inline(always)]
    fn mark(&self, vars: &mut Vars) -> u32 {
        vars.new_mark()
    }

    #[inline(always)]
    fn find<'a>(
        &self,
        states: &'a mut [VarState],
        var: Var,
        mark: u32,
    ) -> Option<(u32, &'a mut VarState)> {
        var::mark_in(states, var, mark)
    }

    #[inline(always)]
    fn write(&self, draft: Draft, names: &mut Names, origin: Option<Arc<str>>) {
        let flags = flags_of(self.prop, self.priority, self.cheap);
        let name = names.keep(self.name);
        let kept = name.unwrap_or_else(|| names.unnamed());
        draft.write_rest(kept, flags, self.overwrites, self.ctx);
        if name.is_none() || origin.is_some() || self.priority != 0 {
            draft.write_extra(name.is_none().then_some(self.name), origin, self.priority);
        }
    }

    #[inline(always)]
    fn opened(&self, _: TaskRef) {}
}

/// A run of a ready-made operation, whose variables are known to differ and whose name is kept.
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
        (&self.operation.reads, &self.operation.writes)
    }

    #[inline(always)]
    fn may_run_here(&self) -> bool {
        may_run_here(self.operation.cheap, self.operation.prop, self.priority)
    }

    #[inline(always)]
    fn mark(&self, _: &mut Vars) -> u32 {
        0
    }

    #[inline(always)]
    fn find<'a>(
        &self,
        states: &'a mut [VarState],
        var: Var,
        _: u32,
    ) -> Option<(u32, &'a mut VarState)> {
        var::find_in(states, var)
    }

    #[inline(always)]
    fn write(&self, draft: Draft, _: &mut Names, origin: Option<Arc<str>>) {
        let o = self.operation;
        let flags = flags_of(o.prop, self.priority, o.cheap);
        draft.write_rest(o.kept_name, flags, o.overwrites, self.ctx);
        if self.priority != 0 || origin.is_some() {
            draft.write_extra(None, origin, self.priority);
        }
    }

    #[inline(always)]
    fn opened(&self, task: TaskRef) {
        self.operation.last.store(task.0, Ordering::Relaxed);
    }
}

#[inline]
fn may_run_here(cheap: bool, prop: Prop, priority: i32) -> bool {
    (cheap || matches!(prop, Prop::Async | Prop::DeleteVar)) && priority == 0
}

#[inline]
fn flags_of(prop: Prop, priority: i32, cheap: bool) -> u8 {
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
