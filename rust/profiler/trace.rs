//! The file of a trace, in the format that chrome://tracing and Perfetto read.
//!
//! Format: "Trace Event Format" (the JSON object form):
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>
//!
//! Every append leaves a complete file: the new events overwrite the end of the object, which is
//! written again after them. One that fails leaves the file as it was, and no name counts as
//! written. Each device is a process of the trace, and so is each category of spans without a
//! device.

use super::records::{Batch, Fact, Record, Scope};
use crate::context::{Context, DeviceType};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Longer names are cut.
const NAME_CHARS: usize = 128;

/// The name of a device's process.
pub fn place_name(device: Context) -> String {
    let kind = match device.device_type {
        DeviceType::Cpu => "cpu",
        DeviceType::Gpu => "gpu",
        DeviceType::CpuPinned => "cpu pinned",
        DeviceType::CpuShared => "cpu shared",
    };
    format!("{kind}/{}", device.device_id)
}

/// A trace being written.
pub struct Trace {
    path: PathBuf,
    file: File,
    /// Where the list of events ends.
    end: u64,
    /// The text after it: the end of the object.
    tail: String,
    /// A failed write could not be taken back.
    is_torn: bool,
    known: Known,
}

/// State that the events of a file leave for later ones.
#[derive(Clone)]
struct Known {
    is_empty: bool,
    processes: HashMap<String, usize>,
    /// Threads of a process that have their names in the file.
    threads: HashSet<(usize, u32)>,
}

/// Events on their way to the file.
struct Events {
    text: String,
    known: Known,
}

/// A span with its process.
type Placed<'a> = (usize, &'a Record);

impl Trace {
    /// Creates the file, replacing an old one.
    pub fn create(path: &Path) -> Result<Trace> {
        let file = File::create(path).map_err(|e| unwritable(path, &e))?;
        let known = Known { is_empty: true, processes: HashMap::new(), threads: HashSet::new() };
        let (path, tail) = (path.to_owned(), String::new());
        let mut trace = Trace { path, file, end: 0, tail, is_torn: false, known };
        trace.write("{\"traceEvents\":[", 0)?;
        Ok(trace)
    }

    /// Appends the records of batches.
    pub fn append(&mut self, batches: &[Batch], dropped: u64) -> Result<()> {
        let mut events = Events { text: String::new(), known: self.known.clone() };
        batches.iter().for_each(|batch| events.add(batch));
        self.write(&events.text, dropped)?;
        self.known = events.known;
        Ok(())
    }

    fn write(&mut self, text: &str, dropped: u64) -> Result<()> {
        let tail =
            format!("\n],\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped\":{dropped}}}}}\n");
        if let Err(error) = self.overwrite(text, &tail) {
            self.is_torn = self.restore().is_err();
            return Err(unwritable(&self.path, &error));
        }
        self.end += text.len() as u64;
        self.tail = tail;
        Ok(())
    }

    /// Writes after the events.
    fn overwrite(&mut self, text: &str, tail: &str) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.end)?;
        }
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(text.as_bytes())?;
        self.file.write_all(tail.as_bytes())
    }

    /// Restores the file after a failed write.
    fn restore(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(self.tail.as_bytes())?;
        self.file.set_len(self.end + self.tail.len() as u64)
    }
}

impl Events {
    fn add(&mut self, batch: &Batch) {
        // The spans of each thread in each process, to be nested; everything else stands for
        // itself.
        let mut spans: BTreeMap<(usize, u32), Vec<&Record>> = BTreeMap::new();
        for record in &batch.records {
            let place = match record.device {
                Some(device) => place_name(device),
                None => batch.name(record.named.category).to_string(),
            };
            let process = self.process(place);
            if let Fact::Span { .. } = record.fact {
                self.name_thread(process, record.thread, batch);
                spans.entry((process, record.thread)).or_default().push(record);
            } else {
                self.single((process, record), batch);
            }
        }
        for ((process, _), records) in spans {
            self.nested(process, records, batch);
        }
    }

    /// The number of a process, which is named when it is first met.
    fn process(&mut self, name: String) -> usize {
        if let Some(&known) = self.known.processes.get(&name) {
            return known;
        }
        let number = self.known.processes.len() + 1;
        let shown = quoted(&name);
        self.event(format_args!(
            "\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{number},\"args\":{{\"name\":{shown}}}"
        ));
        self.known.processes.insert(name, number);
        number
    }

    fn name_thread(&mut self, process: usize, thread: u32, batch: &Batch) {
        if !self.known.threads.insert((process, thread)) {
            return;
        }
        let name = quoted(batch.threads.get(&thread).map_or("thread", String::as_str));
        self.event(format_args!(
            "\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{process},\"tid\":{thread},\
             \"args\":{{\"name\":{name}}}"
        ));
    }

    /// Begins and ends in an order in which each end belongs to the last begin.
    fn nested(&mut self, process: usize, mut records: Vec<&Record>, batch: &Batch) {
        // What ran inside of something was recorded before it, so of two that began and ended
        // together the later record is the outer one.
        records.reverse();
        records.sort_by_key(|r| (r.start_ns, u64::MAX - end_of(r)));
        let mut open: Vec<&Record> = Vec::new();
        for record in records {
            while let Some(last) = open.pop_if(|last| end_of(last) <= record.start_ns) {
                self.edge('E', end_of(last), (process, last), batch);
            }
            self.edge('B', record.start_ns, (process, record), batch);
            open.push(record);
        }
        while let Some(last) = open.pop() {
            self.edge('E', end_of(last), (process, last), batch);
        }
    }

    /// The begin or the end of a span.
    fn edge(&mut self, ph: char, at_ns: u64, (process, record): Placed<'_>, batch: &Batch) {
        let (head, ts) = (head(record, batch), Micros(at_ns));
        let node = batch.name(record.named.node);
        let args = match ph {
            'B' if !node.is_empty() => format!(",\"args\":{{\"node\":{}}}", quoted(node)),
            _ => String::new(),
        };
        let thread = record.thread;
        self.event(format_args!(
            "\"ph\":\"{ph}\",{head},\"ts\":{ts},\"pid\":{process},\"tid\":{thread}{args}"
        ));
    }

    /// Records that are not spans.
    fn single(&mut self, (process, record): Placed<'_>, batch: &Batch) {
        let (head, ts) = (head(record, batch), Micros(record.start_ns));
        let thread = record.thread;
        let tail = format!("\"pid\":{process},\"tid\":{thread}");
        match record.fact {
            Fact::Span { .. } => {}
            Fact::Interval { id, end_ns } => {
                for (ph, ts) in [('b', ts), ('e', Micros(end_ns))] {
                    self.event(format_args!(
                        "\"ph\":\"{ph}\",{head},\"id\":{id},\"ts\":{ts},{tail}"
                    ));
                }
            }
            Fact::Count { value } => {
                let name = quoted(batch.name(record.named.name));
                self.event(format_args!(
                    "\"ph\":\"C\",{head},\"ts\":{ts},{tail},\"args\":{{{name}:{value}}}"
                ));
            }
            Fact::Mark { scope } => {
                let scope = match scope {
                    Scope::Global => 'g',
                    Scope::Process => 'p',
                    Scope::Thread => 't',
                };
                self.event(format_args!(
                    "\"ph\":\"i\",{head},\"ts\":{ts},{tail},\"s\":\"{scope}\""
                ));
            }
        }
    }

    fn event(&mut self, content: std::fmt::Arguments<'_>) {
        let comma = if std::mem::take(&mut self.known.is_empty) { "" } else { "," };
        // Writing to a text cannot fail.
        let _ = write!(self.text, "{comma}\n{{{content}}}");
    }
}

fn end_of(record: &Record) -> u64 {
    match record.fact {
        Fact::Span { end_ns } | Fact::Interval { end_ns, .. } => end_ns,
        Fact::Count { .. } | Fact::Mark { .. } => record.start_ns,
    }
}

/// Category and name.
fn head(record: &Record, batch: &Batch) -> String {
    let category = batch.name(record.named.category);
    let category = match record.fact {
        Fact::Mark { .. } => quoted(&format!("{category},instant_marker")),
        _ => quoted(category),
    };
    let name = batch.name(record.named.name);
    let name = match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => quoted(&name[..end]),
        None => quoted(name),
    };
    format!("\"cat\":{category},\"name\":{name}")
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Nanoseconds, shown as microseconds.
#[derive(Clone, Copy)]
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the profiler cannot write '{}': {error}", path.display()))
}
