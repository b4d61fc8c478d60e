//! A stream: work that a device does in the order in which it was issued, and what is known of how
//! far it has come.
//!
//! A thread that has issued work *marks* the stream: the mark gets the next number, its *ticket*,
//! and an event of the driver behind all work so far. So a ticket stands for everything that was
//! issued before its mark, and tickets are reached in order. Another stream can be made to wait for
//! a ticket on the device; a thread can wait for it; a function can be called when it is reached.
//!
//! Marks are taken off in order, by the thread that finds the first one reached: at the next mark,
//! in a wait of a moment, or on the stream's own thread, which sleeps in the driver until a ticket
//! is reached that has a waiter. That thread does not exist before it is needed.
//!
//! A fault of the device is seen when a mark is taken off. It belongs to the whole device and is
//! never healed: the first mark that was not reached says what failed, and from then on nothing is
//! waited for any more and every wait is that error.

use super::driver::{Driver, NOT_READY, Status};
use super::fault::Fault;
use super::library::{Handle, Shared};
use super::primary::Primary;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Guard, Held, Lock};
use crate::storage::Block;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

/// `CU_STREAM_NON_BLOCKING`: the stream is not ordered with the legacy default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a wait parks its thread.
const PARKING_EVENT: c_uint = 1 | 2;
/// How long a thread asks the driver by itself before it parks.
const SPIN: Duration = Duration::from_micros(20);
/// The interval between polls of a wait.
const SLICE: Duration = Duration::from_millis(50);

/// The number of a mark; 0 is reached from the start.
pub type Ticket = u64;

/// Called about every 50 ms of a wait; an error ends the wait.
pub type Poll<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Says where work comes from, for the error of a fault.
pub trait Origin: Send + Sync {
    /// The error with the place of the work that has this number.
    fn place(&self, number: u32, error: Error) -> Error;
}

/// Where marked work comes from, and its number there.
pub type From = Option<(Arc<dyn Origin>, u32)>;

/// Called when a ticket is reached, or with the device's fault.
pub type Then = Box<dyn FnOnce(Result<()>) + Send>;

struct Mark {
    ticket: Ticket,
    event: Shared,
    from: From,
    /// Memory that the work before the mark uses.
    #[expect(dead_code, reason = "given back when dropped")]
    keep: Option<Block>,
}

/// Marks that were taken off, to be dropped without the lock.
type Taken = SmallVec<[Mark; 2]>;

#[derive(Default)]
struct State {
    /// Those not known to be reached, in order.
    marks: VecDeque<Mark>,
    /// Events that no mark uses.
    spare: Vec<Shared>,
    then: Vec<(Ticket, Then)>,
    /// The last ticket that has a waiter.
    wanted: Ticket,
    /// Threads that wait at `reached`. Taking marks off wakes none if there is none: a
    /// wake-up is a call of the system, and costs more than all the rest of a launch.
    waiters: usize,
    /// Does the stream's thread wait at `work`?
    rests: bool,
    /// Does the stream's thread exist?
    has_thread: bool,
    /// Does it sleep in the driver, for the first mark?
    is_waiting: bool,
    ends: bool,
}

impl State {
    /// The error with the place of the first work that was not reached: that of the first mark
    /// which says where its work comes from, or of `last`, which has no mark.
    fn blame(&self, last: &From, error: Error) -> Error {
        match self.marks.iter().find_map(|mark| mark.from.as_ref()).or(last.as_ref()) {
            Some((origin, number)) => origin.place(*number, error),
            None => error,
        }
    }
}

/// A stream of a device.
pub struct Stream {
    handle: Shared,
    primary: Arc<Primary>,
    fault: Arc<Fault>,
    /// The stream whose work explains a fault that is met here.
    blames: Option<Arc<Stream>>,
    issued: AtomicU64,
    done: AtomicU64,
    state: Lock<State>,
    /// For the stream's thread: there is something to wait for, or it ends.
    work: Condvar,
    /// For other threads: tickets were reached.
    reached: Condvar,
}

impl Stream {
    /// A stream of the device whose context is current.
    pub fn new(
        primary: &Arc<Primary>,
        fault: &Arc<Fault>,
        blames: Option<Arc<Stream>>,
    ) -> Result<Arc<Stream>> {
        let (driver, mut handle) = (&primary.driver, std::ptr::null_mut());
        // SAFETY: a place for the answer, in a context.
        let status = unsafe { (driver.stream_create)(&mut handle, NON_BLOCKING) };
        driver.check("cuStreamCreate", status)?;
        Ok(Arc::new(Stream {
            handle: Shared(handle),
            primary: primary.clone(),
            fault: fault.clone(),
            blames,
            issued: AtomicU64::new(0),
            done: AtomicU64::new(0),
            state: Lock::default(),
            work: Condvar::new(),
            reached: Condvar::new(),
        }))
    }

    /// The driver's handle.
    #[inline]
    pub fn handle(&self) -> Handle {
        self.handle.0
    }

    fn driver(&self) -> &Driver {
        &self.primary.driver
    }

    /// The ticket of the next mark, which covers what was issued up to now.
    #[inline]
    pub fn next(&self) -> Ticket {
        self.issued.load(Ordering::SeqCst) + 1
    }

    /// Marks the stream behind all work that was issued so far, in the device's context. `keep` is
    /// given back when the mark is reached.
    pub fn mark(&self, from: From, keep: Option<Block>) -> Result<Ticket> {
        let mut state = self.state.lock();
        // Counted before it is recorded: a thread that reads the next number after it has issued
        // work gets that of a mark which is recorded behind the work.
        let ticket = self.next();
        self.issued.store(ticket, Ordering::SeqCst);
        match self.record_on(&mut state, self.handle.0) {
            Ok(event) => {
                state.marks.push_back(Mark { ticket, event, from, keep });
                self.take_off_reached(state, 2);
                Ok(ticket)
            }
            Err(error) => {
                // No thread could wait for the work: it is done now, before `keep` is given back.
                // SAFETY: in a context.
                let status = unsafe { (self.driver().ctx_synchronize)() };
                let mut taken = Taken::new();
                self.take_off(&mut state, ticket, status, "cuCtxSynchronize", &from, &mut taken);
                drop(state);
                Err(error)
            }
        }
    }

    /// An event behind all work that was issued on a stream of the device so far.
    fn record_on(&self, state: &mut State, stream: Handle) -> Result<Shared> {
        let event = match state.spare.pop() {
            Some(event) => event,
            None => {
                let mut event = std::ptr::null_mut();
                // SAFETY: a place for the answer, in a context.
                let status = unsafe { (self.driver().event_create)(&mut event, PARKING_EVENT) };
                self.driver().check("cuEventCreate", status)?;
                Shared(event)
            }
        };
        // SAFETY: the driver checks the stream, and no mark uses the event.
        let status = unsafe { (self.driver().event_record)(event.0, stream) };
        let recorded = self.driver().check("cuEventRecord", status);
        recorded.map(|()| event).inspect_err(|_| state.spare.push(event))
    }

    /// A ticket for what was issued up to now.
    pub fn fence(&self) -> Result<Ticket> {
        self.mark(None, None)
    }

    /// `ticket`, or a new one if its mark is still to come.
    fn marked(&self, ticket: Ticket) -> Result<Ticket> {
        if ticket <= self.issued.load(Ordering::Acquire) { Ok(ticket) } else { self.fence() }
    }

    /// Lets work that is issued on this stream from now on wait for `ticket` of `other`, a stream
    /// of the same device or of another one. The context of this one is current.
    pub fn follow(&self, other: &Stream, ticket: Ticket) -> Result<()> {
        other.lead(self.handle.0, ticket)
    }

    /// Lets work that is issued on `follower` from now on, any stream, wait for `ticket`.
    /// The context of `follower` is current.
    pub fn lead(&self, follower: Handle, ticket: Ticket) -> Result<()> {
        let state = self.state.lock();
        let Some(mark) = state.marks.iter().find(|mark| mark.ticket >= ticket) else {
            return Ok(()); // reached
        };
        // SAFETY: the mark's event is alive, and the lock keeps it at this mark until the driver
        // has noted what to wait for.
        let status = unsafe { (self.driver().stream_wait_event)(follower, mark.event.0, 0) };
        self.driver().check("cuStreamWaitEvent", status)
    }

    /// As [`Stream::lead`], for a ticket whose mark may be still to come.
    pub fn lead_next(&self, follower: Handle, ticket: Ticket) -> Result<()> {
        self.lead(follower, self.marked(ticket)?)
    }

    /// As [`Stream::follow`], for a ticket whose mark may be still to come.
    pub fn follow_next(&self, other: &Stream, ticket: Ticket) -> Result<()> {
        if ticket <= other.done.load(Ordering::Acquire) {
            return Ok(());
        }
        other.primary.enter()?;
        let ticket = other.marked(ticket);
        self.primary.enter()?;
        self.follow(other, ticket?)
    }

    /// Lets work that is issued from now on wait for what another library has issued on a stream of
    /// its own.
    pub fn follow_foreign(&self, other: Handle) -> Result<()> {
        let mut state = self.state.lock();
        let event = self.record_on(&mut state, other)?;
        // SAFETY: the event is recorded; the driver has noted what to wait for when this returns.
        let status = unsafe { (self.driver().stream_wait_event)(self.handle.0, event.0, 0) };
        state.spare.push(event);
        self.driver().check("cuStreamWaitEvent", status)
    }

    /// Asks the driver for the first marks, at most `most`, and takes those off that are reached.
    fn take_off_reached(&self, mut state: Guard<'_, State>, most: usize) {
        let mut taken = Taken::new();
        for _ in 0..most {
            let Some(first) = state.marks.front().filter(|_| !state.is_waiting) else { break };
            // SAFETY: the event is that of a mark.
            let status = unsafe { (self.driver().event_query)(first.event.0) };
            if status == NOT_READY {
                break;
            }
            let ticket = first.ticket;
            self.take_off(&mut state, ticket, status, "cuEventQuery", &None, &mut taken);
        }
        if !state.then.is_empty() && !taken.is_empty() {
            self.wake(&state);
        }
        drop(state);
    }

    /// Wakes the stream's thread if it waits for work.
    fn wake(&self, state: &State) {
        if state.rests {
            self.work.notify_one();
        }
    }

    /// Moves marks up to `ticket`, which the driver says to be reached by `status`, to `taken`, to
    /// be dropped without the lock; all marks after a fault. `last` is where work comes from that
    /// could not be marked.
    fn take_off(
        &self,
        state: &mut State,
        ticket: Ticket,
        status: Status,
        function: &str,
        last: &From,
        taken: &mut Taken,
    ) {
        let mut upto = ticket;
        if let Err(error) = self.driver().check(function, status) {
            let error = self.primary.place(error);
            let error = match &self.blames {
                // (Nothing holds the lock of that stream and waits for the one of this.)
                Some(other) => other.state.lock().blame(last, error),
                None => state.blame(last, error),
            };
            self.fault.set(error);
            upto = self.issued.load(Ordering::Relaxed);
        }
        while state.marks.front().is_some_and(|mark| mark.ticket <= upto) {
            let Some(mark) = state.marks.pop_front() else { break };
            state.spare.push(mark.event);
            taken.push(mark);
        }
        self.done.fetch_max(upto, Ordering::AcqRel);
        if state.waiters > 0 {
            self.reached.notify_all();
        }
    }

    /// Calls `then` when `ticket` is reached: on the stream's thread, or here and now if it is
    /// reached already. The device's context is current.
    pub fn when(self: &Arc<Self>, ticket: Ticket, then: Then) {
        let mut state = self.state.lock();
        let refused = match self.is_reached(ticket) {
            true => self.fault.check(),
            false => match self.want(&mut state, ticket) {
                Ok(()) => return state.then.push((ticket, then)),
                Err(error) => Err(error),
            },
        };
        drop(state);
        then(refused);
    }

    /// Is nothing to be waited for any more?
    #[inline]
    fn is_reached(&self, ticket: Ticket) -> bool {
        self.done.load(Ordering::Acquire) >= ticket || self.fault.is_set()
    }

    /// Waits until `ticket` is reached; the device's fault if there was one.
    pub fn wait(self: &Arc<Self>, ticket: Ticket, poll: Poll<'_>) -> Result<()> {
        if !self.is_reached(ticket) {
            self.primary.enter()?;
            let ticket = self.marked(ticket)?;
            self.wait_for_mark(ticket, poll)?;
        }
        self.fault.check()
    }

    /// The error of a call that the driver refused: the fault behind it, if there is one.
    #[cold]
    pub fn explain(self: &Arc<Self>, refusal: Error) -> Error {
        if refusal.kind() != ErrorKind::Memory && self.primary.enter().is_ok() {
            // The one to blame first, so that the fault is found at the work that caused it.
            self.blames.iter().for_each(Stream::settle);
            self.settle();
        }
        self.fault.check().err().unwrap_or_else(|| self.primary.place(refusal))
    }

    /// Waits until everything that was issued is done or has failed, marked or not.
    fn settle(self: &Arc<Self>) {
        let _ = self.wait(self.next(), &mut || Ok(()));
    }

    fn wait_for_mark(self: &Arc<Self>, ticket: Ticket, poll: Poll<'_>) -> Result<()> {
        let until = Instant::now() + SPIN;
        while !self.is_reached(ticket) && Instant::now() < until {
            self.take_off_reached(self.state.lock(), usize::MAX);
        }
        let mut next_poll = Instant::now() + SLICE;
        let mut state = self.state.lock();
        if !self.is_reached(ticket) {
            self.want(&mut state, ticket)?;
        }
        while !self.is_reached(ticket) {
            let now = Instant::now();
            if now >= next_poll {
                drop(state);
                // A fork may have happened.
                self.primary.enter()?;
                poll()?;
                // The stream's thread may be in a function that waits for this one.
                self.take_off_reached(self.state.lock(), usize::MAX);
                next_poll = now + SLICE;
                state = self.state.lock();
                continue;
            }
            let left = next_poll - now;
            state.waiters += 1;
            state = match self.reached.wait_timeout(state, left) {
                Ok(woken) => woken.0,
                Err(poisoned) => poisoned.into_inner().0,
            };
            state.waiters -= 1;
        }
        Ok(())
    }

    /// Lets the stream's thread wait for `ticket`; starts it if there is none.
    fn want(self: &Arc<Self>, state: &mut State, ticket: Ticket) -> Result<()> {
        state.wanted = state.wanted.max(ticket);
        if !state.has_thread {
            let stream = self.clone();
            let made = std::thread::Builder::new().name("cuda stream".into());
            made.spawn(move || stream.serve())
                .map_err(|e| Error::execution(format!("cannot start a thread: {e}")))?;
            state.has_thread = true;
        }
        self.wake(state);
        Ok(())
    }

    /// The stream's thread: makes the calls that are due, and takes marks off one by one as long as
    /// one of them is wanted. One by one, so that a fault is found at the work that caused it.
    fn serve(&self) {
        let mut state = self.state.lock();
        while !state.ends {
            let reached = state.then.iter().position(|(ticket, _)| self.is_reached(*ticket));
            if let Some(at) = reached {
                let (_, then) = state.then.remove(at);
                drop(state);
                then(self.fault.check());
                state = self.state.lock();
                continue;
            }
            let wanted = state.wanted;
            let Some(first) = state.marks.front().filter(|mark| mark.ticket <= wanted) else {
                state.rests = true;
                state = self.work.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
                state.rests = false;
                continue;
            };
            let (ticket, event) = (first.ticket, first.event);
            state.is_waiting = true;
            drop(state);
            // Fails in a forked child only, which has no such thread.
            let _ = self.primary.enter();
            // SAFETY: the mark stays while `is_waiting`, and its event with it.
            let status = unsafe { (self.driver().event_synchronize)(event.0) };
            let mut taken = Taken::new();
            state = self.state.lock();
            state.is_waiting = false;
            self.take_off(&mut state, ticket, status, "cuEventSynchronize", &None, &mut taken);
            drop(state);
            drop(taken);
            state = self.state.lock();
        }
    }

    /// Ends the stream's thread, when it is not needed any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ends = true;
        self.wake(&state);
    }

    pub fn hold(&self) -> Held<'_> {
        self.state.hold()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.primary.enter().is_err() {
            return;
        }
        let state = self.state.get_mut();
        let marks = std::mem::take(&mut state.marks);
        // SAFETY: created in this context, and nothing uses them any more.
        unsafe {
            let driver = &self.primary.driver;
            (driver.stream_destroy)(self.handle.0);
            for event in marks.iter().map(|mark| mark.event).chain(state.spare.drain(..)) {
                (driver.event_destroy)(event.0);
            }
        }
    }
}
