//! The profiler's view of a thread: its number, its name, and the memory scope that it is in.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// The system's number of this thread; 0 before it is looked up.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static SCOPE: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The system's number of this thread, as in Python's `threading.get_native_id`.
#[inline]
pub fn number() -> u32 {
    match NUMBER.get() {
        0 => look_up(),
        known => known,
    }
}

#[cold]
fn look_up() -> u32 {
    // Where the system has none, threads are counted.
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // "<process>/task/<thread>".
    let link = std::fs::read_link("/proc/thread-self").ok();
    let id = link.as_deref().and_then(Path::file_name).and_then(|id| id.to_str()?.parse().ok());
    let id = id.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.set(id);
    id
}

/// In a forked child, whose thread has another number than its parent's.
pub fn forget() {
    NUMBER.set(0);
}

/// The name of this thread as tools of the system show it.
pub fn name() -> String {
    if number() == std::process::id() {
        return "main".to_owned();
    }
    let name = match std::fs::read("/proc/thread-self/comm") {
        Ok(name) => String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
        Err(_) => std::thread::current().name().unwrap_or_default().to_owned(),
    };
    if name.is_empty() { "thread".to_owned() } else { name }
}

/// The memory scope of this thread. `None` in a thread that is ending.
pub fn scope() -> Option<Arc<str>> {
    SCOPE.try_with(|scope| scope.borrow().clone()).ok().flatten()
}

/// Sets this thread's memory scope, or none.
pub fn set_scope(scope: Option<Arc<str>>) {
    SCOPE.set(scope);
}

/// The memory scope of a pusher, for the thread that runs the operation.
#[derive(Clone, Default)]
pub struct Carried(pub(super) Option<Arc<str>>);

impl Carried {
    /// Enters the scope until the returned guard is dropped.
    pub fn enter(&self) -> Option<ScopeGuard> {
        self.0.as_ref().map(|scope| ScopeGuard { before: SCOPE.replace(Some(scope.clone())) })
    }
}

/// Inside of another thread's scope; leaves it when dropped.
pub struct ScopeGuard {
    before: Option<Arc<str>>,
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        SCOPE.set(self.before.take());
    }
}
