//! Products of few rows beside plain sums, and every kernel of this machine.

use super::kernels::FewKernels;
use super::*;
use crate::fork_join::tests::in_team;
use crate::kernels::arch::Level;
use crate::kernels::naive;
use proptest::prelude::*;

/// Multiplies beside plain sums, on one thread and on several. `b` is stored in its layout with
/// `spare` elements between rows, `a` and `c` transposed or not.
fn check<T: Real, S: Stored<T>>(
    (m, n, k): (usize, usize, usize),
    (by_columns, ta, tc, add): (bool, bool, bool, bool),
    spare: usize,
    (store, load): (fn(f64) -> S, fn(S) -> f64),
    tolerance: f64,
) {
    let real = |x: f64| T::of(x).to_f64();
    let mut a: Vec<f64> = naive::noise(m * k, 1).into_iter().map(real).collect();
    let width = spare + if by_columns { k } else { n };
    let count = if by_columns { n } else { k };
    let mut stored: Vec<S> = naive::noise(width * count, 2).into_iter().map(store).collect();
    let mut b: Vec<f64> = stored.iter().map(|x| load(*x)).collect();
    let before: Vec<f64> = naive::noise(m * n, 3).into_iter().map(real).collect();
    let size = (m, n, k);
    let left = |at: *mut f64| Mat::rows(at, if ta { m } else { k }).t_if(ta);
    let mut want = before.clone();
    // SAFETY: the buffers have these extents.
    unsafe {
        let right = Mat::rows(b.as_mut_ptr(), width).t_if(by_columns);
        let to = Mat::rows(want.as_mut_ptr(), if tc { m } else { n }).t_if(tc);
        naive::gemm(size, left(a.as_mut_ptr()), right, to, add);
    }
    let mut a: Vec<T> = a.into_iter().map(T::of).collect();
    let left = Mat::rows(a.as_mut_ptr(), if ta { m } else { k }).t_if(ta);
    let right = Mat::rows(stored.as_mut_ptr(), width).t_if(by_columns);
    let run = |threads| {
        let mut got: Vec<T> = before.iter().map(|x| T::of(*x)).collect();
        let to = Mat::rows(got.as_mut_ptr(), if tc { m } else { n }).t_if(tc);
        // SAFETY: as above.
        unsafe { multiply(size, left, right, to, add, threads) };
        got
    };
    let got = run(Threads::One);
    assert!(in_team(|| run(Threads::Pool)) == got, "{size:?}");
    let got: Vec<f64> = got.into_iter().map(|x| x.to_f64()).collect();
    assert!(naive::close(&got, &want, tolerance), "{size:?} {by_columns} {ta} {tc} {add}");
}

fn check_all(size: (usize, usize, usize), how: (bool, bool, bool, bool), spare: usize) {
    check::<f64, f64>(size, how, spare, (|x| x, |x| x), 1e-12);
    check::<f32, f32>(size, how, spare, (|x| x as f32, f64::from), 1e-4);
    check::<f32, f16>(size, how, spare, (f16::from_f64, f16::to_f64), 1e-4);
}

proptest! {
    #[test]
    fn few_rows_match_naive(
        m in 0usize..10, n in 0usize..90, k in 0usize..90, spare in 0usize..3,
        how: (bool, bool, bool, bool),
    ) {
        check_all((m, n, k), how, spare);
    }
}

/// Sums in parts, in more than one run of terms, and in more than one chunk of columns.
#[test]
fn large_operands_match_naive() {
    for size in [(1, 300, 1100), (2, 20, 20_007), (1, 5000, 60), (8, 160, 2100), (1, 1, 300_001)] {
        for kind in 0..4 {
            check_all(size, (kind & 1 > 0, false, kind & 2 > 0, kind == 3), 0);
        }
    }
}

/// Every kernel that this machine can run.
#[test]
fn kernels_of_every_level_agree() {
    for found in [Level::Baseline, Level::Avx2, Level::Avx512] {
        if found <= level() {
            check_kernels::<f64, f64>(f64::few_kernels(found), |x| x, |x| x, 1e-13);
            check_kernels::<f32, f32>(f32::few_kernels(found), |x| x as f32, f64::from, 1e-5);
            check_kernels::<f32, f16>(f16::few_kernels(found), f16::from_f64, f16::to_f64, 1e-5);
        }
    }
}

/// Rows of 70 elements, of which the first `k` count.
fn check_kernels<T: Real, S: Stored<T>>(
    kernels: &FewKernels<T, S>,
    store: fn(f64) -> S,
    load: fn(S) -> f64,
    tolerance: f64,
) {
    const ROW: usize = 70;
    let of = |x: &f64| T::of(*x);
    let a: Vec<T> = naive::noise(TOGETHER * ROW, 1).iter().map(of).collect();
    let b: Vec<S> = naive::noise(WIDE * ROW, 2).into_iter().map(store).collect();
    let before: Vec<T> = naive::noise(TOGETHER * ROW, 3).iter().map(of).collect();
    let (wide_a, wide_b) = (|at: usize| a[at].to_f64(), |at: usize| load(b[at]));
    let near = |got: T, want: f64| assert!((got.to_f64() - want).abs() < tolerance, "{want}");
    for (m, k) in (1..=TOGETHER).flat_map(|m| [0, 1, 7, 16, 61].map(|k| (m, k))) {
        for (single, n) in [WIDE, 1].into_iter().enumerate() {
            let mut sums = [T::zero(); TOGETHER * WIDE];
            // SAFETY: the machine has the kernels' instructions, and the arrays hold these rows.
            unsafe {
                let run = kernels.dots[m - 1][single];
                run((a.as_ptr(), ROW), (b.as_ptr(), ROW), k, sums.as_mut_ptr());
            }
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let terms = (0..k).map(|p| wide_a(i * ROW + p) * wide_b(j * ROW + p));
                near(sums[i * WIDE + j], terms.sum());
            }
            for begin in [false, true] {
                let mut rows = before.clone();
                // SAFETY: as above.
                unsafe {
                    let run = kernels.sums[m - 1][single];
                    let to = (rows.as_mut_ptr(), ROW);
                    run((a.as_ptr(), ROW), (b.as_ptr(), ROW), to, k, begin);
                }
                for (at, x) in rows.iter().enumerate() {
                    let (i, j) = (at / ROW, at % ROW);
                    let sum: f64 = (0..n).map(|p| wide_a(i * ROW + p) * wide_b(p * ROW + j)).sum();
                    let start = if begin { 0.0 } else { before[at].to_f64() };
                    near(*x, if i < m && j < k { start + sum } else { before[at].to_f64() });
                }
            }
        }
    }
}

/// What is not read is not multiplied by zero: infinity beside the last column stays out.
#[test]
fn elements_beside_the_operands_do_not_count() {
    let mut a = [1.0f32; 20];
    let mut b = [f32::INFINITY; 20 * 24];
    let mut c = [0.0f32; 20];
    for (n, k, by_columns) in [(3, 17, true), (17, 3, false)] {
        b.fill(f32::INFINITY);
        let right = Mat::rows(b.as_mut_ptr(), 24).t_if(by_columns);
        for (p, j) in (0..k).flat_map(|p| (0..n).map(move |j| (p, j))) {
            // SAFETY: the element exists.
            unsafe { *right.at(p, j).ptr = 2.0 };
        }
        // SAFETY: the buffers have these extents.
        unsafe {
            let (left, to) = (Mat::rows(a.as_mut_ptr(), k), Mat::rows(c.as_mut_ptr(), n));
            multiply((1, n, k), left, right, to, false, Threads::One);
        }
        assert!(c[..n].iter().all(|x| *x == 2.0 * k as f32), "{c:?}");
    }
}
