//! Parking and waking of workers.

use super::check;
use crate::engine::data::parking::{IdleWorkers, Parker, publish};
use crate::engine::data::run_queue::{Consumer, Queues};
use crate::engine::sync::{AtomicUsize, Lock};
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Register, fence, check, park against publish, fence, check: no worker sleeps while a task is
/// queued. (A worker that did would be reported as a deadlock.)
#[test]
fn loom_no_worker_sleeps_while_a_task_is_queued() {
    check(4, || {
        let shared = Arc::new((Queues::new(1), IdleWorkers::new(), Lock::new(())));
        let worker = thread::spawn({
            let shared = shared.clone();
            move || {
                let (queues, sleep, _) = &*shared;
                let (me, mut consumer) = (Parker::current(), Consumer::new(0));
                for _ in 0..2 {
                    loop {
                        if queues.pop(&mut consumer, |_| ()).is_some() {
                            break;
                        }
                        sleep.park(&me, || !queues.is_empty());
                        consumer.backed_off();
                    }
                }
            }
        });
        let (queues, sleep, push) = &*shared;
        for task in [5, 6] {
            let held = push.lock();
            queues.push(task);
            drop(held);
            publish();
            if sleep.has_sleepers() {
                sleep.wake_one();
            }
        }
        worker.join().unwrap();
    });
}

/// The same for tasks in the injector, and for two sleepers.
#[test]
fn loom_an_injected_task_wakes_a_sleeper() {
    check(2, || {
        let shared = Arc::new((Queues::new(2), IdleWorkers::new(), AtomicUsize::new(0)));
        let workers = [0, 1].map(|worker| {
            let shared = shared.clone();
            shared.0.register(worker);
            thread::spawn(move || {
                let (queues, sleep, left) = &*shared;
                let (me, mut consumer) = (Parker::current(), Consumer::new(worker));
                while left.load(Ordering::Acquire) < 2 {
                    match queues.pop(&mut consumer, |_| ()) {
                        Some(_) if left.fetch_add(1, Ordering::AcqRel) == 1 => {
                            publish();
                            sleep.wake_all();
                        }
                        Some(_) => {
                            publish();
                            if sleep.has_sleepers() && !queues.is_empty() {
                                sleep.wake_one();
                            }
                        }
                        None => {
                            let has_work =
                                || !queues.is_empty() || left.load(Ordering::Acquire) == 2;
                            sleep.park(&me, has_work);
                            consumer.backed_off();
                        }
                    }
                }
            })
        });
        shared.0.push_batch(None, &[5, 6]);
        publish();
        if shared.1.has_sleepers() {
            shared.1.wake_one();
        }
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}
