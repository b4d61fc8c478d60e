//! Holding an engine still over a fork.

/// The locks of an engine, in whatever form it holds them.
pub(in crate::engine) trait ForkLocks {
    /// Makes the child's engine independent of the parent's threads, and releases the locks.
    fn release_in_child(self: Box<Self>);
}

/// All locks of an engine, held from before a fork until after it. Drop it in the parent, and
/// call [`HeldForFork::release_in_child`] in the child.
pub struct HeldForFork<'a>(Option<Box<dyn ForkLocks + 'a>>);

impl<'a> HeldForFork<'a> {
    /// For an engine without locks.
    pub(in crate::engine) fn nothing() -> Self {
        HeldForFork(None)
    }

    pub(in crate::engine) fn new(locks: impl ForkLocks + 'a) -> Self {
        HeldForFork(Some(Box::new(locks)))
    }

    /// In the child: the engine starts a new epoch and recovers at its next use. The hook is
    /// removed: threads of the parent may hold the locks it uses.
    pub fn release_in_child(self) {
        if let Some(locks) = self.0 {
            locks.release_in_child();
        }
    }
}
