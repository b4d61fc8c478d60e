//! Arrays on both engines: poison and healing, lifetime, inline and queued work together.

use super::Runtime;
use super::transfer::{Region, push_copy, push_region};
use crate::context::Context;
use crate::dtype::DType;
use crate::engine::{EngineType, Push, Task, create, patiently};
use crate::error::{Error, Result};
use crate::ndarray::{Attempt, NDArray, run_exclusive};
use crate::shape::Shape;
use crate::tensor::View;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn runtimes() -> [Arc<Runtime>; 2] {
    [EngineType::Threaded, EngineType::Naive].map(|kind| Runtime::new(create(kind)))
}

fn filled(rt: &Arc<Runtime>, values: &[f32]) -> NDArray {
    let shape = Shape::new(&[values.len() as i64]);
    let a = NDArray::empty(rt, &shape, DType::F32, Context::default()).unwrap();
    a.overwrite(&mut patiently(), |v| {
        // SAFETY: the array is new and not shared.
        let _: () = unsafe { v.slice_mut::<f32>() }.copy_from_slice(values);
        Ok(())
    })
    .unwrap();
    a
}

fn values(a: &NDArray) -> Result<Vec<f32>> {
    // SAFETY: nothing writes the array while it is read.
    a.read(&mut patiently(), |v| unsafe { v.slice::<f32>() }.to_vec())
}

fn fail(rt: &Arc<Runtime>, a: &NDArray) {
    let task = Task::sync(|_| Err(Error::execution("it went wrong")));
    rt.engine.push(task, Push::new("failing", &[], &[a.var()])).unwrap();
}

#[test]
fn contract_6_a_failed_array_never_gives_bytes_until_it_is_overwritten_whole() {
    for rt in runtimes() {
        let (a, good) = (filled(&rt, &[1.0, 2.0]), filled(&rt, &[3.0, 4.0]));
        fail(&rt, &a);
        assert!(a.wait_to_read(&mut patiently()).is_err(), "the first wait raises");
        assert!(a.wait_to_read(&mut patiently()).is_ok(), "once");
        assert!(values(&a).is_err(), "but there are no bytes to read");

        let one = || Region { offset: 0, extents: vec![1], steps: vec![1] };
        push_region(&good, one(), &a, one()).unwrap();
        let _ = a.wait_to_read(&mut patiently());
        assert!(values(&a).is_err(), "a part does not heal the whole");

        let copy = filled(&rt, &[0.0, 0.0]);
        push_copy(&a, &copy).unwrap();
        let _ = copy.wait_to_read(&mut patiently());
        assert!(values(&copy).is_err(), "what is made from it is poisoned too");

        push_copy(&good, &a).unwrap();
        let _ = a.wait_to_read(&mut patiently());
        assert_eq!(values(&a).unwrap(), [3.0, 4.0]);
        assert_eq!(values(&good).unwrap(), [3.0, 4.0]);
    }
}

#[test]
fn failed_arrays_can_be_dropped_and_their_memory_used_again() {
    for rt in runtimes() {
        for _ in 0..2000 {
            let a = filled(&rt, &[1.0; 64]);
            fail(&rt, &a);
            drop(a);
            assert_eq!(values(&filled(&rt, &[7.0; 64])).unwrap(), [7.0; 64]);
        }
        let _ = rt.engine.wait_for_all(&mut patiently());
        assert!(rt.pool.usage().peak_bytes < 1 << 20);
    }
}

#[test]
fn memory_lives_as_long_as_the_work_on_it() {
    struct Counted(Arc<AtomicUsize>, #[allow(dead_code)] Vec<f32>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for rt in runtimes() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut bytes = vec![1f32; 8];
        let ptr = bytes.as_mut_ptr().cast();
        let keep = Arc::new(Counted(dropped.clone(), bytes));
        let shape = Shape::new(&[8]);
        // SAFETY: `keep` owns the bytes.
        let a =
            unsafe { NDArray::external(&rt, keep, ptr, &shape, DType::F32, Context::default()) };
        let b = filled(&rt, &[0.0; 8]);
        a.var();
        push_copy(&a, &b).unwrap();
        let view = a.slice(2, 4).unwrap();
        drop(a);
        assert_eq!(values(&view).unwrap(), [1.0; 2]);
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop(view);
        rt.engine.wait_for_all(&mut patiently()).unwrap();
        assert_eq!(values(&b).unwrap(), [1.0; 8]);
        drop(b);
        rt.engine.wait_for_all(&mut patiently()).unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn variables_may_appear_while_others_work_inline() {
    // The naive engine runs an operation where it is pushed: threads that share arrays need the
    // other one.
    let [rt, _] = runtimes();
    for _ in 0..10 {
        let total = filled(&rt, &[0.0; 4]);
        std::thread::scope(|scope| {
            for i in 0..4 {
                let (rt, total) = (rt.clone(), total.clone());
                scope.spawn(move || {
                    for round in 0..500 {
                        if i == 0 && round == 250 {
                            total.var();
                        }
                        add_one(&rt, &total);
                    }
                });
            }
        });
        assert_eq!(values(&total).unwrap(), [2000.0; 4]);
    }
}

fn add_one(rt: &Arc<Runtime>, a: &NDArray) {
    let view = a.view().unwrap();
    // SAFETY: run only while the array has no other user.
    let bump = |v: &View| unsafe { v.slice_mut::<f32>() }.iter_mut().for_each(|x| *x += 1.0);
    if run_exclusive(&[], &[a], true, &mut || bump(&view)) == Attempt::Ran {
        return;
    }
    let task = Task::sync(move |_| {
        bump(&view);
        Ok(())
    });
    rt.engine.push(task, Push::new("add_one", &[], &[a.var()])).unwrap();
}
