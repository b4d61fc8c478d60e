//! Where records go that were taken from the buffers: into the statistics, and to the file.

use super::KEPT;
use super::aggregate::Statistics;
use super::records::{Batch, Buffer};
use super::trace::Trace;
use crate::error::Result;
use std::path::Path;

#[derive(Default)]
pub struct Output {
    /// Not in the file yet.
    kept: Vec<Batch>,
    pub statistics: Statistics,
    /// The file under way, and its number.
    trace: Option<(u64, Trace)>,
    /// Records of this session for which there was no room.
    dropped: u64,
}

impl Output {
    /// Keeps what buffers hold, as far as there is room.
    pub fn take(&mut self, buffers: Vec<Buffer>, aggregates: bool) {
        let mut room = KEPT - self.kept.iter().map(Batch::len).sum::<usize>().min(KEPT);
        for buffer in buffers {
            let (mut batch, dropped) = buffer.into_batch();
            self.dropped += dropped;
            if batch.len() == 0 {
                continue;
            }
            if aggregates {
                self.statistics.add(&batch);
            }
            self.dropped += batch.cut(room);
            room -= batch.len();
            self.kept.push(batch);
        }
    }

    /// Appends what is kept to the file of this number, which begins if another one is under way.
    /// Records that could not be written are kept. Returns how many records were dropped.
    pub fn append(&mut self, file: u64, path: &Path) -> Result<u64> {
        let (_, trace) = match &mut self.trace {
            Some(under_way) if under_way.0 == file => under_way,
            other => other.insert((file, Trace::create(path)?)),
        };
        trace.append(&self.kept, self.dropped)?;
        self.kept.clear();
        Ok(self.dropped)
    }

    /// The next session has a file of its own.
    pub fn end_session(&mut self) {
        self.trace = None;
        self.dropped = 0;
    }
}
