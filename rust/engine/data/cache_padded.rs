//! Padding against false sharing.

/// A value on cache lines of its own. (Two lines: processors prefetch them in pairs.)
#[derive(Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);
