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
