//! The reductions against loops in float64.

use super::*;
use crate::dtype::DType;
use crate::ops::testing::Tensor;
use crate::shape::Shape;
use proptest::prelude::*;

fn naive(how: Reduction, x: &[f64], dims: &[i64], reduced: &[bool]) -> Vec<f64> {
    let kept: usize = dims.iter().zip(reduced).filter(|d| !d.1).map(|d| *d.0 as usize).product();
    let mut groups = vec![Vec::new(); kept];
    for (i, &v) in x.iter().enumerate() {
        let (mut rest, mut at, mut scale) = (i, 0, 1);
        for k in (0..dims.len()).rev() {
            let index = rest % dims[k] as usize;
            rest /= dims[k] as usize;
            if !reduced[k] {
                at += index * scale;
                scale *= dims[k] as usize;
            }
        }
        groups[at].push(v);
    }
    let one = |g: &Vec<f64>| match how {
        Reduction::Sum => g.iter().sum(),
        Reduction::Mean => g.iter().sum::<f64>() / g.len() as f64,
        Reduction::Product => g.iter().product(),
        Reduction::Max => g.iter().cloned().fold(f64::NEG_INFINITY, f64::max),
        Reduction::Min => g.iter().cloned().fold(f64::INFINITY, f64::min),
        Reduction::Norm2 => g.iter().map(|x| x * x).sum::<f64>().sqrt(),
        _ => g.iter().map(|x| x.abs()).sum(),
    };
    groups.iter().map(one).collect()
}

proptest! {
    #[test]
    fn reduce_matches_naive(dims in prop::collection::vec(0i64..5, 1..5), mask in 0u32..32, seed in 0u64..99) {
        let x = Tensor::noise(&dims, seed);
        let reduced: Vec<bool> = (0..dims.len()).map(|i| mask >> i & 1 == 1).collect();
        let kept: Shape = dims.iter().zip(&reduced).filter(|d| !d.1).map(|d| *d.0).collect();
        for how in [Reduction::Sum, Reduction::Mean, Reduction::Product, Reduction::Max, Reduction::Min,
                    Reduction::Norm1, Reduction::Norm2] {
            for dtype in [DType::F64, DType::F32] {
                let out = Tensor::zeros(&kept, dtype);
                reduce(how, &x.cast(dtype).view(), &reduced, &out.view());
                for (got, want) in out.values().iter().zip(naive(how, &x.values(), &dims, &reduced)) {
                    let close = (got - want).abs() < 1e-5 || *got == want || (got.is_nan() && want.is_nan());
                    prop_assert!(close, "{how:?} {dtype} {got} {want}");
                }
            }
        }
    }
}

#[test]
fn long_rows_and_columns() {
    let x = Tensor::noise(&[70, 3000], 5);
    for reduced in [[true, false], [false, true]] {
        let kept = if reduced[0] { 3000 } else { 70 };
        let out = Tensor::zeros(&Shape::new(&[kept]), DType::F64);
        reduce(Reduction::Sum, &x.view(), &reduced, &out.view());
        let want = naive(Reduction::Sum, &x.values(), &[70, 3000], &reduced);
        assert!(out.values().iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-9));
    }
}

#[test]
fn means_of_integers_do_not_wrap() {
    let cases = [(DType::U8, 200.), (DType::I8, -100.), (DType::I32, 2e9)];
    for (dtype, value) in cases {
        for (dims, reduced) in
            [([1000, 1], [true, true]), ([3, 90], [true, false]), ([2, 90], [false, true])]
        {
            let shape = Shape::new(&dims);
            let x = Tensor::new(&dims, dtype, &vec![value; shape.size()]);
            let kept: Shape = dims.iter().zip(reduced).filter(|d| !d.1).map(|d| *d.0).collect();
            let out = Tensor::zeros(&kept, dtype);
            reduce(Reduction::Mean, &x.view(), &reduced, &out.view());
            assert!(out.values().iter().all(|&v| v == value), "{dtype} {:?}", out.values());
        }
    }
}

/// Additions that an element passes through at most, as the module's documentation states it.
fn depth(n: usize) -> f64 {
    96.0 + (n as f64).log2()
}

/// The sums of float32 over all axes of a shape, against float64 and the stated bound.
fn check_bound(dims: &[i64], reduced: &[bool], value: impl Fn(usize) -> f32) {
    let shape = Shape::new(dims);
    let values: Vec<f64> = (0..shape.size()).map(|i| f64::from(value(i))).collect();
    let x = Tensor::new(dims, DType::F32, &values);
    let kept: Shape = dims.iter().zip(reduced).filter(|d| !d.1).map(|d| *d.0).collect();
    let out = Tensor::zeros(&kept, DType::F32);
    reduce(Reduction::Sum, &x.view(), reduced, &out.view());
    let magnitudes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
    let wants = naive(Reduction::Sum, &values, dims, reduced);
    let sizes = naive(Reduction::Sum, &magnitudes, dims, reduced);
    let bound = depth(shape.size() / kept.size()) * f64::from(f32::EPSILON) / 2.0;
    for ((got, want), size) in out.values().iter().zip(wants).zip(sizes) {
        assert!((got - want).abs() <= bound * size, "{dims:?} {reduced:?}: {got}, {want}");
    }
}

#[test]
fn sums_keep_the_stated_bound() {
    let (y, n) = (true, false);
    for (dims, reduced) in [
        (&[1_000_000][..], &[y][..]),
        (&[1_000_000, 2], &[y, n]),
        (&[300_001, 3], &[y, n]),
        (&[2, 500_000], &[n, y]),
        (&[3, 100_000, 2], &[n, y, n]),
        (&[100_000, 2, 3], &[y, n, y]),
        (&[700, 2, 701, 2], &[y, n, y, n]),
        (&[2000, 1500], &[y, n]),
        (&[40_000, 3, 5], &[y, n, n]),
        (&[30_000, 2, 3, 5], &[y, n, y, n]),
    ] {
        check_bound(dims, reduced, |_| 0.1);
        check_bound(dims, reduced, |i| (i as f32 * 0.7).sin());
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let x = Tensor::noise(&[1_200_000], 3).cast(DType::F32);
    for (dims, reduced) in [
        (&[1_200_000][..], &[true][..]),
        (&[400_000, 3], &[true, false]),
        (&[3000, 4, 100], &[true, false, true]),
        (&[1200, 1000], &[true, false]),
    ] {
        let view = x.view().reshaped(Shape::new(dims));
        let kept: Shape = dims.iter().zip(reduced).filter(|d| !d.1).map(|d| *d.0).collect();
        let run = || {
            let out = Tensor::zeros(&kept, DType::F32);
            reduce(Reduction::Sum, &view, reduced, &out.view());
            out.values()
        };
        let alone = run();
        for threads in [2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(run), alone);
        }
    }
}

#[test]
fn norms_overflow_only_where_their_result_does() {
    for (dtype, big, small) in [(DType::F32, 1e38, 1e-44), (DType::F64, 1e307, 1e-320)] {
        let values = [big, big, small, 0.0, 0.0, 0.0, 3.0, 4.0, f64::NAN, 1.0, f64::INFINITY, 0.0];
        let x = Tensor::new(&[6, 2], dtype, &values);
        let out = Tensor::zeros(&Shape::new(&[6]), dtype);
        reduce(Reduction::Norm2, &x.view(), &[false, true], &out.view());
        let (got, exact) = (out.values(), x.values());
        assert!((got[0] / (exact[0] * std::f64::consts::SQRT_2) - 1.0).abs() < 1e-6, "{got:?}");
        assert_eq!(&got[1..4], [exact[2], 0.0, 5.0]);
        assert!(got[4].is_nan() && got[5] == f64::INFINITY);
    }
}

#[test]
fn arrays_are_added_as_accurately_as_elements() {
    let x = Tensor::new(&[3000], DType::F32, &[0.1; 3000]);
    let mut inputs = vec![x.view().as_ptr::<f32>().cast_const(); 10_000];
    let out = x.clone();
    inputs[77] = out.view().as_ptr();
    // SAFETY: all arrays have 3000 elements; the output is one of them.
    unsafe { add_arrays(&inputs, out.view().as_ptr::<f32>(), 3000) };
    let want = f64::from(0.1f32) * 10_000.0;
    assert!(out.values().iter().all(|v| (v - want).abs() <= depth(10_000) * 6e-8 * want));
}

#[test]
fn extremes_are_nan_where_an_element_is() {
    let nan = f64::NAN;
    for dtype in [DType::F32, DType::F64, DType::F16] {
        for (dims, reduced) in [([7, 90], [false, true]), ([90, 70], [true, false])] {
            let mut values = Tensor::noise(&dims, 8).values();
            let (rows, kept) = (dims[0] as usize, if reduced[0] { dims[1] } else { dims[0] });
            let width = values.len() / rows;
            for at in 0..values.len() {
                if at * 7 % 31 == 0 {
                    values[at] = if at % 2 == 0 { nan } else { f64::INFINITY };
                }
            }
            let x = Tensor::new(&dims, dtype, &values);
            for how in [Reduction::Max, Reduction::Min] {
                let out = Tensor::zeros(&Shape::new(&[kept]), dtype);
                reduce(how, &x.view(), &reduced, &out.view());
                let exact = x.values();
                for (k, got) in out.values().into_iter().enumerate() {
                    let of_k: Vec<f64> = (0..exact.len())
                        .filter(|i| k == if reduced[0] { i % width } else { i / width })
                        .map(|i| exact[i])
                        .collect();
                    let all = of_k.iter().cloned();
                    let want = match how {
                        _ if of_k.iter().any(|v| v.is_nan()) => nan,
                        Reduction::Max => all.fold(f64::NEG_INFINITY, f64::max),
                        _ => all.fold(f64::INFINITY, f64::min),
                    };
                    assert!(got == want || (got.is_nan() && want.is_nan()), "{how:?} {k}: {got}");
                }
            }
        }
    }
}

/// Positions of the extremes of all rows, by the kernel.
fn found(x: &Tensor, extents: (usize, usize, usize), greatest: bool) -> Vec<usize> {
    let all = std::sync::Mutex::new(vec![usize::MAX; extents.0 * extents.2]);
    let put = |row: usize, at: usize| all.lock().unwrap()[row] = at;
    // SAFETY: the array has these extents.
    with_dtype!(x.view().dtype(), T => unsafe {
        positions(x.view().as_ptr::<T>(), extents, greatest, put);
    });
    all.into_inner().unwrap()
}

fn check_positions(extents: (usize, usize, usize), dtype: DType, nans: bool, seed: u64) {
    let (outer, n, step) = extents;
    let size = outer * n * step;
    // Few values, so that some are equal.
    let mut values: Vec<f64> =
        Tensor::noise(&[size as i64], seed).values().iter().map(|v| (v * 40.0).trunc()).collect();
    if nans {
        values.iter_mut().step_by(n * 3 / 2 + 1).for_each(|v| *v = f64::NAN);
    }
    let x = Tensor::new(&[size as i64], dtype, &values);
    let exact = x.values();
    for greatest in [true, false] {
        let got = found(&x, extents, greatest);
        for (row, got) in got.into_iter().enumerate() {
            let value = |i: usize| exact[(row / step * n + i) * step + row % step];
            let better = |v: f64, best: f64| {
                (if greatest { v > best } else { v < best }) || (v.is_nan() && !best.is_nan())
            };
            let want =
                (1..n).fold(0, |best, i| if better(value(i), value(best)) { i } else { best });
            assert_eq!(got, want, "{extents:?} {dtype} {greatest} row {row}");
        }
    }
}

proptest! {
    #[test]
    fn positions_match_naive(
        outer in 1usize..5, n in 1usize..200, step in 1usize..40, one: bool, nans: bool, seed: u64,
    ) {
        let step = if one { 1 } else { step };
        for dtype in [DType::F32, DType::F64, DType::F16, DType::I32, DType::I8] {
            let nans = nans && dtype.is_float();
            check_positions((outer, n, step), dtype, nans, seed);
        }
    }
}

#[test]
fn positions_in_long_axes_match_naive() {
    for (at, extents) in [
        (1, 300_000, 1),
        (3, 70_001, 1),
        (40, 4096, 1),
        (40, 4097, 1),
        (1, 5000, 300),
        (2, 100_000, 3),
        (1, 300_000, 9),
    ]
    .into_iter()
    .enumerate()
    {
        check_positions(extents, DType::F32, at % 2 == 0, at as u64);
    }
}
