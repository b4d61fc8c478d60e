//! The cores that threads run on; without the system's help, none is known.
//!
//! A helper that is woken while all other cores are busy may end up on the core of the thread that
//! it helps. As neither thread sleeps while there are parts, the scheduler does not move it for
//! tens of milliseconds, although a core is idle. So it moves itself.

pub use system::{leave, this_one};

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
mod system {
    use std::mem::zeroed;

    /// The core that this thread runs on.
    #[inline]
    pub fn this_one() -> Option<usize> {
        // SAFETY: a query without arguments.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Moves this thread from `core` to another one, if its affinity allows one.
    #[cold]
    pub fn leave(core: usize) {
        let size = size_of::<libc::cpu_set_t>();
        if core >= 8 * size {
            return;
        }
        // SAFETY: bit sets, for which zeros are valid, of the size that is passed; `core` is within
        // them.
        unsafe {
            let mut all = zeroed::<libc::cpu_set_t>();
            if libc::sched_getaffinity(0, size, &mut all) != 0 || libc::CPU_COUNT(&all) < 2 {
                return;
            }
            let mut others = all;
            libc::CPU_CLR(core, &mut others);
            if libc::sched_setaffinity(0, size, &others) == 0 {
                libc::sched_setaffinity(0, size, &all);
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
mod system {
    pub fn this_one() -> Option<usize> {
        None
    }

    pub fn leave(_: usize) {}
}
