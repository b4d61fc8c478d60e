//! Flags that send operations down the slow path; the fast path loads them once and compares with
//! 0.

/// The engine is shut down: operations that have not started are skipped.
pub const SHUT_DOWN: u32 = 1;
/// A hook is installed.
pub const HOOK: u32 = 2;
/// The call site of every push is recorded, for the stall report.
pub const CALL_SITES: u32 = 4;
