//! The door between who owns the threads of a compute pool and who splits work on them.
//!
//! The owner (the engine) tells each thread how to call parked siblings to help; who is about to split
//! work (`kernels/parallel.rs`) calls them. Neither knows the other.

use std::cell::RefCell;
use std::sync::Arc;

/// Takes how many can help.
type Call = Arc<dyn Fn(usize) + Send + Sync>;

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// Makes `call` this thread's way to call for help.
pub fn set_helper_call(call: Option<Call>) {
    CALL.replace(call);
}

/// Wakes parked threads of this thread's pool, at most so many, because there is work to split. Cheap when none is
/// parked.
#[inline]
pub fn call_helpers(most: usize) {
    CALL.with_borrow(|call| {
        if let Some(call) = call {
            call(most);
        }
    });
}
