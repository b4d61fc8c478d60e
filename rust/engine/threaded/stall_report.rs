//! The report of a stalled wait: the operations that it waits for, directly or through others.

use crate::engine::data::slot::{TaskRef, flag};
use crate::engine::messages::variable_name;
use crate::engine::threaded::core::{Core, PushState};
use crate::error::{Error, ErrorKind};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::time::Duration;

/// The subject of a wait.
#[derive(Clone, Copy, Default)]
pub struct Awaited<'a> {
    /// The variable, if it is for one.
    pub var: Option<u32>,
    /// The tasks; `None` for everything.
    pub tasks: Option<&'a [TaskRef]>,
}

/// Operations shown in full; further ones are only counted.
const MAX_SHOWN: usize = 64;

/// The progress of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Running,
    Queued,
    Waiting,
}

impl Core {
    /// The error of a wait that has lasted for `limit`: every operation that it waits for, directly
    /// or through others, running ones first, with the lines that pushed them. `None` if the wait
    /// has just ended.
    pub fn stall_report(&self, awaited: Awaited<'_>, limit: Duration) -> Option<Error> {
        let state = self.lock();
        let mut tasks = self.blockers_of(&state, awaited.tasks);
        if tasks.is_empty() {
            return None;
        }
        tasks.sort_by_key(|&(progress, slot)| (progress, self.age(&state, slot)));
        let mut lines = String::new();
        for (progress, slot) in tasks.iter().take(MAX_SHOWN) {
            self.describe(&mut lines, *progress, *slot);
        }
        if tasks.len() > MAX_SHOWN {
            let _ = write!(lines, "\n  and {} more", tasks.len() - MAX_SHOWN);
        }
        let what = awaited.var.map_or("everything".to_owned(), variable_name);
        let seconds = limit.as_secs_f64();
        let text =
            format!("a wait for {what} has not ended within {seconds} s; not complete are:{lines}");
        Some(Error::new(ErrorKind::Interrupted, text))
    }

    /// The names of the operations that run now, the oldest first.
    pub fn running_operations(&self) -> Vec<String> {
        let state = self.lock();
        let mut tasks = self.blockers_of(&state, None);
        tasks.retain(|&(progress, _)| progress == Progress::Running);
        tasks.sort_by_key(|&(_, slot)| self.age(&state, slot));
        // SAFETY: as in `describe`.
        let name =
            |&(_, slot): &(_, u32)| unsafe { &*self.slab.get(slot).body() }.name().to_owned();
        tasks.iter().map(name).collect()
    }

    /// A sort key that orders live tasks by push. Under the push lock.
    pub fn age(&self, state: &PushState, slot: u32) -> Reverse<u32> {
        // SAFETY: as in `describe`. Sequence numbers are modulo 2^32.
        let sequence = unsafe { (*self.slab.get(slot).body()).head.sequence };
        Reverse((state.pushed as u32).wrapping_sub(sequence))
    }

    fn describe(&self, lines: &mut String, progress: Progress, slot: u32) {
        // SAFETY: under the push lock a live task's body is only read.
        let body = unsafe { &*self.slab.get(slot).body() };
        let does = match progress {
            Progress::Running => "is running",
            Progress::Queued => "is queued",
            Progress::Waiting => "waits for others",
        };
        let _ = write!(lines, "\n  operation '{}' {does}", body.name());
        let (_, writes) = body.vars();
        if !writes.is_empty() {
            let names: Vec<String> = writes.iter().map(|v| v.to_string()).collect();
            let plural = if writes.len() > 1 { "s" } else { "" };
            let _ = write!(lines, ", writes variable{plural} {}", names.join(", "));
        }
        if let Some(at) = body.extra.as_ref().and_then(|e| e.call_site.as_deref()) {
            let _ = write!(lines, ", pushed at {at}");
        }
    }

    /// All tasks from which edges, or waits of functions, lead to `awaited`, inclusive; all tasks
    /// if `awaited` is `None`. Under the push lock: no edges are added, and a task may complete
    /// meanwhile.
    fn blockers_of(&self, state: &PushState, awaited: Option<&[TaskRef]>) -> Vec<(Progress, u32)> {
        let live: Vec<u32> = self.live(state).iter().map(|t| t.slot()).collect();
        let wanted = match awaited {
            None => live.iter().copied().collect(),
            Some(tasks) => {
                let mut before: HashMap<u32, Vec<u32>> = HashMap::new();
                for &slot in &live {
                    for next in self.slab.successors(slot) {
                        before.entry(next).or_default().push(slot);
                    }
                    for waiting in self.waiting_by(slot) {
                        before.entry(waiting).or_default().push(slot);
                    }
                }
                let mut todo: Vec<u32> =
                    tasks.iter().filter(|&&t| !self.slab.is_done(t)).map(|t| t.slot()).collect();
                let mut found: HashSet<u32> = todo.iter().copied().collect();
                while let Some(slot) = todo.pop() {
                    let more = before.get(&slot).into_iter().flatten();
                    todo.extend(more.copied().filter(|&slot| found.insert(slot)));
                }
                found
            }
        };
        let progress = |&slot: &u32| {
            let s = self.slab.get(slot);
            // SAFETY: as in `describe`.
            let is_signal = unsafe { (*s.body()).head.flags } & flag::SIGNAL != 0;
            let progress = match (s.is_running(), s.is_waiting()) {
                (true, _) => Progress::Running,
                (_, true) => Progress::Waiting,
                _ => Progress::Queued,
            };
            (!is_signal && wanted.contains(&slot)).then_some((progress, slot))
        };
        live.iter().filter_map(progress).collect()
    }
}
