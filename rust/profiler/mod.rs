//! The profiler: what ran where and for how long, gathered where it happens.
//!
//! A [`Recorder`] is a value that belongs to an engine and a pool ([`crate::ndarray::Base`]). Code
//! that runs something creates a [`Span`] and drops it at the end; while nothing is recorded that
//! costs one relaxed load. So an operation is recorded on the thread that really runs it, be it its
//! pusher's, a compute thread or one of Python's, and the nodes of a bound graph are recorded one
//! by one although the engine sees only their segment. The engine's own hook sees neither kernels
//! nor nodes; while a hook is installed, nothing runs without the engine.
//!
//! Records are a few words with interned names. Each thread writes to one of `SHARDS` buffers,
//! under a lock that is hardly ever contended and never held while anything else is called. A dump
//! moves the buffers to the `output`, which feeds `aggregate` and appends to the `trace`. Between
//! two dumps at most [`KEPT`] records are kept; later ones are dropped and counted.
//!
//! Locks, in order of acquisition: that of the output, the only one that is held for long (while
//! the file is written) and the only one that a fork does not acquire; `control`; `scopes`; the
//! shards.

mod aggregate;
mod output;
mod records;
mod thread;
mod trace;

pub use aggregate::{Format, SortBy, Statistics};
pub use records::Scope;
pub use thread::{Carried, scope, set_scope};

use crate::context::Context;
use crate::error::Result;
use crate::lock::{Guard, Lock};
use output::Output;
use records::{Buffer, Fact, Named};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// The kinds of events to record: bits, of which a program sets the first four.
pub mod mode {
    /// Nodes of bound graphs.
    pub const SYMBOLIC: u32 = 1;
    /// Operators and functions called one by one.
    pub const IMPERATIVE: u32 = 2;
    /// Calls of rsnet by the program.
    pub const API: u32 = 4;
    /// Bytes handed out by the pool.
    pub const MEMORY: u32 = 8;
    /// Tasks, counters and markers of the program: always.
    pub const OWN: u32 = 16;
    pub const ALL: u32 = SYMBOLIC | IMPERATIVE | API | MEMORY;
}

/// The category of operators and pushed functions.
pub const OPERATOR: &str = "operator";
/// The category of calls of rsnet by the program.
pub const API_CALL: &str = "api";

/// Number of buffers, which the threads share.
const SHARDS: usize = 32;
/// The most records that are kept between two dumps.
pub const KEPT: usize = 1 << 22;

/// Where records go, and whether there are any.
pub struct Recorder {
    /// Bits of [`mode`] that are recorded now: none while it is stopped or paused.
    active: AtomicU32,
    /// A [`State`], changed under `control`.
    state: AtomicU8,
    /// Changes when spans that began before must not be recorded any more.
    session: AtomicU64,
    /// The next number of an interval that belongs to no thread.
    next_id: AtomicU64,
    origin: Instant,
    shards: Vec<Shard>,
    /// Bytes taken inside each memory scope in this session.
    scopes: Lock<HashMap<Arc<str>, i64>>,
    control: Lock<Control>,
    /// A forked child replaces it, since the inner lock may never be released there.
    output: Lock<Arc<Lock<Output>>>,
}

/// A buffer on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Lock<Buffer>);

/// The settings of a recorder.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file of the trace.
    pub path: PathBuf,
    /// Bits of [`mode`].
    pub mode: u32,
    /// True if statistics are gathered too.
    pub aggregates: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { path: "profile.json".into(), mode: mode::ALL, aggregates: false }
    }
}

#[derive(Clone, Default)]
struct Control {
    config: Config,
    /// Number of changes of the file.
    file: u64,
}

/// The state of the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Stopped,
    Running,
    Paused,
}

/// When something began, see [`Recorder::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    session: u64,
    start_ns: u64,
}

/// The subject of a span.
#[derive(Clone, Copy)]
pub struct What<'a> {
    pub category: &'a str,
    pub name: &'a str,
    /// The node of a graph; may be empty.
    pub node: &'a str,
    /// The device, for what runs on one.
    pub device: Option<Context>,
}

/// Something that runs on this thread: recorded when it is dropped.
#[must_use = "a span ends when it is dropped"]
pub struct Span<'a> {
    recorder: &'a Recorder,
    begun: Begun,
    what: What<'a>,
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        let end_ns = self.recorder.now();
        self.recorder.write(self.begun, self.what, Fact::Span { end_ns });
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            active: AtomicU32::new(0),
            state: AtomicU8::new(State::Stopped as u8),
            session: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
            origin: Instant::now(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            scopes: Lock::default(),
            control: Lock::default(),
            output: Lock::default(),
        }
    }
}

impl Recorder {
    /// Returns true if any of these bits of [`mode`] is recorded now.
    #[inline]
    pub fn is_on(&self, bits: u32) -> bool {
        self.active.load(Ordering::Relaxed) & bits != 0
    }

    /// The span of what begins now, if it is recorded.
    #[inline]
    pub fn span<'a>(&'a self, bit: u32, what: impl FnOnce() -> What<'a>) -> Option<Span<'a>> {
        if !self.is_on(bit) {
            return None;
        }
        Some(Span { recorder: self, what: what(), begun: self.begun() })
    }

    /// The span of an operator, or of a function that was pushed, on a device.
    #[inline]
    pub fn operator<'a>(
        &'a self,
        bit: u32,
        name: &'a str,
        node: &'a str,
        device: Context,
    ) -> Option<Span<'a>> {
        self.span(bit, || What { category: OPERATOR, name, node, device: Some(device) })
    }

    /// The beginning of something that may end on another thread, if it is recorded.
    pub fn begin(&self, bit: u32) -> Option<Begun> {
        self.is_on(bit).then(|| self.begun())
    }

    /// The end of what [`Recorder::begin`] began.
    pub fn end(&self, begun: Begun, what: What<'_>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.write(begun, what, Fact::Interval { id, end_ns: self.now() });
    }

    /// A counter has a new value.
    pub fn count(&self, category: &str, name: &str, value: i64) {
        if self.is_on(mode::OWN) {
            let what = What { category, name, node: "", device: None };
            self.write(self.begun(), what, Fact::Count { value });
        }
    }

    /// A moment worth a mark.
    pub fn mark(&self, category: &str, name: &str, scope: Scope) {
        if self.is_on(mode::OWN) {
            let what = What { category, name, node: "", device: None };
            self.write(self.begun(), what, Fact::Mark { scope });
        }
    }

    /// The pool has handed out `taken_bytes` more (or, below zero, taken them back), `used_bytes`
    /// in all. Called under its lock, so that values are recorded in their order.
    #[cold]
    pub fn memory(&self, device: Context, taken_bytes: i64, used_bytes: usize) {
        let category = "Device Storage";
        let place = trace::place_name(device);
        let name = format!("Memory: {place}");
        let what = What { category, name: &name, node: "", device: Some(device) };
        let begun = self.begun();
        self.write(begun, what, Fact::Count { value: used_bytes as i64 });
        if taken_bytes <= 0 {
            return;
        }
        let Some(scope) = thread::scope() else { return };
        let mut scopes = self.scopes.lock();
        // Under the lock: the end of a session changes its number before it clears the scopes.
        if begun.session != self.session.load(Ordering::Relaxed) {
            return;
        }
        let sum = scopes.entry(scope.clone()).or_default();
        *sum += taken_bytes;
        let name = format!("{scope}Memory: {place}");
        self.write(self.begun(), What { name: &name, ..what }, Fact::Count { value: *sum });
    }

    /// The memory scope of this thread, to be carried to where its operation runs.
    pub fn carry_scope(&self) -> Carried {
        Carried(if self.is_on(mode::MEMORY) { thread::scope() } else { None })
    }

    /// Nanoseconds since the recorder was made.
    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn begun(&self) -> Begun {
        Begun { session: self.session.load(Ordering::Relaxed), start_ns: self.now() }
    }

    #[cold]
    fn write(&self, begun: Begun, what: What<'_>, fact: Fact) {
        let thread = thread::number();
        let mut buffer = self.shards[thread as usize % SHARDS].0.lock();
        // Under the lock: the end of a session changes its number before it empties the buffers.
        if begun.session == self.session.load(Ordering::Relaxed) {
            let What { category, name, node, device } = what;
            buffer.push(thread, begun.start_ns, Named { category, name, node }, device, fact);
        }
    }

    /// Changes the settings, at any time. The next dump begins a new file.
    pub fn configure(&self, config: Config) {
        let mut control = self.control.lock();
        if control.config.path != config.path {
            control.file += 1;
        }
        control.config = config;
        self.set_state(self.state(), &control);
    }

    /// Starts or stops recording. Starting ends a pause.
    pub fn set_running(&self, run: bool) {
        let control = self.control.lock();
        self.set_state(if run { State::Running } else { State::Stopped }, &control);
    }

    /// Pauses or resumes recording. Has no effect while it is stopped.
    pub fn set_paused(&self, pause: bool) {
        let control = self.control.lock();
        let state = match (self.state(), pause) {
            (State::Stopped, _) => State::Stopped,
            (_, true) => State::Paused,
            (_, false) => State::Running,
        };
        self.set_state(state, &control);
    }

    /// The caller holds `control`.
    fn set_state(&self, state: State, control: &Control) {
        let is_on = state == State::Running;
        let bits = if is_on { control.config.mode | mode::OWN } else { 0 };
        self.active.store(bits, Ordering::Relaxed);
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// The current state; does not wait.
    pub fn state(&self) -> State {
        let state = self.state.load(Ordering::Relaxed);
        let mut all = [State::Stopped, State::Running, State::Paused].into_iter();
        all.find(|s| *s as u8 == state).unwrap_or(State::Stopped)
    }

    /// Appends new records to the file. With `finished` the session ends: recording stops, and the
    /// next session's first dump begins a new file. Returns the number of records dropped in the
    /// session.
    ///
    /// Waits for the file, and for other dumps.
    pub fn dump(&self, finished: bool) -> Result<u64> {
        let output = self.output();
        let mut output = output.lock();
        let control = self.collect(&mut output, finished);
        let dropped = output.append(control.file, &control.config.path)?;
        if finished {
            output.end_session();
        }
        Ok(dropped)
    }

    /// As `dump(false)`, but does nothing while stopped: for periodic dumps, which may outlast the
    /// session.
    pub fn dump_unless_stopped(&self) -> Result<()> {
        let output = self.output();
        let mut output = output.lock();
        if self.state() == State::Stopped {
            return Ok(());
        }
        let control = self.collect(&mut output, false);
        output.append(control.file, &control.config.path).map(drop)
    }

    /// The statistics so far as text; `reset` clears them. Returns `None` if none are gathered.
    /// Waits as a dump does.
    pub fn summary(
        &self,
        format: Format,
        sort: SortBy,
        ascending: bool,
        reset: bool,
    ) -> Option<String> {
        if !self.control.lock().config.aggregates {
            return None;
        }
        let output = self.output();
        let mut output = output.lock();
        self.collect(&mut output, false);
        let text = output.statistics.text(format, sort, ascending);
        if reset {
            output.statistics = Statistics::default();
        }
        Some(text)
    }

    fn output(&self) -> Arc<Lock<Output>> {
        self.output.lock().clone()
    }

    /// Collects the records of the shards, and ends the session if it is `finished`. Returns the
    /// settings.
    fn collect(&self, output: &mut Output, finished: bool) -> Control {
        let control = self.control.lock();
        if finished {
            self.set_state(State::Stopped, &control);
            self.session.fetch_add(1, Ordering::Relaxed);
            self.scopes.lock().clear();
        }
        let take = |shard: &Shard| std::mem::take(&mut *shard.0.lock());
        let buffers: Vec<Buffer> = self.shards.iter().map(take).collect();
        let set = control.clone();
        drop(control);
        output.take(buffers, set.config.aggregates);
        set
    }

    /// Locks the recorder for a fork, but not the file: writing to it may take any time.
    pub fn before_fork(&self) -> HeldForFork<'_> {
        let control = self.control.lock();
        let scopes = self.scopes.lock();
        let output = self.output.lock();
        let shards = self.shards.iter().map(|s| s.0.lock()).collect();
        HeldForFork { recorder: self, control, scopes, output, shards }
    }
}

/// All locks of a recorder but that of its file, held from before a fork until after it.
pub struct HeldForFork<'a> {
    recorder: &'a Recorder,
    control: Guard<'a, Control>,
    scopes: Guard<'a, HashMap<Arc<str>, i64>>,
    output: Guard<'a, Arc<Lock<Output>>>,
    shards: Vec<Guard<'a, Buffer>>,
}

impl HeldForFork<'_> {
    /// In the child: stopped, with nothing recorded; file and records are the parent's.
    pub fn release_in_child(mut self) {
        self.recorder.session.fetch_add(1, Ordering::Relaxed);
        self.recorder.set_state(State::Stopped, &self.control);
        thread::forget();
        // If no dump was writing, the file is closed without a write; else it stays open for ever.
        *self.output = Arc::default();
        self.scopes.clear();
        self.shards.iter_mut().for_each(|shard| **shard = Buffer::default());
    }
}

#[cfg(test)]
mod tests;
