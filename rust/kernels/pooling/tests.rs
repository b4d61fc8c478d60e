//! Row by row, and in registers, against window by window.

use super::registers::Pooled;
use super::*;
use crate::kernels::arch::Level;
use crate::kernels::naive::{close, noise};
use proptest::prelude::*;

/// The output and the gradient of a pooling, window by window.
fn by_windows(pool: &Pool, x: &[f64], dy: &[f64]) -> [Vec<f64>; 2] {
    let (mut y, mut dx) = (vec![9.0; dy.len()], vec![9.0; x.len()]);
    for plane in 0..pool.planes {
        let (i, o) = (plane * pool.in_size(), plane * pool.out_size());
        // SAFETY: the buffers have these planes.
        unsafe {
            let (x, dy) = (x.as_ptr().add(i), dy.as_ptr().add(o));
            pool.forward_plane(x, y.as_mut_ptr().add(o));
            pool.backward_plane(x, y.as_ptr().add(o), dy, dx.as_mut_ptr().add(i));
        }
    }
    [y, dx]
}

fn run(pool: &Pool, x: &[f64], dy: &[f64]) -> [Vec<f64>; 2] {
    let (mut y, mut dx) = (vec![9.0; dy.len()], vec![9.0; x.len()]);
    // SAFETY: the buffers have the extents of the pooling.
    unsafe {
        pool.forward(x.as_ptr(), y.as_mut_ptr());
        pool.backward(x.as_ptr(), y.as_ptr(), dy.as_ptr(), dx.as_mut_ptr());
    }
    [y, dx]
}

fn kinds() -> impl Strategy<Value = PoolKind> {
    prop_oneof![
        Just(PoolKind::Max),
        Just(PoolKind::Sum),
        Just(PoolKind::Average { with_pad: true }),
        Just(PoolKind::Average { with_pad: false }),
    ]
}

/// The outputs of a plane by every function in registers that this machine has for the pooling.
fn in_registers<T: Real + Pooled>(pool: &Pool, x: &[T]) -> Vec<Vec<T>> {
    let levels = [Level::Baseline, Level::Avx2, Level::Avx512].into_iter();
    levels
        .filter(|&of| of <= level())
        .flat_map(|of| pool.in_registers::<T>(of))
        .map(|run| {
            let mut y = vec![T::of(9.0); pool.out_size()];
            // SAFETY: the machine has the level, and the buffers the extents of a plane.
            pool.with_widths(|widths| unsafe { run(pool, x.as_ptr(), y.as_mut_ptr(), widths) });
            y
        })
        .collect()
}

/// Whether the functions in registers agree with one another to the bit, and with plain windows.
fn registers_match<T: Real + Pooled>(pool: &Pool, x: &[f64], tolerance: f64) -> bool {
    let x: Vec<T> = x.iter().map(|&v| T::of(v)).collect();
    let mut want = vec![T::of(9.0); pool.out_size()];
    // SAFETY: the buffers hold a plane.
    unsafe { pool.forward_plane(x.as_ptr(), want.as_mut_ptr()) };
    let all = in_registers(pool, &x);
    let is_first = |y: &Vec<T>| y.iter().zip(&all[0]).all(|(a, b)| a == b);
    all.iter().all(|y| is_first(y) && close(y, &want, tolerance))
}

/// The extents of outputs, where windows may reach beyond the padding (`full`) or not, with the
/// padding below the windows' own extents; `None` if there is no window.
fn with_outputs(mut pool: Pool, full: [usize; 3]) -> Option<Pool> {
    for a in 0..3 {
        pool.pad[a] = pool.pad[a].min(pool.kernel[a] - 1);
        let room = (pool.input[a] + 2 * pool.pad[a]).checked_sub(pool.kernel[a])?;
        pool.output[a] = (room + full[a] * (pool.stride[a] - 1)) / pool.stride[a] + 1;
    }
    Some(pool)
}

/// Values of few levels, so that maxima are equal; some are not finite if `odd` is not 0.
fn levelled(len: usize, levels: usize, odd: usize, seed: u64) -> Vec<f64> {
    let strange = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY];
    let value = |(i, v): (usize, f64)| match i * 7 % 11 < 4 * odd {
        true => strange[i % odd],
        false => (v * levels as f64).round(),
    };
    noise(len, seed).into_iter().enumerate().map(value).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn registers_match_windows(
        kind in kinds(),
        input in [1usize..4, 1usize..7, 1usize..90],
        kernel in [1usize..3, 1usize..4, 1usize..6],
        stride in [1usize..3, 1usize..3, 1usize..3],
        pad in [0usize..2, 0usize..3, 0usize..5],
        full in [0usize..2, 0usize..2, 0usize..2],
        levels in 2usize..9, odd in 0usize..4, seed: u64,
    ) {
        let pool = Pool { kind, planes: 1, input, kernel, output: [0; 3], stride, pad };
        let pool = with_outputs(pool, full);
        prop_assume!(pool.is_some());
        let pool = pool.expect("it has windows");
        let odd = if kind == PoolKind::Max { odd } else { 0 };
        let x = levelled(pool.in_size(), levels, odd, seed);
        prop_assert!(registers_match::<f32>(&pool, &x, 1e-5), "{pool:?}");
        prop_assert!(registers_match::<f64>(&pool, &x, 1e-12), "{pool:?}");
    }

    #[test]
    fn rows_match_windows(
        kind in kinds(), planes in 1usize..3,
        input in [1usize..4, 1usize..9, 4usize..50],
        kernel in [1usize..3, 1usize..4, 1usize..8],
        stride in [1usize..3, 1usize..4, 1usize..4],
        pad in [0usize..2, 0usize..3, 0usize..4],
        full in [0usize..2, 0usize..2, 0usize..2],
        levels in 2usize..9, odd in 0usize..3, seed: u64,
    ) {
        let pool = Pool { kind, planes, input, kernel, output: [0; 3], stride, pad };
        let pool = with_outputs(pool, full);
        prop_assume!(pool.is_some());
        let pool = pool.expect("it has windows");
        let odd = if kind == PoolKind::Max { odd } else { 0 };
        let x = levelled(planes * pool.in_size(), levels, odd, seed);
        let dy = noise(planes * pool.out_size(), seed ^ 1);
        let (got, want) = (run(&pool, &x, &dy), by_windows(&pool, &x, &dy));
        prop_assert!(close(&got[0], &want[0], 1e-12), "{pool:?}");
        prop_assert!(close(&got[1], &want[1], 1e-12), "{pool:?}");
    }
}

/// A window of which no element is a number gives its gradient to the first, any other to its first
/// maximum.
#[test]
fn what_is_no_number_is_no_maximum() {
    let pool = Pool {
        kind: PoolKind::Max,
        planes: 1,
        input: [1, 1, 20],
        kernel: [1, 1, 2],
        output: [1, 1, 10],
        stride: [1, 1, 2],
        pad: [0; 3],
    };
    let mut x = vec![f64::NAN; 20];
    (x[3], x[4], x[6], x[7]) = (2.0, 1.0, f64::NEG_INFINITY, f64::NEG_INFINITY);
    let [y, dx] = run(&pool, &x, &(1..=10).map(f64::from).collect::<Vec<_>>());
    let least = f64::NEG_INFINITY;
    assert_eq!(y[..5], [least, 2.0, 1.0, least, least]);
    assert_eq!(dx[..10], [1.0, 0.0, 0.0, 2.0, 3.0, 0.0, 4.0, 0.0, 5.0, 0.0]);
}

#[test]
fn threads_do_not_change_the_bits() {
    for kind in [PoolKind::Max, PoolKind::Average { with_pad: true }] {
        let pool = Pool {
            kind,
            planes: 70,
            input: [1, 30, 41],
            kernel: [1, 3, 3],
            output: [1, 15, 21],
            stride: [1, 2, 2],
            pad: [0, 1, 1],
        };
        let x = noise(pool.planes * pool.in_size(), 1);
        let dy = noise(pool.planes * pool.out_size(), 2);
        let alone = run(&pool, &x, &dy);
        assert_eq!(crate::fork_join::tests::in_team(|| run(&pool, &x, &dy)), alone);
    }
}

/// Windows that span parts of rows, whole rows, whole slices and the whole plane, which are added
/// in stretches.
#[test]
fn large_windows_are_sums_of_their_elements() {
    let input = [3, 11, 13];
    for kernel in [[3, 11, 13], [2, 11, 13], [2, 8, 13], [1, 9, 13], [3, 10, 7], [2, 7, 12]] {
        let output = std::array::from_fn(|a| input[a] - kernel[a] + 1);
        let (stride, pad) = ([1; 3], [0; 3]);
        let pool = Pool { kind: PoolKind::Sum, planes: 2, input, kernel, output, stride, pad };
        let x = noise(pool.planes * pool.in_size(), 3);
        let [y, _] = run(&pool, &x, &noise(pool.planes * pool.out_size(), 4));
        for (i, y) in y.iter().enumerate() {
            let (plane, at) = (i / pool.out_size(), i % pool.out_size());
            let [_, height, width] = output;
            let first = [at / width / height, at / width % height, at % width];
            let mut sum = 0.0;
            for (k, x) in x[plane * pool.in_size()..].iter().enumerate().take(pool.in_size()) {
                let place = [k / 13 / 11, k / 13 % 11, k % 13];
                if (0..3).all(|a| (first[a]..first[a] + kernel[a]).contains(&place[a])) {
                    sum += x;
                }
            }
            assert!((y - sum).abs() < 1e-12, "{pool:?}: {y}, expected {sum}");
        }
    }
}
