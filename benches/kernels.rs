//! Speed of kernels beside what the machine can do: `cargo bench --bench kernels [NAME...]`.
//!
//! Prints `kernel=NAME ... threads=N`, and GFLOP/s (a multiplication and an addition each count)
//! with the fraction of the peak, or GB/s (bytes that must be read and written) with the fraction
//! of a copy of the same size; each is the best of many runs. Peak and copies are measured in the
//! same run. Convolutions are counted as direct sums, so a fraction above 1 is a better algorithm.
//! Sizes are swept from 1 KB to 256 MB, so that a regression shows as a change of shape.

use rsnet::engine::{Engine, Push, Task, ThreadedEngine, patiently};
use rsnet::kernels::conv::{self, Conv};
use rsnet::kernels::gemm::{Mat, Threads, gemm};
use rsnet::kernels::map::map;
use rsnet::kernels::real::Real;
use rsnet::kernels::softmax::Softmax;
use std::hint::black_box;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Time that each measurement takes, at least.
const BUDGET: Duration = Duration::from_millis(100);

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

/// The same on a worker of an engine of `threads` threads.
fn best_on(engine: &ThreadedEngine, mut run: impl FnMut() + Send + 'static) -> f64 {
    let (send, receive) = channel();
    let task = Task::sync(move |_| {
        let _ = send.send(best(&mut run));
        Ok(())
    });
    engine.push(task, Push::new("bench", &[], &[])).expect("the engine runs");
    engine.wait_for_all(&mut patiently()).expect("no error");
    receive.recv().expect("a time")
}

rsnet::simd! {
    /// Products and sums in registers, `12 * 16 * n` of each.
    ///
    /// # Safety
    /// None; as the macro declares it.
    unsafe fn multiply_add[T: Real][T](n: usize, factor: T) -> T {
        let mut sums = [[factor; 16]; 12];
        for _ in 0..n {
            for sum in &mut sums {
                for lane in sum {
                    *lane = lane.mul_add(factor, factor);
                }
            }
        }
        let mut total = T::zero();
        for sum in &sums {
            for lane in sum {
                total += *lane;
            }
        }
        total
    }
}

/// GFLOP/s of one thread that only calculates.
fn peak<T: Real>() -> f64 {
    const TURNS: usize = 10_000;
    let seconds = best(|| {
        // SAFETY: the function asks for nothing.
        black_box(unsafe { multiply_add(TURNS, black_box(T::of(0.5))) });
    });
    (2 * 12 * 16 * TURNS) as f64 / seconds / 1e9
}

/// One machine in this run.
struct Bench {
    engines: Vec<(usize, ThreadedEngine)>,
    peaks: [f64; 2],
    wanted: Vec<String>,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|w| name.contains(w.as_str()))
    }

    /// Measures what calculates.
    fn flops<F: FnMut() + Send + 'static>(
        &self,
        (name, case, single): (&str, &str, bool),
        work: f64,
        make: impl Fn() -> F,
    ) {
        if !self.wants(name) {
            return;
        }
        for (threads, engine) in &self.engines {
            let rate = work / best_on(engine, make()) / 1e9;
            let of_peak = rate / (self.peaks[usize::from(!single)] * *threads as f64);
            println!(
                "kernel={name} {case} threads={threads} gflops={rate:.1} of_peak={of_peak:.2}"
            );
        }
    }

    /// Measures what moves `bytes`, beside a copy of as many.
    fn bytes<F: FnMut() + Send + 'static>(&self, name: &str, bytes: usize, make: impl Fn() -> F) {
        if !self.wants(name) {
            return;
        }
        for (threads, engine) in &self.engines {
            let rate = bytes as f64 / best_on(engine, make()) / 1e9;
            let copied = bytes as f64 / best_on(engine, element_wise::<1>(bytes / 8)) / 1e9;
            let of_copy = rate / copied;
            println!(
                "kernel={name} bytes={bytes} threads={threads} gb_per_s={rate:.1} \
                 of_copy={of_copy:.2}"
            );
        }
    }
}

/// Sums of `N` arrays, element by element; of one, a copy.
fn element_wise<const N: usize>(n: usize) -> impl FnMut() + Send + 'static {
    let inputs: Vec<Vec<f32>> = (0..N).map(|_| vec![1.0; n]).collect();
    let mut out = vec![0.0f32; n];
    move || {
        let from = std::array::from_fn(|i: usize| inputs[i].as_ptr());
        // SAFETY: all arrays hold `n` elements.
        unsafe { map::<f32, N>(from, out.as_mut_ptr(), n, |x| x.into_iter().sum()) };
    }
}

fn product<T: Real>(
    (m, k, n): (usize, usize, usize),
    turned: [bool; 2],
) -> impl FnMut() + Send + 'static {
    let [mut a, mut b] = [m * k, k * n].map(|len| vec![T::of(0.5); len]);
    let mut c = vec![T::zero(); m * n];
    move || {
        let a = Mat::rows(a.as_mut_ptr(), if turned[0] { m } else { k }).t_if(turned[0]);
        let b = Mat::rows(b.as_mut_ptr(), if turned[1] { k } else { n }).t_if(turned[1]);
        // SAFETY: the arrays have these extents.
        unsafe { gemm((m, n, k), a, b, Mat::rows(c.as_mut_ptr(), n), false, Threads::Pool) };
    }
}

fn products(bench: &Bench) {
    let sizes = [
        (2048, 2048, 2048),
        (1024, 1024, 1024),
        (512, 512, 512),
        (256, 256, 256),
        (64, 64, 64),
        (128, 1024, 1024),
        (128, 64, 128),
        (64, 784, 128),
        (32, 4096, 1000),
        (32, 256, 1024),
        (4, 512, 512),
        (1, 1024, 1024),
    ];
    for size in sizes {
        for turned in [[false, false], [false, true], [true, false]] {
            let (m, k, n) = size;
            let work = 2.0 * (m * k * n) as f64;
            let letter = |turned| if turned { 't' } else { 'n' };
            let case =
                format!("m={m} k={k} n={n} layout={}{}", letter(turned[0]), letter(turned[1]));
            bench.flops(("gemm_f32", &case, true), work, || product::<f32>(size, turned));
            bench.flops(("gemm_f64", &case, false), work, || product::<f64>(size, turned));
        }
    }
}

/// What of a convolution is calculated.
#[derive(Clone, Copy)]
enum Pass {
    Forward,
    Data,
    Weight,
}

fn convolution(conv: Conv, pass: Pass) -> impl FnMut() + Send + 'static {
    let sizes = [
        conv.batch * conv.groups * conv.in_c * conv.in_size(),
        conv.groups * conv.out_c * conv.depth(),
        conv.batch * conv.groups * conv.out_c * conv.out_size(),
    ];
    let [mut x, mut w, mut y] = sizes.map(|len| vec![0.5f32; len]);
    move || {
        // SAFETY: the arrays have the extents of the convolution.
        unsafe {
            match pass {
                Pass::Forward => {
                    conv::forward(&conv, x.as_ptr(), w.as_ptr(), None, y.as_mut_ptr(), None, None);
                }
                Pass::Data => conv::backward_data(&conv, y.as_ptr(), w.as_ptr(), x.as_mut_ptr()),
                Pass::Weight => {
                    conv::backward_weight(&conv, x.as_ptr(), y.as_ptr(), w.as_mut_ptr());
                }
            }
        }
    }
}

fn convolutions(bench: &Bench) {
    // Batch, groups, channels in and out of a group, side, kernel, stride, padding.
    let cases = [
        (8, 1, 64, 64, 56, 3, 1, 1),
        (8, 1, 256, 256, 14, 3, 1, 1),
        (32, 1, 16, 16, 32, 3, 1, 1),
        (32, 1, 64, 64, 8, 3, 1, 1),
        (32, 1, 16, 32, 32, 3, 2, 1),
        (8, 1, 256, 64, 56, 1, 1, 0),
        (8, 1, 3, 64, 224, 7, 2, 3),
        (64, 1, 20, 50, 12, 5, 1, 0),
        (16, 1, 64, 128, 32, 4, 2, 1),
        (8, 256, 1, 1, 28, 3, 1, 1),
    ];
    for (batch, groups, in_c, out_c, side, k, stride, pad) in cases {
        let out = (side + 2 * pad - k) / stride + 1;
        let conv = Conv {
            batch,
            groups,
            in_c,
            out_c,
            input: [1, side, side],
            kernel: [1, k, k],
            output: [1, out, out],
            stride: [1, stride, stride],
            pad: [0, pad, pad],
            dilate: [1; 3],
        };
        let outputs = batch * groups * out_c * conv.out_size();
        let work = 2.0 * (outputs * conv.depth()) as f64;
        let case = format!(
            "batch={batch} groups={groups} channels={in_c}x{out_c} side={side} kernel={k} \
             stride={stride}"
        );
        let passes =
            [("conv", Pass::Forward), ("conv_data", Pass::Data), ("conv_weight", Pass::Weight)];
        for (name, pass) in passes {
            bench.flops((name, &case, true), work, || convolution(conv, pass));
        }
    }
}

fn memory_bound(bench: &Bench) {
    for bytes in (0..10).map(|i| 1024usize << (2 * i)) {
        bench.bytes("copy", bytes, || element_wise::<1>(bytes / 8));
        bench.bytes("add", bytes, || element_wise::<2>(bytes / 12));
        let (rows, width) = if bytes < 1 << 16 { (1, bytes / 8) } else { (bytes >> 15, 4096) };
        bench.bytes("softmax", bytes, || {
            let softmax = Softmax { outer: rows, len: width, inner: 1, scale: 1.0f32, log: false };
            let (x, mut y) = (vec![1.0; rows * width], vec![0.0; rows * width]);
            // SAFETY: the arrays have these extents.
            move || unsafe { softmax.forward(x.as_ptr(), y.as_mut_ptr(), None) }
        });
    }
}

fn main() {
    let wanted = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1];
    while counts[counts.len() - 1] < most {
        counts.push((counts[counts.len() - 1] * 2).min(most));
    }
    let engines = counts.into_iter().map(|n| (n, ThreadedEngine::with_threads(n))).collect();
    let bench = Bench { engines, peaks: [peak::<f32>(), peak::<f64>()], wanted };
    println!("peak_gflops_per_thread f32={:.0} f64={:.0}", bench.peaks[0], bench.peaks[1]);
    products(&bench);
    convolutions(&bench);
    memory_bound(&bench);
}
