//! References to tasks.

/// A task: slot and generation. If the slot has moved on to another generation, the task is
/// complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef(pub u64);

impl TaskRef {
    /// The null reference. Slot 0 is reserved, so it always reads as complete.
    pub const NONE: TaskRef = TaskRef(0);

    pub const fn new(slot: u32, generation: u32) -> Self {
        TaskRef((generation as u64) << 32 | slot as u64)
    }

    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
