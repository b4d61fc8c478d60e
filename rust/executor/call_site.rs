//! The user's call site of a thread's pushes: the line of the program, as `file:line`.
//!
//! The engine names it in errors and reports ([`Push::call_site`](crate::engine::Push)). Only the
//! caller of this layer knows the line, and executors, gradients and copies lie between its call
//! and the pushes. So the caller sets it for the duration of the call, and every push of this layer
//! reads it from here.

use std::cell::Cell;
use std::sync::Arc;

/// The call site, or how to look it up.
#[derive(Clone)]
pub enum CallSite {
    /// Found beforehand: for a call that pushes many operations, or pushes from other threads.
    Known(Option<Arc<str>>),
    /// Looked up by each push that needs it: for a call that mostly runs inline.
    Lookup(fn() -> Option<Arc<str>>),
    /// Looked up by the first push that needs it, and known from then on: for a call that pushes
    /// many operations, or a few that all run inline.
    First(fn() -> Option<Arc<str>>),
}

impl Default for CallSite {
    fn default() -> Self {
        CallSite::Known(None)
    }
}

thread_local! {
    static CURRENT: Cell<CallSite> = const { Cell::new(CallSite::Known(None)) };
}

/// Restores the previous call site when dropped.
struct Restore(CallSite);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.0);
        let _ = CURRENT.try_with(|current| current.set(before));
    }
}

/// Runs `f`, whose pushes on this thread come from `site`.
#[inline]
pub fn with<R>(site: CallSite, f: impl FnOnce() -> R) -> R {
    // Fails only while the thread ends and its locals are destroyed: then the site stays unknown.
    let _restore = CURRENT.try_with(|current| Restore(current.replace(site)));
    f()
}

/// The call site that this thread works for. Code of the user that runs inside of a call has to
/// have a scope of its own.
pub fn current() -> Option<Arc<str>> {
    let read = |cell: &Cell<CallSite>| {
        let site = cell.take();
        cell.set(site.clone());
        site
    };
    match CURRENT.try_with(read).unwrap_or_default() {
        CallSite::Known(site) => site,
        CallSite::Lookup(find) => find(), // nothing is borrowed here: it may run any code
        CallSite::First(find) => {
            let site = find();
            let _ = CURRENT.try_with(|current| current.set(CallSite::Known(site.clone())));
            site
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CallSite, current, with};

    fn found() -> Option<std::sync::Arc<str>> {
        Some("found".into())
    }

    #[test]
    fn a_call_site_holds_for_the_duration_of_a_call() {
        let now = || current().map(|site| site.to_string());
        assert_eq!(now(), None);
        with(CallSite::Known(Some("outer".into())), || {
            assert_eq!(now().as_deref(), Some("outer"));
            with(CallSite::Lookup(found), || assert_eq!(now().as_deref(), Some("found")));
            let failed =
                std::panic::catch_unwind(|| with(CallSite::Lookup(found), || panic!("expected")));
            assert!(failed.is_err());
            assert_eq!(now().as_deref(), Some("outer"));
            std::thread::spawn(|| assert!(current().is_none())).join().unwrap();
        });
        assert_eq!(now(), None);
    }
}
