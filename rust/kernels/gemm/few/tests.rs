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
    let (a, b) = (naive::noise(4 * 70, 1), naive::noise(WIDE * 70, 2));
    let plain = |i: usize, j: usize, k: usize| -> f64 {
        (0..k).map(|p| a[i * 70 + p] * b[j * 70 + p]).sum()
    };
    for found in [Level::Baseline, Level::Avx2, Level::Avx512] {
        if found > level() {
            continue;
        }
        let kernels = f64::few_kernels(found);
        for (m, k) in (1..=TOGETHER).flat_map(|m| [0, 1, 7, 16, 61].map(|k| (m, k))) {
            let mut sums = [0.0; TOGETHER * WIDE];
            // SAFETY: the machine has the level, and the arrays hold these rows.
            unsafe {
                let (a, b) = ((a.as_ptr(), 70), (b.as_ptr(), 70));
                kernels.dots[m - 1][0](a, b, k, sums.as_mut_ptr());
            }
            for (i, j) in (0..m).flat_map(|i| (0..WIDE).map(move |j| (i, j))) {
                assert!((sums[i * WIDE + j] - plain(i, j, k)).abs() < 1e-13, "{found:?}");
            }
            let mut rows = naive::noise(4 * 70, 3);
            let before = rows.clone();
            // SAFETY: as above.
            unsafe {
                let (a, b) = ((a.as_ptr(), 70), (b.as_ptr(), 70));
                kernels.sums[m - 1][0](a, b, (rows.as_mut_ptr(), 70), k, false);
            }
            for (at, x) in rows.iter().enumerate() {
                let (i, j) = (at / 70, at % 70);
                let sum: f64 = (0..WIDE).map(|p| a[i * 70 + p] * b[p * 70 + j]).sum();
                let want = if i < m && j < k { before[at] + sum } else { before[at] };
                assert!((x - want).abs() < 1e-13, "{found:?}");
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
