//! What the profiler knows of a thread: its number, its name, and the memory scope that it is in.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    /// The system's number of this thread; 0: not asked for yet.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static SCOPE: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The number by which the system, and Python's `threading.get_native_id`, know this thread.
#[inline]
pub fn number() -> u32 {
    match NUMBER.get() {
        0 => ask(),
        known => known,
    }
}

#[cold]
fn ask() -> u32 {
    #[cfg(target_os = "linux")]
    // SAFETY: has no arguments and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as above. (Mixed, because what differs are the middle bits of an address.)
    let id = ((unsafe { libc::pthread_self() } as usize as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> 32) as u32;
    let id = id.max(1);
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
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        let mut text = [0u8; 64];
        // SAFETY: the text has room for so many bytes, and the thread is this one.
        let failed = unsafe {
            libc::pthread_getname_np(libc::pthread_self(), text.as_mut_ptr().cast(), text.len())
        };
        let end = text.iter().position(|&b| b == 0).unwrap_or(0);
        if failed == 0 && end > 0 {
            return String::from_utf8_lossy(&text[..end]).into_owned();
        }
    }
    "thread".to_owned()
}

/// The memory scope that this thread is in.
pub fn scope() -> Option<Arc<str>> {
    SCOPE.with_borrow(Clone::clone)
}

/// Sets this thread's memory scope, or none.
pub fn set_scope(scope: Option<Arc<str>>) {
    SCOPE.set(scope);
}

/// The memory scope of a pusher, for whoever runs what it pushed.
#[derive(Clone, Default)]
pub struct Carried(pub(super) Option<Arc<str>>);

impl Carried {
    /// Is in the scope until what it gives goes.
    pub fn enter(&self) -> Option<Inside> {
        self.0.as_ref().map(|scope| Inside { before: SCOPE.replace(Some(scope.clone())) })
    }
}

/// In the scope of another thread, for a while.
pub struct Inside {
    before: Option<Arc<str>>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        SCOPE.set(self.before.take());
    }
}
