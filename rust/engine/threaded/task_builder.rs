//! A push before there is a task: what is written into its slot, and how its variables are looked at.

use crate::context::Context;
use crate::engine::data::task_slab::{Body, Extra, Head, Slab, TaskRef, VARS};
use crate::engine::data::variables::VarState;
use crate::engine::threaded::core::{Core, PushState, vars_of_mut};
use std::sync::Arc;

/// A slot on its way to be a task, out of use until then, and its body.
#[derive(Clone, Copy)]
pub struct Draft {
    pub slot: u32,
    pub body: *mut Body,
}

/// Empties what an earlier task has left. (Its memory stays with the slot: who pushes with lines does so often.)
#[cold]
#[inline(never)]
fn forget_extra(extra: &mut Extra) {
    let Extra { name, origin, vars, priority, waiting } = extra;
    (*name, *origin, *priority, *waiting) = (None, None, 0, Vec::new());
    if vars.capacity() <= 64 {
        vars.clear();
    } else {
        *vars = Vec::new();
    }
}

impl Draft {
    #[inline]
    pub fn take(core: &Core, state: &mut PushState) -> Option<Self> {
        let slot = state.alloc.take(core)?;
        Some(Draft { slot, body: core.slab.get(slot).body() })
    }

    /// The body, to be read.
    #[inline]
    pub fn body(&self) -> &Body {
        // SAFETY: the slot is out of use and this its only user; all bytes of a body are initialised from the
        // start, but for the function.
        unsafe { &*self.body }
    }

    /// The body, to be written, without what an earlier task has left.
    #[inline(always)]
    fn emptied(&mut self) -> &mut Body {
        // SAFETY: as in `body`; `extra` is none or a box.
        let body = unsafe { &mut *self.body };
        if let Some(extra) = &mut body.extra {
            forget_extra(extra);
        }
        body
    }

    /// First: all but function and place in the order, of a task whose variables fit into the slot.
    #[inline(always)]
    pub fn write_head(&mut self, head: &Head) {
        const WORDS: usize = size_of::<Head>() / size_of::<u64>();
        const _: () = assert!(size_of::<Head>() == WORDS * 8 && align_of::<Head>() == 8);
        // Word by word: a wider one would lie across two cache lines, and be read again at once.
        let to = (&raw mut self.emptied().head).cast::<u64>();
        let from = std::ptr::from_ref(head).cast::<u64>();
        for i in 0..WORDS {
            // SAFETY: within both heads, which have no padding. Volatile, so that the words stay apart.
            unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
        }
    }

    /// Or first: how many variables there are. The places for those that it reads and writes; none if they are more than
    /// an operation may name.
    #[inline(always)]
    pub fn write_counts(
        &mut self,
        reads: usize,
        writes: usize,
    ) -> Option<(&mut [u32], &mut [u32])> {
        let body = self.emptied();
        body.head.reads = reads as u16;
        body.head.writes = writes as u16;
        if reads + writes > VARS && !make_room(body, reads + writes) {
            return None;
        }
        Some(vars_of_mut(body))
    }

    /// Then the rest but for function and place in the order.
    #[inline]
    pub fn write_rest(
        &mut self,
        name: *const Box<str>,
        flags: u8,
        overwrites: usize,
        ctx: Context,
    ) {
        // SAFETY: as in `body`.
        let head = unsafe { &mut (*self.body).head };
        head.name = name;
        head.overwrites = overwrites as u16;
        self.write_treatment(flags, ctx);
    }

    /// How and where it is run.
    #[inline]
    pub fn write_treatment(&mut self, flags: u8, ctx: Context) {
        // SAFETY: as in `body`.
        let head = unsafe { &mut (*self.body).head };
        head.flags = flags;
        head.device_type = ctx.device_type as u8;
        head.device_id = ctx.device_id;
    }

    /// What few tasks have.
    #[cold]
    pub fn write_extra(&mut self, name: Option<&str>, origin: Option<Arc<str>>, priority: i32) {
        // SAFETY: as in `body`.
        let extra = unsafe { (*self.body).extra.get_or_insert_default() };
        extra.name = name.map(Arc::from);
        extra.origin = origin;
        extra.priority = priority;
    }

    /// Of a signal: who waits by it.
    pub fn write_waiting(&mut self, waiting: Vec<TaskRef>) {
        if !waiting.is_empty() {
            // SAFETY: as in `body`.
            unsafe { (*self.body).extra.get_or_insert_default().waiting = waiting };
        }
    }

    /// A task that the engine makes for itself, which writes at most one variable.
    pub fn write_own(&mut self, name: *const Box<str>, flags: u8, var: Option<u32>) {
        let mut head = Head::new(name, flags, Context::default());
        (head.vars[0], head.writes) = (var.unwrap_or(0), u16::from(var.is_some()));
        self.write_head(&head);
    }

    /// The last thing written but for the function, when the task has its place in the order of pushes.
    #[inline(always)]
    pub fn write_order(&mut self, pushed: u64, more_flags: u8) {
        // SAFETY: as in `body`.
        let body = unsafe { &mut *self.body };
        body.head.sequence = pushed as u32;
        body.head.flags |= more_flags;
    }
}

/// Takes room for more variables than a slot holds; false if they are more than an operation may name.
#[cold]
#[inline(never)]
fn make_room(body: &mut Body, n: usize) -> bool {
    if n > crate::engine::MOST_VARIABLES {
        return false;
    }
    body.extra.get_or_insert_default().vars.resize(n, 0);
    true
}

/// How a push looks at its variables, before it changes anything.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    pub slab: &'a Slab,
    /// Must nothing be pending on them? (Else the slots are fetched to which successors are likely to be added: not that of
    /// a last writer before a writer, which is nearly always the last task pushed.)
    pub quiet: bool,
}

impl Look<'_> {
    /// At one that it reads: for how many tasks it waits, at most. None if something is pending that must not be.
    #[inline(always)]
    pub fn at_read(self, var: &VarState) -> Option<usize> {
        if !self.quiet {
            self.slab.prefetch_word(var.before_read());
        } else if !var.may_be_read(self.slab) {
            return None;
        }
        Some(1)
    }

    /// The same at one that it writes.
    #[inline(always)]
    pub fn at_write(self, var: &VarState) -> Option<usize> {
        if !self.quiet {
            var.first_readers().for_each(|t| self.slab.prefetch_word(t));
        } else if !var.may_be_written(self.slab) {
            return None;
        }
        Some(var.most_before_write())
    }
}
