//! Softmax against its plain form, at lengths around the blocks, and where numbers are not finite.

use super::*;
use crate::kernels::naive;
use proptest::prelude::*;

/// `(y, dx)` of the kernels, or of both in place.
fn run<T: Real>(
    s: &Softmax<T>,
    x: &[T],
    dy: &[T],
    lengths: Option<&[usize]>,
    in_place: bool,
) -> (Vec<T>, Vec<T>) {
    let (mut y, mut dx) = (vec![T::of(7.0); x.len()], vec![T::of(7.0); x.len()]);
    if in_place {
        y.copy_from_slice(x);
        dx.copy_from_slice(dy);
    }
    let (from, dy) = if in_place { (y.as_ptr(), dx.as_ptr()) } else { (x.as_ptr(), dy.as_ptr()) };
    // SAFETY: all have as many elements; outputs are inputs or apart.
    unsafe {
        s.forward(from, y.as_mut_ptr(), lengths);
        s.backward(y.as_ptr(), dy, dx.as_mut_ptr(), lengths);
    }
    (y, dx)
}

fn matches_naive(s: Softmax<f64>, ragged: bool, in_place: bool, seed: u64) {
    let n = s.outer * s.len * s.inner;
    let (x, dy) = (naive::noise(n, seed), naive::noise(n, seed ^ 9));
    let lengths: Vec<usize> = (0..s.outer * s.inner).map(|i| i / 3 % (s.len + 2)).collect();
    let lengths = (ragged && s.len > 0).then_some(&lengths[..]);
    let (want_y, want_dx) = naive::softmax(&s, &x, &dy, lengths);
    let (y, dx) = run(&s, &x, &dy, lengths, in_place);
    assert!(naive::close(&y, &want_y, 1e-12));
    assert!(naive::close(&dx, &want_dx, 1e-12));
    let single = |v: &[f64]| v.iter().map(|&v| v as f32).collect::<Vec<_>>();
    let Softmax { outer, len, inner, scale, log } = s;
    let s = Softmax { outer, len, inner, scale: scale as f32, log };
    let (y, dx) = run(&s, &single(&x), &single(&dy), lengths, in_place);
    assert!(naive::close(&y, &single(&want_y), 4e-6));
    assert!(naive::close(&dx, &single(&want_dx), 2e-5));
}

proptest! {
    #[test]
    fn softmax_matches_naive(
        outer in 0usize..4, len in 0usize..9, inner in 0usize..150, scale in -2.0..2.0f64,
        log: bool, ragged: bool, in_place: bool, seed: u64,
    ) {
        matches_naive(Softmax { outer, len, inner, scale, log }, ragged, in_place, seed);
    }

    #[test]
    fn softmax_of_rows_matches_naive(
        outer in 0usize..40, len in 0usize..70, one: bool, scale in -2.0..2.0f64,
        log: bool, ragged: bool, in_place: bool, seed: u64,
    ) {
        let scale = if one { 1.0 } else { scale };
        matches_naive(Softmax { outer, len, inner: 1, scale, log }, ragged, in_place, seed);
    }
}

#[test]
fn softmax_of_long_axes_matches_naive() {
    for len in [1023, 1024, 1040, 2500, 5003] {
        for (outer, inner) in [(3, 1), (1, 70), (2, 1)] {
            for log in [false, true] {
                let s = Softmax { outer, len, inner, scale: 1.0, log };
                matches_naive(s, false, len % 2 == 0, len as u64);
            }
        }
    }
}

/// A row that holds NaN or infinity, or only -infinity, is all NaN; its neighbours are not touched.
#[test]
fn rows_that_are_not_finite_keep_to_themselves() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for len in [1, 3, 15, 16, 17, 40, 64] {
        for (inner, log, bad) in [(1, false, nan), (1, true, inf), (9, false, inf), (80, true, nan)]
        {
            let outer = 9;
            let mut x: Vec<f32> =
                naive::noise(outer * len * inner, 5).into_iter().map(|v| v as f32).collect();
            let s = Softmax { outer, len, inner, scale: 1.0, log };
            let (sound, _) = run(&s, &x, &x, None, false);
            let at = |i: usize| (4 * len + i) * inner + inner / 2;
            for i in [len - 1, 0] {
                x[at(i)] = bad;
                let (y, _) = run(&s, &x, &x, None, true);
                let broken: Vec<usize> = (0..len).map(at).collect();
                for (i, (y, sound)) in y.iter().zip(&sound).enumerate() {
                    let ok = if broken.contains(&i) { y.is_nan() } else { y == sound };
                    assert!(ok, "{len} {inner} {i}: {y}");
                }
            }
            (0..len).for_each(|i| x[at(i)] = -inf);
            let (y, _) = run(&s, &x, &x, None, false);
            assert!((0..len).all(|i| y[at(i)].is_nan()));
            // Elements that are -inf beside others have no share.
            x[at(0)] = 0.0;
            let (y, _) = run(&s, &x, &x, None, false);
            let none = if log { -inf } else { 0.0 };
            assert!((1..len).all(|i| y[at(i)] == none) && y[at(0)] == if log { 0.0 } else { 1.0 });
        }
    }
}
