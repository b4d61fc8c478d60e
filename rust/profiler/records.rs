//! Records: a few words each, with names that a buffer keeps once.

use super::{KEPT, thread};
use crate::context::Context;
use std::collections::HashMap;
use std::sync::Arc;

/// The scope of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Global,
    Process,
    Thread,
}

/// One recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Something ran on a thread, nested in other spans of that thread.
    Span {
        end_ns: u64,
    },
    /// Something lasted, on no thread in particular.
    Interval {
        id: u64,
        end_ns: u64,
    },
    /// A counter has this value from now on.
    Count {
        value: i64,
    },
    Mark {
        scope: Scope,
    },
}

/// Names of a record, in a buffer by number.
#[derive(Clone, Copy, Debug)]
pub struct Named<T> {
    pub category: T,
    pub name: T,
    pub node: T,
}

#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub named: Named<u32>,
    pub thread: u32,
    pub device: Option<Context>,
    pub start_ns: u64,
    pub fact: Fact,
}

/// Records of the threads of one shard, as they come.
#[derive(Default)]
pub struct Buffer {
    records: Vec<Record>,
    names: Vec<Arc<str>>,
    index: HashMap<Arc<str>, u32>,
    threads: HashMap<u32, String>,
    last_thread: u32,
    dropped: u64,
}

impl Buffer {
    pub fn push(
        &mut self,
        thread: u32,
        start_ns: u64,
        named: Named<&str>,
        device: Option<Context>,
        fact: Fact,
    ) {
        if self.records.len() >= KEPT {
            self.dropped += 1;
            return;
        }
        if self.last_thread != thread {
            self.last_thread = thread;
            self.threads.entry(thread).or_insert_with(thread::name);
        }
        let named = Named {
            category: self.number(named.category),
            name: self.number(named.name),
            node: self.number(named.node),
        };
        self.records.push(Record { named, thread, device, start_ns, fact });
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.index.get(name) {
            return known;
        }
        let name: Arc<str> = name.into();
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.index.insert(name, number);
        number
    }

    /// Its records, and the number of those that it had no room for.
    pub fn into_batch(self) -> (Batch, u64) {
        let Buffer { records, names, threads, dropped, .. } = self;
        (Batch { records, names, threads }, dropped)
    }
}

/// Records that were taken from a buffer.
#[derive(Default)]
pub struct Batch {
    pub records: Vec<Record>,
    names: Vec<Arc<str>>,
    pub threads: HashMap<u32, String>,
}

impl Batch {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Keeps the first `most` records; returns the number of dropped ones.
    pub fn cut(&mut self, most: usize) -> u64 {
        let before = self.records.len();
        self.records.truncate(most);
        (before - self.records.len()) as u64
    }

    pub fn name(&self, number: u32) -> &Arc<str> {
        &self.names[number as usize]
    }
}
