//! The pool under random schedules: waiting jobs are attended to, blocked ones hold up no other.

use super::roster::{Appointment, Duty, Roster, Seen, Verdict};
use super::*;
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Simulated threads of a roster: each step is one that a real thread could take next.
#[derive(Default)]
struct Sim {
    roster: Option<Roster<u32, ()>>,
    workers: Vec<(Arc<roster::Worker<()>>, Seen, Phase)>,
    ran: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Waiting,
    Running,
    Ended,
}

impl Sim {
    fn new() -> Self {
        Sim { roster: Some(Roster::new()), ..Sim::default() }
    }

    fn roster(&mut self) -> &mut Roster<u32, ()> {
        self.roster.as_mut().unwrap()
    }

    fn note(&mut self, appointment: Option<Appointment<()>>, refuses: bool) {
        if let Some(Appointment::Start(worker)) = appointment {
            if refuses {
                drop(self.roster().refused(&worker));
            } else {
                self.workers.push((worker, Seen::default(), Phase::Waiting));
            }
        }
    }

    fn submit(&mut self, refuses: bool) {
        let Ok(appointment) = self.roster().submit(0, Priority::Normal) else { return };
        self.note(appointment, refuses);
    }

    /// A runner takes its next job, which blocks until its next step.
    fn step(&mut self, at: usize, refuses: bool) {
        let Sim { roster: Some(roster), workers, ran } = self else { return };
        let (worker, _, phase) = &mut workers[at];
        if worker.duty() != Duty::Run {
            return;
        }
        if *phase == Phase::Waiting {
            roster.arrived();
            *phase = Phase::Running;
        }
        match roster.take() {
            Some((_, appointment)) => {
                *ran += 1;
                self.note(appointment, refuses);
            }
            None => {
                roster.rest(worker);
                *phase = Phase::Waiting;
            }
        }
    }

    /// A whole check of the watcher, during which nothing else happens.
    fn look(&mut self) {
        let Sim { roster: Some(roster), workers, .. } = self else { return };
        let watcher = workers.iter_mut().find(|w| w.2 != Phase::Ended && w.0.duty() == Duty::Watch);
        if let Some((worker, seen, _)) = watcher {
            roster.begin_look(seen);
            roster.end_look(worker, seen);
        }
    }

    fn dismiss(&mut self, at: usize) {
        let Sim { roster: Some(roster), workers, .. } = self else { return };
        let (worker, _, phase) = &mut workers[at];
        if worker.duty() == Duty::Idle && *phase == Phase::Waiting {
            roster.dismiss(worker);
            roster.left();
            *phase = Phase::Ended;
        }
    }
}

proptest! {
    /// Waiting jobs are attended after any sequence of steps; and while all runners are blocked,
    /// checks and arrivals alone start every job.
    #[test]
    fn waiting_jobs_are_attended_after_every_step(
        steps in prop::collection::vec((0u8..8, any::<prop::sample::Index>()), 0..200),
    ) {
        let mut sim = Sim::new();
        for (kind, at) in steps {
            let any = |sim: &Sim| (!sim.workers.is_empty()).then(|| at.index(sim.workers.len()));
            match (kind, any(&sim)) {
                (0..3, _) => sim.submit(false),
                (3 | 4, Some(at)) => sim.step(at, false),
                (5 | 6, _) => sim.look(),
                (7, Some(at)) => sim.dismiss(at),
                _ => {}
            }
            prop_assert!(sim.roster().is_attended());
        }
        let mut turns = 0;
        while sim.roster().queued() > 0 {
            sim.look();
            for at in 0..sim.workers.len() {
                if sim.workers[at].2 == Phase::Waiting {
                    sim.step(at, false);
                }
            }
            turns += 1;
            prop_assert!(turns < 500, "jobs wait, but no thread is added");
        }
        let working = sim.workers.iter().filter(|w| w.2 == Phase::Running).count();
        prop_assert!(working <= sim.ran);
    }
}

#[test]
fn without_any_thread_jobs_come_back_and_later_ones_try_again() {
    let mut sim = Sim::new();
    sim.submit(true);
    assert_eq!((sim.roster().threads(), sim.roster().queued()), (0, 0));
    sim.submit(false);
    sim.step(0, false);
    assert_eq!(sim.ran, 1);
    // A watcher that is refused is appointed by the next submission.
    sim.submit(true);
    assert!(!sim.roster().is_attended());
    sim.submit(false);
    assert!(sim.roster().is_attended());
}

#[test]
fn a_watcher_rests_after_quiet_looks_and_is_the_first_to_run_next() {
    let mut sim = Sim::new();
    sim.submit(false);
    sim.step(0, false);
    sim.submit(false);
    assert_eq!(sim.workers[1].0.duty(), Duty::Watch);
    sim.step(0, false);
    let Sim { roster: Some(roster), workers, .. } = &mut sim else { unreachable!() };
    let (worker, seen, _) = &mut workers[1];
    let looks = (0..100).find(|_| roster.end_look(worker, seen) == Verdict::Rest);
    assert!(looks.is_some());
    assert_eq!(worker.duty(), Duty::Idle);
    sim.submit(false);
    assert_eq!((sim.workers.len(), sim.workers[1].0.duty()), (2, Duty::Watch));
}

type Job = Box<dyn FnOnce() + Send>;

static POOL: BlockingPool<Job> = BlockingPool::new(|worker| {
    let serve = move || POOL.serve(&worker, || POOL.run_jobs(&worker, |job| job()));
    std::thread::Builder::new().spawn(serve).map(drop)
});

/// Less than the patience of idle threads, and far more than a loaded machine needs.
const SOON: Duration = Duration::from_secs(2);

fn run(job: impl FnOnce() + Send + 'static) {
    assert!(POOL.submit(Box::new(job), Priority::Normal).is_ok());
}

fn blocked(n: usize) -> (Vec<Sender<()>>, Receiver<()>) {
    let (begun, has_begun) = channel();
    let gates = (0..n).map(|_| {
        let (gate, opened) = channel::<()>();
        let begun = begun.clone();
        run(move || {
            begun.send(()).unwrap();
            let _ = opened.recv();
        });
        gate
    });
    (gates.collect(), has_begun)
}

/// Serializes the tests that share the pool.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn jobs_run_behind_any_number_of_blocked_ones_in_every_round() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for round in 0..30 {
        let n = 2 + round % 15;
        let (gates, has_begun) = blocked(n);
        let (ran, has_run) = channel();
        run(move || ran.send(()).unwrap());
        has_run.recv_timeout(SOON).unwrap_or_else(|_| panic!("round {round}: stalled"));
        for _ in 0..n {
            has_begun.recv_timeout(SOON).unwrap_or_else(|_| panic!("round {round}: not started"));
        }
        drop(gates);
        if round % 4 == 0 {
            std::thread::sleep(LOOK * 20); // the watcher rests
        }
    }
}

#[test]
fn jobs_that_meet_at_a_barrier_do_meet_in_every_round() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for round in 0..30 {
        let n = 2 + round % 15;
        let (barrier, (met, have_met)) = (Arc::new(std::sync::Barrier::new(n)), channel());
        for _ in 0..n {
            let (barrier, met) = (barrier.clone(), met.clone());
            run(move || {
                barrier.wait();
                met.send(()).unwrap();
            });
        }
        for _ in 0..n {
            have_met.recv_timeout(SOON).unwrap_or_else(|_| panic!("round {round}: stalled"));
        }
    }
}

#[test]
fn a_panic_ends_its_job_only() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let (ran, has_run) = channel();
    run(|| std::panic::resume_unwind(Box::new("of a job")));
    run(move || ran.send(()).unwrap());
    has_run.recv_timeout(SOON).unwrap();
}
