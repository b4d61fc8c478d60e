//! Every part runs once, on whichever thread, and panics and ends are seen by the owner.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Runs `f` on a thread of a team of three.
pub fn in_team<R>(f: impl FnOnce() -> R) -> R {
    let (team, stop) = (Arc::new(Team::new(3, |_| ())), AtomicBool::new(false));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                team.join(|| {
                    while !stop.load(Ordering::Relaxed) {
                        team.help();
                        std::thread::yield_now();
                    }
                })
            });
        }
        let result = catch_unwind(AssertUnwindSafe(|| team.join(f)));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn counts(n: usize) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn each_part_is_done_once_also_inside_others() {
    in_team(|| {
        for round in 0..200 {
            let (n, inner) = (1 + round % 7, 1 + round % 5);
            let done = counts(n * inner);
            split(n, |i| {
                split(inner, |k| {
                    done[i * inner + k].fetch_add(1, Ordering::Relaxed);
                });
            });
            assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
        }
    });
}

/// A panic payload may panic again when dropped; no helper stays inside because of that.
#[test]
fn a_payload_that_panics_in_drop_leaves_no_helper_inside() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("once more");
        }
    }
    in_team(|| {
        for _ in 0..50 {
            let begun = AtomicU64::new(0);
            let panics = || {
                split(3, |_| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    std::panic::panic_any(Bomb);
                });
            };
            std::mem::forget(catch_unwind(AssertUnwindSafe(panics)).unwrap_err());
            assert!(begun.load(Ordering::Relaxed) > 0);
        }
    });
}

#[test]
fn leaving_an_inner_team_restores_the_outer_one() {
    let (outer, inner) = (Arc::new(Team::new(2, |_| ())), Arc::new(Team::new(3, |_| ())));
    let size = || team().map(|team| team.size);
    outer.join(|| {
        split(2, |_| inner.join(|| assert_eq!(size(), Some(3))));
        assert_eq!(size(), Some(2));
    });
    assert_eq!(size(), None);
}

#[test]
fn without_a_team_parts_run_in_order() {
    let order = Mutex::new(Vec::new());
    split(4, |i| order.lock().unwrap().push(i));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn a_panic_continues_in_the_caller_and_the_team_survives() {
    let message = in_team(|| {
        let panics = || split(64, |i| assert!(i != 40, "part {i}"));
        let panic = catch_unwind(panics).unwrap_err();
        let done = counts(100);
        split(100, |i| {
            done[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
        panic.downcast_ref::<String>().cloned()
    });
    assert_eq!(message.as_deref(), Some("part 40"));
}

#[test]
fn a_failure_is_returned_and_ends_the_job() {
    let parts_begun = |n: usize, fails: &(dyn Fn(usize) -> bool + Sync)| {
        let begun = AtomicU64::new(0);
        let result = try_split(n, |i| {
            begun.fetch_add(1, Ordering::Relaxed);
            if fails(i) { Err(i) } else { Ok(()) }
        });
        (result, begun.into_inner())
    };
    let check = || {
        assert_eq!(parts_begun(100, &|_| false), (Ok(()), 100));
        assert_eq!(parts_begun(100, &|i| i == 40).0, Err(40));
        // Threads that have taken a part finish it, one each.
        let (result, begun) = parts_begun(1 << 30, &|_| true);
        assert!(result.is_err() && begun <= 3, "{result:?} after {begun} parts");
    };
    check();
    in_team(check);
}

/// A job has fewer parts than 2^32.
#[test]
fn more_parts_than_a_job_has_run_several_at_a_time() {
    let begun = Mutex::new(Vec::new());
    let result = try_split(u32::MAX as usize + 5, |i| {
        begun.lock().unwrap().push(i);
        if i == 6 { Err("six") } else { Ok(()) }
    });
    assert_eq!(result, Err("six"));
    assert_eq!(*begun.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
}

/// Splits many short parts; one in the middle waits until the test has `helped`, but not for ever.
fn split_until_helped(split: impl Fn(usize, &(dyn Fn(usize) + Sync)), helped: &AtomicBool) {
    const PARTS: u64 = 400_000;
    let begun = AtomicU64::new(0);
    split(PARTS as usize, &|_| {
        if begun.fetch_add(1, Ordering::Relaxed) == PARTS / 2 {
            let started = Instant::now();
            while !helped.load(Ordering::Relaxed) && started.elapsed().as_secs() < 5 {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(begun.into_inner(), PARTS);
}

/// Runs `owner` in a team, and beside it `help`, again and again, until the owner has ended.
fn beside(owner: impl FnOnce() + Send, help: impl Fn(&Arc<Team>)) -> Arc<Team> {
    let team = Arc::new(Team::new(2, |_| ()));
    std::thread::scope(|s| {
        let owner = s.spawn(|| team.join(owner));
        while !owner.is_finished() {
            help(&team);
            // It may be on the owner's core, which it leaves alone.
            cores::this_one().into_iter().for_each(cores::leave);
        }
        owner.join().unwrap();
    });
    team
}

#[test]
fn a_thread_outside_takes_short_parts_for_as_long_as_it_likes() {
    let (helped, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let owner = || split_until_helped(|n, run| split(n, run), &helped);
    let team = beside(owner, |team| {
        let goes_on = || taken.fetch_add(1, Ordering::Relaxed) < 3;
        if team.help_while(goes_on) {
            helped.store(true, Ordering::Relaxed);
        }
    });
    let is_alone = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
    assert!(is_alone || helped.into_inner());
    assert!(!team.has_work() && !team.help());
}

#[test]
fn a_thread_outside_takes_no_long_parts_and_none_of_a_user() {
    let helped = AtomicBool::new(false);
    let tries = |team: &Arc<Team>| {
        if team.help_while(|| true) {
            helped.store(true, Ordering::Relaxed);
        }
    };
    let long = |_| std::thread::sleep(std::time::Duration::from_millis(2));
    beside(|| split(40, long), tries);
    let user = |n: usize, run: &(dyn Fn(usize) + Sync)| {
        let run = |i| {
            run(i);
            Ok::<(), ()>(())
        };
        try_split(n, run).unwrap();
    };
    let never = AtomicBool::new(true);
    beside(|| split_until_helped(user, &never), tries);
    assert!(!helped.into_inner());
}
