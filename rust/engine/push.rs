//! What a push says: variables, device, priority and treatment of an operation.

use crate::context::Context;
use crate::engine::priority::Priority;
use std::sync::Arc;

/// A token that orders the operations that name it. It carries no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub(in crate::engine) u64);

impl Var {
    /// The variable as a number that no other variable of its engine has, before or after.
    pub fn id(self) -> u64 {
        self.0
    }

    /// The number that messages call the variable by. It is reused once the variable is deleted.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The environment of a running operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunContext {
    /// The device the operation was pushed for.
    pub ctx: Context,
    /// The stream of a GPU; `None` on the CPU.
    pub stream: Option<usize>,
    /// True if the operation was gathered with others; see [`bulk`](crate::engine::bulk).
    pub is_bulk: bool,
    /// The operation's scheduling priority, for functions that are handed off to another queue.
    /// Always normal under the naive engine, which has no queue.
    pub priority: Priority,
}

/// How an operation is scheduled; MXNet's `FnProperty`. A [`bulk`](crate::engine::bulk) gathers
/// normal operations only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Prop {
    /// No special treatment.
    #[default]
    Normal = 0,
    /// MXNet's name; the same as [`Prop::Normal`], because all devices share the threads.
    CopyFromDevice = 1,
    /// As [`Prop::CopyFromDevice`].
    CopyToDevice = 2,
    /// Runs before ordinary operations that are ready, as if by a priority above zero.
    CpuPrioritized = 3,
    /// Only starts work: may run on the pushing thread if it is ready there.
    Async = 4,
    /// Releases what a variable stands for: runs before ordinary operations, in spite of errors on
    /// its variables and after [`Engine::notify_shutdown`](crate::engine::Engine::notify_shutdown);
    /// may run on the pushing thread. It does not delete the variable:
    /// [`Engine::delete_variable`](crate::engine::Engine::delete_variable) does.
    DeleteVar = 5,
    /// As [`Prop::CpuPrioritized`].
    GpuPrioritized = 6,
    /// Runs in spite of errors on its variables.
    NoSkip = 7,
}

/// Which thread runs an operation. All but the first promise that its function is short (a few
/// microseconds) and does not block, and count whatever its priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunOn {
    /// A worker, except where the property says otherwise.
    #[default]
    Worker,
    /// The thread outside the workers whose completion makes it ready, if there is one. For pushers
    /// that know that the operation has to wait: the push does not ask whether it could run at
    /// once.
    Completer,
    /// The pushing thread if it is ready at the push, else as [`RunOn::Completer`].
    Pusher,
}

impl RunOn {
    /// [`RunOn::Pusher`] for a function that is short and does not block.
    pub fn pusher_if(is_short: bool) -> Self {
        if is_short { RunOn::Pusher } else { RunOn::Worker }
    }
}

/// Everything about a push except its function.
#[derive(Clone, Copy)]
pub struct Push<'a> {
    /// The device; `cpu(0)` by default. The engine passes it on to the operation, and leaves to the
    /// caller to check that it exists.
    pub ctx: Context,
    /// The variables that the operation reads. Readers of one variable run side by side. Each
    /// variable may be named once in `reads` and `writes` together.
    pub reads: &'a [Var],
    /// The variables that it writes, and may read as well.
    pub writes: &'a [Var],
    /// The first `overwrites` of `writes` are overwritten whole and not read: an old error on them
    /// does not skip the operation, and its success clears the error.
    pub overwrites: usize,
    /// How the operation is scheduled.
    pub prop: Prop,
    /// Higher values run earlier among ready operations; negative ones run after all others.
    pub priority: i32,
    /// The thread that runs it.
    pub run_on: RunOn,
    /// The operation's name in errors, hooks and reports.
    pub name: &'a str,
    /// Returns the line of the user's program that pushed the operation, for errors and reports.
    pub call_site: Option<FindCallSite<'a>>,
}

/// Looks up the user's line. Called only if the operation is queued, may outlive its push (see
/// [`finding_line`](crate::engine::Task::finding_line)), or fails.
pub type FindCallSite<'a> = &'a dyn Fn() -> Option<Arc<str>>;

impl<'a> Push<'a> {
    /// A normal push to `cpu(0)`. Set other fields as in `Push { priority: 1, ..Push::new(..) }`.
    pub fn new(name: &'a str, reads: &'a [Var], writes: &'a [Var]) -> Self {
        Push {
            ctx: Context::default(),
            reads,
            writes,
            overwrites: 0,
            prop: Prop::Normal,
            priority: 0,
            run_on: RunOn::Worker,
            name,
            call_site: None,
        }
    }
}
