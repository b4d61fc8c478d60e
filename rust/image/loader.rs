//! Batches of images, prepared ahead by threads of their own.
//!
//! The records of all epochs are one sequence. Preparing an image has two stages, which any thread
//! takes on: *decode* reads the next record of the sequence and makes a picture of the batch's
//! size; *write* turns a picture into numbers at its place in a batch. Places are given out in the
//! order of the sequence, when all earlier records are decoded or found to be damaged, so that what
//! a batch holds depends on no thread. Threads sleep while enough batches are ready.
//!
//! After a fork the child has no threads: it may drop a loader, and gets an error for any other
//! use.

use super::plan::{Failure, LoadPlan, Prepared, RecordPosition};
use crate::dtype::DType;
use crate::error::{Error, Result, guarded};
use crate::lock::{Guard, Lock};
use crate::ndarray::NDArray;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar};
use std::thread::JoinHandle;
use std::time::Duration;

/// A batch.
pub struct Batch {
    pub data: NDArray,
    pub label: NDArray,
    /// The records' ids.
    pub ids: Vec<u64>,
    /// The number of images at the end that do not belong to the epoch.
    pub pad: usize,
}

/// A picture on its way into a batch.
struct Write {
    batch: u64,
    position: usize,
    prepared: Prepared,
    data: NDArray,
    label: NDArray,
}

/// A batch that is being filled, in the order of batches.
struct Slot {
    epoch: u64,
    data: NDArray,
    label: NDArray,
    ids: Vec<u64>,
    pad: usize,
    closed: bool,
    written: usize,
}

struct State {
    stops: bool,
    /// Grows when everything that is under way becomes void.
    generation: u64,
    // The next record to decode.
    epoch: u64,
    index: usize,
    order: Option<Vec<u32>>,
    /// Records under way, from number `first` on; `None` are not decoded yet.
    window: VecDeque<(RecordPosition, Option<Result<Prepared, Failure>>)>,
    first: u64,
    writes: VecDeque<Write>,
    /// Batches from number `front` on.
    batches: VecDeque<Slot>,
    front: u64,
    /// The error that ends the sequence, after the batches before it.
    error: Option<Error>,
    good_in_epoch: usize,
    /// Records that were skipped; those of every epoch are the same.
    skipped: HashSet<usize>,
    first_skipped: Option<Error>,
    /// The consumer's epoch, and how many batches it has taken of it.
    current: u64,
    taken: usize,
}

struct Shared {
    plan: LoadPlan,
    state: Lock<State>,
    work: Condvar,
    ready: Condvar,
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stops {
            if let Some(write) = state.writes.pop_front() {
                let generation = state.generation;
                drop(state);
                let batch = write.batch;
                let result = guarded(|| self.write(write));
                state = self.state.lock();
                if state.generation == generation {
                    self.written(&mut state, batch, result);
                }
            } else if let Some((number, place)) = self.next_place(&mut state) {
                let generation = state.generation;
                drop(state);
                let outcome = self.prepare(place);
                state = self.state.lock();
                if state.generation == generation {
                    let at = (number - state.first) as usize;
                    state.window[at].1 = Some(outcome);
                    self.assign(&mut state);
                }
            } else {
                state = self.work.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        }
    }

    fn prepare(&self, place: RecordPosition) -> Result<Prepared, Failure> {
        let mut outcome = None;
        let caught = guarded(|| {
            outcome = Some(self.plan.prepare(place));
            Ok(())
        });
        match (caught, outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Err(error), _) => Err(Failure::Wrong(error)),
            (Ok(()), None) => Err(Failure::Wrong(Error::internal("an image without an outcome"))),
        }
    }

    /// The next record to decode and its number, unless enough are under way.
    fn next_place(&self, state: &mut State) -> Option<(u64, RecordPosition)> {
        if state.error.is_some() || state.window.len() >= 2 * self.plan.threads + 2 {
            return None;
        }
        let index = state.index;
        if index == 0 {
            state.order = self.plan.source.order(state.epoch);
        }
        let record = state.order.as_ref().map_or(index, |order| order[index] as usize);
        let place = RecordPosition { epoch: state.epoch, index, record };
        state.index += 1;
        if state.index == self.plan.records() {
            (state.epoch, state.index) = (state.epoch + 1, 0);
        }
        state.window.push_back((place, None));
        Some((state.first + state.window.len() as u64 - 1, place))
    }

    /// Gives decoded images their places in batches, in order.
    fn assign(&self, state: &mut State) {
        while let Some((_, Some(_))) = state.window.front()
            && state.error.is_none()
        {
            let is_open = state.batches.back().is_some_and(|slot| !slot.closed);
            if !is_open && state.batches.len() >= self.plan.ahead {
                break;
            }
            let Some((place, Some(outcome))) = state.window.pop_front() else { break };
            state.first += 1;
            match outcome {
                Ok(prepared) => {
                    state.good_in_epoch += 1;
                    if let Err(error) = self.place(state, place, prepared) {
                        state.error = Some(error);
                    }
                }
                Err(Failure::Damage(error)) if self.plan.skips => {
                    state.skipped.insert(place.record);
                    state.first_skipped.get_or_insert(error);
                }
                Err(Failure::Damage(error) | Failure::Wrong(error)) => state.error = Some(error),
            }
            if place.index + 1 == self.plan.records() {
                self.end_epoch(state);
            }
        }
        self.work.notify_all();
        self.ready.notify_all();
    }

    fn end_epoch(&self, state: &mut State) {
        if state.good_in_epoch == 0 && state.error.is_none() {
            let first = state.first_skipped.as_ref().map_or("", |e| e.message());
            let text = format!("no record of the epoch can be used; the first: {first}");
            state.error = Some(Error::io(text));
        }
        state.good_in_epoch = 0;
        if let Some(slot) = state.batches.back_mut()
            && !slot.closed
            && !self.plan.round_batch
        {
            slot.closed = true;
            slot.pad = self.plan.batch_size - slot.ids.len();
        }
    }

    /// Puts a picture into the open batch, or a new one.
    fn place(&self, state: &mut State, place: RecordPosition, prepared: Prepared) -> Result<()> {
        let plan = &self.plan;
        if state.batches.back().is_none_or(|slot| slot.closed) {
            let cpu = Default::default();
            let data = NDArray::empty(&plan.base, &plan.data_shape(), plan.dtype, cpu)?;
            let label = NDArray::empty(&plan.base, &plan.label_shape(), DType::F32, cpu)?;
            let ids = Vec::with_capacity(plan.batch_size);
            let epoch = place.epoch;
            state.batches.push_back(Slot {
                epoch,
                data,
                label,
                ids,
                pad: 0,
                closed: false,
                written: 0,
            });
        }
        let batch = state.front + state.batches.len() as u64 - 1;
        let Some(slot) = state.batches.back_mut() else { return Ok(()) };
        let position = slot.ids.len();
        slot.ids.push(prepared.id);
        slot.pad += usize::from(place.epoch > slot.epoch);
        slot.closed = slot.ids.len() == plan.batch_size;
        let (data, label) = (slot.data.clone(), slot.label.clone());
        state.writes.push_back(Write { batch, position, prepared, data, label });
        Ok(())
    }

    /// Writes a picture and its labels to their place.
    fn write(&self, write: Write) -> Result<()> {
        let (data, label) = (write.data.view()?, write.label.view()?);
        // SAFETY: nothing else refers to the arrays yet, which the task keeps alive, and every
        // place of a batch is given out once.
        unsafe { self.plan.write(&write.prepared, write.position, &data, &label) };
        Ok(())
    }

    fn written(&self, state: &mut State, batch: u64, result: Result<()>) {
        if let Err(error) = result {
            state.error.get_or_insert(error);
        }
        let at = (batch - state.front) as usize;
        state.batches[at].written += 1;
        self.ready.notify_all();
    }
}

/// Prepares batches ahead; see the module.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
}

impl Loader {
    pub fn new(plan: LoadPlan) -> Result<Self> {
        let first_skipped = plan.source.damages.first().cloned();
        let state = State {
            stops: false,
            generation: 0,
            epoch: 0,
            index: 0,
            order: None,
            window: VecDeque::new(),
            first: 0,
            writes: VecDeque::new(),
            batches: VecDeque::new(),
            front: 0,
            error: None,
            good_in_epoch: 0,
            skipped: HashSet::new(),
            first_skipped,
            current: 0,
            taken: 0,
        };
        let count = plan.threads;
        let (work, ready) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { plan, state: Lock::new(state), work, ready });
        let process = std::process::id();
        let mut loader = Loader { shared, threads: Vec::new(), process };
        for i in 0..count {
            let shared = loader.shared.clone();
            let thread = std::thread::Builder::new().name(format!("rsnet-images-{i}"));
            let thread = thread.spawn(move || shared.run());
            let failed = |e| Error::execution(format!("cannot start a thread: {e}"));
            loader.threads.push(thread.map_err(failed)?);
        }
        Ok(loader)
    }

    pub fn plan(&self) -> &LoadPlan {
        &self.shared.plan
    }

    fn lock(&self) -> Result<Guard<'_, State>> {
        if std::process::id() != self.process {
            return Err(Error::execution(
                "the iterator was made before a fork, and its threads are in the parent process: \
                 make a new one in this process",
            ));
        }
        Ok(self.shared.state.lock())
    }

    /// Waits until `f` has an answer; `poll` is called now and then, and may end the wait.
    fn wait<R>(
        &self,
        poll: &mut dyn FnMut() -> Result<()>,
        mut f: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R> {
        let mut state = self.lock()?;
        loop {
            if let Some(result) = f(&mut state) {
                return Ok(result);
            }
            let limit = Duration::from_millis(50);
            let waited = self.shared.ready.wait_timeout(state, limit);
            drop(waited);
            poll()?;
            state = self.lock()?;
        }
    }

    /// The next batch of the epoch; `None` after the last.
    ///
    /// # Errors
    /// A damaged record, unless such are skipped; labels that do not fit the parameters.
    pub fn next(&self, poll: &mut dyn FnMut() -> Result<()>) -> Result<Option<Batch>> {
        self.wait(poll, |state| {
            let Some(slot) = state.batches.front() else {
                return state.error.clone().map(Err);
            };
            if slot.epoch > state.current {
                return Some(Ok(None));
            }
            if !slot.closed || slot.written < slot.ids.len() {
                // An open batch is never closed once the sequence has ended.
                return state.error.clone().filter(|_| !slot.closed).map(Err);
            }
            let slot = state.batches.pop_front()?;
            state.front += 1;
            state.taken += 1;
            self.shared.assign(state);
            Some(self.finished(slot).map(Some))
        })?
    }

    /// The batch of a slot; what no image was written to is 0.
    fn finished(&self, slot: Slot) -> Result<Batch> {
        let plan = self.plan();
        let Slot { data, label, mut ids, pad, .. } = slot;
        let used = ids.len();
        for array in [&data, &label] {
            let view = array.view()?;
            let begin = view.size_bytes() / plan.batch_size * used;
            // SAFETY: the tail of an array that nothing else refers to yet.
            unsafe { view.ptr().add(begin).write_bytes(0, view.size_bytes() - begin) };
        }
        ids.resize(plan.batch_size, 0);
        Ok(Batch { data, label, ids, pad })
    }

    /// Begins the next epoch. What is left of this one is dropped.
    pub fn reset(&self, poll: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.wait(poll, |state| {
            let next = state.batches.front().map(|slot| slot.epoch);
            match next {
                _ if state.taken == 0 && state.error.is_none() => {}
                // Batches of the next epoch are under way already.
                Some(epoch) if epoch > state.current => {
                    (state.current, state.taken) = (epoch, 0);
                }
                None if state.error.is_none() => return None,
                _ => self.restart(state),
            }
            Some(())
        })
    }

    fn restart(&self, state: &mut State) {
        state.generation += 1;
        (state.current, state.taken) = (state.current + 1, 0);
        (state.epoch, state.index, state.good_in_epoch) = (state.current, 0, 0);
        state.window.clear();
        state.writes.clear();
        state.batches.clear();
        state.error = None;
        self.shared.work.notify_all();
    }

    /// The number of damaged records skipped so far, and the error of the first one.
    pub fn skipped(&self) -> Result<(usize, Option<Error>)> {
        let state = self.lock()?;
        let count = self.plan().source.damages.len() + state.skipped.len();
        Ok((count, state.first_skipped.clone()))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // The threads are in the parent, and one of them may have held the lock at the fork.
            std::mem::take(&mut self.threads).into_iter().for_each(std::mem::forget);
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.state.lock().stops = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
