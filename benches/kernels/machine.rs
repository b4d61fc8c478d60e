//! What the machine can do, and the times of what runs on its threads.

use rsnet::DType;
use rsnet::engine::{Engine, Push, Task, ThreadedEngine, patiently};
use rsnet::kernels::map::map;
use rsnet::kernels::real::Real;
use std::hint::black_box;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Time that each measurement takes, at least.
const BUDGET: Duration = Duration::from_millis(100);
/// Bytes that the copy moves whose speed is the machine's: more than caches hold.
const LARGE: usize = 1 << 28;

/// Engines of one thread, of two, and so on up to all, and the GFLOP/s of one thread in float32
/// and float64.
pub struct Machine {
    pub engines: Vec<(usize, ThreadedEngine)>,
    peaks: [f64; 2],
}

impl Machine {
    pub fn new() -> Self {
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        let mut counts = vec![1];
        while counts[counts.len() - 1] < most {
            counts.push((counts[counts.len() - 1] * 2).min(most));
        }
        let engines = counts.into_iter().map(|n| (n, ThreadedEngine::with_threads(n))).collect();
        Machine { engines, peaks: [peak::<f32>(), peak::<f64>()] }
    }

    /// GFLOP/s of one thread; dtypes without arithmetic of their own count as float32.
    pub fn peak(&self, dtype: DType) -> f64 {
        self.peaks[usize::from(dtype == DType::F64)]
    }

    pub fn print(&self) {
        let [single, double] = self.peaks;
        for (threads, engine) in &self.engines {
            let (single, double) = (single * *threads as f64, double * *threads as f64);
            let copied = copied(engine, LARGE);
            println!(
                "machine threads={threads} peak_gflops_f32={single:.0} peak_gflops_f64={double:.0} \
                 copy_gb_per_s={copied:.1}"
            );
        }
    }
}

/// Runs `job` on a worker of the engine and returns what it returns.
pub fn on<R: Send + 'static>(
    engine: &ThreadedEngine,
    job: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (send, receive) = channel();
    let task = Task::sync(move |_| {
        let _ = send.send(job());
        Ok(())
    });
    engine.push(task, Push::new("bench", &[], &[])).expect("the engine runs");
    engine.wait_for_all(&mut patiently()).expect("no error");
    receive.recv().expect("an answer")
}

/// Seconds of the fastest of many runs.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let (start, mut best) = (Instant::now(), f64::MAX);
    while start.elapsed() < BUDGET {
        let begin = Instant::now();
        run();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    best
}

/// The same on a worker of the engine.
pub fn best_on(engine: &ThreadedEngine, run: impl FnMut() + Send + 'static) -> f64 {
    on(engine, move || best(run))
}

/// GB/s of a copy that reads and writes this many bytes together.
pub fn copied(engine: &ThreadedEngine, bytes: usize) -> f64 {
    let n = bytes / 8;
    let (from, mut to) = (vec![1.0f32; n], vec![0.0f32; n]);
    let seconds = best_on(engine, move || {
        // SAFETY: both arrays hold `n` elements.
        unsafe { map([from.as_ptr()], to.as_mut_ptr(), n, |[x]| x) };
    });
    bytes as f64 / seconds / 1e9
}

/// Sums that fill most registers of the largest kind.
const SUMS: usize = 192;

rsnet::simd! {
    /// Products and sums in registers, `SUMS * n` of each. (In nested arrays the compiler gathers
    /// and scatters float32.)
    ///
    /// # Safety
    /// None; as the macro declares it.
    unsafe fn multiply_add[T: Real][T](n: usize, factor: T) -> T {
        let mut sums = [factor; SUMS];
        for _ in 0..n {
            for sum in &mut sums {
                *sum = sum.mul_add(factor, factor);
            }
        }
        sums.into_iter().sum()
    }
}

/// GFLOP/s of one thread that only calculates.
fn peak<T: Real>() -> f64 {
    const TURNS: usize = 10_000;
    let seconds = best(|| {
        // SAFETY: the function asks for nothing.
        black_box(unsafe { multiply_add(TURNS, black_box(T::of(0.5))) });
    });
    (2 * SUMS * TURNS) as f64 / seconds / 1e9
}
