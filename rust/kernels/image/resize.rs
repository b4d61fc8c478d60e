//! Changing the size of images: separable interpolation, in OpenCV's conventions.
//!
//! The centre of pixel `i` is at `i + 1/2`; coordinates are scaled by the ratio of the extents.
//! Beyond the border its pixels are repeated. Cubic interpolation has a = -0.75, Lanczos' eight
//! taps. `Area` averages what a smaller pixel covers, and is a narrower linear interpolation where
//! the image grows. 8-bit images are calculated in fixed point with 11 bits, except areas: their
//! means are rounded to even where they lie between two values, but upwards where an image of 1, 3
//! or 4 channels is halved. Sums of four rows are rounded in single precision.
//!
//! Source: OpenCV 3.4, Geometric Image Transformations (`resize`, `InterpolationFlags`).

use super::Extent;
use crate::error::{Error, Result};
use crate::half_precision::{f32_to_half, half_to_f32};
use crate::kernels::parallel::{Shared, parallel_for};
use half::f16;
use std::f64::consts::PI;

/// How pixels between the given ones are calculated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    Nearest,
    Linear,
    Cubic,
    Area,
    Lanczos,
}

impl Interpolation {
    pub const ALL: [Self; 5] =
        [Self::Nearest, Self::Linear, Self::Cubic, Self::Area, Self::Lanczos];

    /// The interpolation of OpenCV's number.
    pub fn from_number(number: i64) -> Result<Self> {
        let known = usize::try_from(number).ok().and_then(|i| Self::ALL.get(i));
        known.copied().ok_or_else(|| {
            let expected = "0 (nearest), 1 (linear), 2 (cubic), 3 (area) or 4 (Lanczos)";
            Error::argument("interp", "value", number, expected)
        })
    }
}

/// For every place along an axis, the samples that it is calculated from and their weights.
struct Taps {
    /// Samples a place.
    count: usize,
    from: Vec<usize>,
    weight: Vec<f64>,
}

impl Taps {
    fn new(old: usize, new: usize, how: Interpolation, shrinks: bool) -> Self {
        // Rounded twice as OpenCV does it, which decides where places meet the edges of samples.
        let inverse = new as f64 / old as f64;
        let scale = 1.0 / inverse;
        match how {
            Interpolation::Nearest => Self::nearest(old, new, scale),
            Interpolation::Area if shrinks => Self::area(old, new, scale),
            _ => Self::filter(old, new, (scale, inverse), how),
        }
    }

    fn nearest(old: usize, new: usize, scale: f64) -> Self {
        let from = (0..new).map(|i| ((i as f64 * scale) as usize).min(old - 1)).collect();
        Taps { count: 1, from, weight: vec![1.0; new] }
    }

    fn filter(old: usize, new: usize, (scale, inverse): (f64, f64), how: Interpolation) -> Self {
        let count = match how {
            Interpolation::Cubic => 4,
            Interpolation::Lanczos => 8,
            _ => 2,
        };
        let mut taps = Taps { count, from: Vec::new(), weight: Vec::new() };
        for i in 0..new {
            let (first, fraction) = if how == Interpolation::Area {
                let first = (i as f64 * scale).floor();
                let part = (i + 1) as f64 - (first + 1.0) * inverse;
                (first, if part <= 0.0 { 0.0 } else { part - part.floor() })
            } else {
                let at = (i as f64 + 0.5) * scale - 0.5;
                // OpenCV keeps positions in single precision.
                let at = f64::from(at as f32);
                (at.floor(), at - at.floor())
            };
            let start = first as i64 - (count as i64 / 2 - 1);
            taps.from.extend((start..).take(count).map(|k| k.clamp(0, old as i64 - 1) as usize));
            match how {
                Interpolation::Cubic => taps.weight.extend(cubic(fraction)),
                Interpolation::Lanczos => taps.weight.extend(lanczos(fraction)),
                _ => taps.weight.extend([1.0 - fraction, fraction]),
            }
        }
        taps
    }

    /// The weights of the old samples in each new one, which covers at least one of them.
    fn area(old: usize, new: usize, scale: f64) -> Self {
        let count = scale.ceil() as usize + 1;
        let mut taps = Taps { count, from: Vec::new(), weight: Vec::new() };
        for i in 0..new {
            let (low, high) = (i as f64 * scale, ((i + 1) as f64 * scale).min(old as f64));
            let first = (low.floor() as usize).min(old - 1);
            for k in first..first + count {
                let share = (high.min((k + 1) as f64) - low.max(k as f64)).max(0.0);
                taps.from.push(k.min(old - 1));
                taps.weight.push(if k < old { share / (high - low) } else { 0.0 });
            }
        }
        taps
    }
}

fn cubic(x: f64) -> [f64; 4] {
    const A: f64 = -0.75;
    let outer = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let inner = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let [a, b, c] = [outer(x + 1.0), inner(x), inner(1.0 - x)];
    [a, b, c, 1.0 - a - b - c]
}

fn lanczos(x: f64) -> [f64; 8] {
    let sinc = |t: f64| if t.abs() < 1e-6 { 1.0 } else { (PI * t).sin() / (PI * t) };
    let raw: [f64; 8] = std::array::from_fn(|i| {
        let t = x + 3.0 - i as f64;
        sinc(t) * sinc(t / 4.0)
    });
    let sum: f64 = raw.iter().sum();
    raw.map(|w| w / sum)
}

/// How samples of type `T` are weighted and summed.
trait Arithmetic<T> {
    type Sum: Copy + Default + Send + Sync;
    fn weight(w: f64) -> Self::Sum;
    /// `sum + weight * sample`.
    fn add(sum: Self::Sum, weight: Self::Sum, sample: T) -> Self::Sum;
    /// The weighted sum of rows.
    fn combine(rows: &[&[Self::Sum]], weights: &[Self::Sum], out: &mut [T]);
}

/// 11 bits after the point.
struct Fixed;

impl Arithmetic<u8> for Fixed {
    type Sum = i32;

    fn weight(w: f64) -> i32 {
        (w * 2048.0).round_ties_even() as i32
    }

    #[inline(always)]
    fn add(sum: i32, weight: i32, sample: u8) -> i32 {
        sum + weight * i32::from(sample)
    }

    fn combine(rows: &[&[i32]], weights: &[i32], out: &mut [u8]) {
        if let ([a, b], [v, w]) = (rows, weights) {
            // As OpenCV, which keeps 16 bits here, and so truncates twice.
            for ((out, a), b) in out.iter_mut().zip(*a).zip(*b) {
                let sum = ((v * (a >> 4)) >> 16) + ((w * (b >> 4)) >> 16);
                *out = ((sum + 2) >> 2).clamp(0, 255) as u8;
            }
            return;
        }
        let singles = if let ([a, b, c, d], &[s, t, v, w]) = (rows, weights) {
            // As OpenCV's vector code, which takes eight samples at a time in single precision.
            let [s, t, v, w] = [s, t, v, w].map(|w| w as f32 * (1.0 / (2048.0 * 2048.0)));
            let whole = out.len() / 8 * 8;
            for (i, out) in out[..whole].iter_mut().enumerate() {
                let [a, b, c, d] = [a[i], b[i], c[i], d[i]].map(|x| x as f32);
                *out = (a * s + b * t + c * v + d * w).round_ties_even() as u8;
            }
            whole
        } else {
            0
        };
        for (i, out) in out.iter_mut().enumerate().skip(singles) {
            let products = rows.iter().zip(weights).map(|(r, w)| i64::from(r[i]) * i64::from(*w));
            *out = ((products.sum::<i64>() + (1 << 21)) >> 22).clamp(0, 255) as u8;
        }
    }
}

/// Floating point, whatever the samples are.
struct Floating;

macro_rules! floating {
    ($($t:ty, $sum:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Arithmetic<$t> for Floating {
            type Sum = $sum;

            fn weight(w: f64) -> $sum {
                w as $sum
            }

            #[inline(always)]
            fn add(sum: $sum, weight: $sum, sample: $t) -> $sum {
                sum + weight * $widen(sample)
            }

            fn combine(rows: &[&[$sum]], weights: &[$sum], out: &mut [$t]) {
                for (i, out) in out.iter_mut().enumerate() {
                    let mut sum = 0.0;
                    for (row, w) in rows.iter().zip(weights) {
                        sum += w * row[i];
                    }
                    *out = $narrow(sum);
                }
            }
        }
    )*};
}

floating! {
    u8, f32, f32::from, |x: f32| x.round_ties_even() as u8;
    f16, f32, half_to_f32, f32_to_half;
    f32, f32, |x: f32| x, |x: f32| x;
    f64, f64, |x: f64| x, |x: f64| x;
}

/// An element type of images that can be resized.
pub trait Sample: Copy + Send + Sync + 'static {
    #[doc(hidden)]
    fn resize_into(from: Extent, old: &[Self], to: Extent, new: &mut [Self], how: Interpolation);
}

impl Sample for u8 {
    fn resize_into(from: Extent, old: &[u8], to: Extent, new: &mut [u8], how: Interpolation) {
        let area = how == Interpolation::Area && shrinks(from, to);
        if area && is_half(from, to) && matches!(from.channels, 1 | 3 | 4) {
            halve(from, old, to, new);
        } else if area {
            separable::<u8, Floating>(from, old, to, new, how);
        } else {
            separable::<u8, Fixed>(from, old, to, new, how);
        }
    }
}

macro_rules! float_samples {
    ($($t:ty)*) => {$(
        impl Sample for $t {
            fn resize_into(
                from: Extent, old: &[$t], to: Extent, new: &mut [$t], how: Interpolation,
            ) {
                separable::<$t, Floating>(from, old, to, new, how);
            }
        }
    )*};
}

float_samples! { f16 f32 f64 }

fn shrinks(from: Extent, to: Extent) -> bool {
    from.height >= to.height && from.width >= to.width
}

fn is_half(from: Extent, to: Extent) -> bool {
    (from.height, from.width) == (2 * to.height, 2 * to.width)
}

/// The means of two by two samples.
fn halve(from: Extent, old: &[u8], to: Extent, new: &mut [u8]) {
    let c = from.channels;
    let out = Shared(new.as_mut_ptr());
    parallel_for(to.height, rows_a_task(to), |range| {
        for y in range {
            let (above, below) = old[2 * y * from.row()..][..2 * from.row()].split_at(from.row());
            // SAFETY: rows of the output belong to one task each.
            let out = unsafe { std::slice::from_raw_parts_mut(out.at(y * to.row()), to.row()) };
            let pairs = above.chunks_exact(2 * c).zip(below.chunks_exact(2 * c));
            for (out, (above, below)) in out.chunks_exact_mut(c).zip(pairs) {
                for (i, out) in out.iter_mut().enumerate() {
                    let four = [above[i], above[i + c], below[i], below[i + c]];
                    *out = ((four.map(u16::from).iter().sum::<u16>() + 2) / 4) as u8;
                }
            }
        }
    });
}

/// Fills `new` of extent `to` with the image `old` of extent `from`; neither is empty, and both
/// have as many channels.
pub fn resize<T: Sample>(from: Extent, old: &[T], to: Extent, new: &mut [T], how: Interpolation) {
    debug_assert_eq!((old.len(), new.len()), (from.size(), to.size()));
    if from == to {
        new.copy_from_slice(old);
    } else if how == Interpolation::Nearest {
        nearest(from, old, to, new);
    } else if how == Interpolation::Linear && is_half(from, to) {
        T::resize_into(from, old, to, new, Interpolation::Area);
    } else {
        T::resize_into(from, old, to, new, how);
    }
}

fn nearest<T: Copy + Send + Sync>(from: Extent, old: &[T], to: Extent, new: &mut [T]) {
    let rows = Taps::new(from.height, to.height, Interpolation::Nearest, false).from;
    let columns = Taps::new(from.width, to.width, Interpolation::Nearest, false).from;
    let c = from.channels;
    let out = Shared(new.as_mut_ptr());
    parallel_for(to.height, rows_a_task(to), |range| {
        for y in range {
            let row = &old[rows[y] * from.row()..][..from.row()];
            // SAFETY: rows of the output belong to one task each.
            let out = unsafe { std::slice::from_raw_parts_mut(out.at(y * to.row()), to.row()) };
            for (pixel, &x) in out.chunks_exact_mut(c).zip(&columns) {
                pixel.copy_from_slice(&row[x * c..][..c]);
            }
        }
    });
}

/// Rows of the output per task; the source rows that neighbouring tasks share are calculated twice.
fn rows_a_task(to: Extent) -> usize {
    (1usize << 16).div_ceil(to.row().max(1)).max(16)
}

fn separable<T, A>(from: Extent, old: &[T], to: Extent, new: &mut [T], how: Interpolation)
where
    T: Copy + Send + Sync,
    A: Arithmetic<T>,
{
    let shrinks = shrinks(from, to);
    let rows = Taps::new(from.height, to.height, how, shrinks);
    let columns = Taps::new(from.width, to.width, how, shrinks);
    let [down, across]: [Vec<A::Sum>; 2] =
        [&rows, &columns].map(|t| t.weight.iter().map(|w| A::weight(*w)).collect());
    let out = Shared(new.as_mut_ptr());
    parallel_for(to.height, rows_a_task(to), |range| {
        let k = rows.count;
        // The rows of a place are neighbours, so each has a slot of its own among `k`.
        let mut held = vec![usize::MAX; k];
        let mut buffer = vec![A::Sum::default(); k * to.row()];
        for y in range {
            let needed = &rows.from[y * k..][..k];
            for &row in needed {
                if std::mem::replace(&mut held[row % k], row) != row {
                    let wide = &mut buffer[row % k * to.row()..][..to.row()];
                    let old = &old[row * from.row()..][..from.row()];
                    across_row::<T, A>(old, &columns, &across, from.channels, wide);
                }
            }
            let parts: smallvec::SmallVec<[&[A::Sum]; 8]> =
                needed.iter().map(|row| &buffer[row % k * to.row()..][..to.row()]).collect();
            // SAFETY: rows of the output belong to one task each.
            let out = unsafe { std::slice::from_raw_parts_mut(out.at(y * to.row()), to.row()) };
            A::combine(&parts, &down[y * k..][..k], out);
        }
    });
}

/// The weighted sums along one row.
fn across_row<T: Copy, A: Arithmetic<T>>(
    old: &[T],
    taps: &Taps,
    weights: &[A::Sum],
    channels: usize,
    out: &mut [A::Sum],
) {
    match (channels, taps.count) {
        (1, 2) => fixed_pixels::<T, A, 1, 2>(old, taps, weights, out),
        (3, 2) => fixed_pixels::<T, A, 3, 2>(old, taps, weights, out),
        (3, 4) => fixed_pixels::<T, A, 3, 4>(old, taps, weights, out),
        (3, 8) => fixed_pixels::<T, A, 3, 8>(old, taps, weights, out),
        (c, k) => {
            let places = taps.from.chunks_exact(k).zip(weights.chunks_exact(k));
            for (out, (from, weights)) in out.chunks_exact_mut(c).zip(places) {
                for (i, out) in out.iter_mut().enumerate() {
                    let zero = A::Sum::default();
                    let terms = from.iter().zip(weights);
                    *out = terms.fold(zero, |sum, (f, w)| A::add(sum, *w, old[f * c + i]));
                }
            }
        }
    }
}

/// As [`across_row`], with numbers known at compile time.
fn fixed_pixels<T: Copy, A: Arithmetic<T>, const C: usize, const K: usize>(
    old: &[T],
    taps: &Taps,
    weights: &[A::Sum],
    out: &mut [A::Sum],
) {
    let places = taps.from.chunks_exact(K).zip(weights.chunks_exact(K));
    for (out, (from, weights)) in out.chunks_exact_mut(C).zip(places) {
        let mut sums = [A::Sum::default(); C];
        for k in 0..K {
            let pixel = &old[from[k] * C..][..C];
            for c in 0..C {
                sums[c] = A::add(sums[c], weights[k], pixel[c]);
            }
        }
        out.copy_from_slice(&sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(height: usize, width: usize, channels: usize) -> Extent {
        Extent { height, width, channels }
    }

    /// A pixel of the resized image by its definition, without separation or tables.
    fn naive(from: Extent, old: &[f64], to: Extent, how: Interpolation, place: [usize; 3]) -> f64 {
        let [y, x, c] = place;
        let shrinks = shrinks(from, to);
        let ty = Taps::new(from.height, to.height, how, shrinks);
        let tx = Taps::new(from.width, to.width, how, shrinks);
        let mut sum = 0.0;
        for j in 0..ty.count {
            for i in 0..tx.count {
                let (row, column) = (ty.from[y * ty.count + j], tx.from[x * tx.count + i]);
                let weight = ty.weight[y * ty.count + j] * tx.weight[x * tx.count + i];
                sum += weight * old[(row * from.width + column) * from.channels + c];
            }
        }
        sum
    }

    #[test]
    fn edges_of_samples_are_rounded_as_in_opencv() {
        // Place 84 of 224 over 72 samples begins at sample 27 exactly, but for rounding.
        for how in [Interpolation::Nearest, Interpolation::Area] {
            let taps = Taps::new(72, 224, how, false);
            assert_eq!((taps.from[84 * taps.count], taps.weight[84 * taps.count]), (26, 1.0));
        }
        assert_eq!(Taps::new(120, 44, Interpolation::Nearest, true).from[11], 30);
    }

    proptest! {
        #[test]
        fn resize_matches_naive(
            (h, w, nh, nw) in (1usize..20, 1usize..20, 1usize..20, 1usize..20),
            c in 1usize..5, how in 0usize..5, seed in 0u64..1000,
        ) {
            let how = Interpolation::ALL[how];
            let (from, to) = (extent(h, w, c), extent(nh, nw, c));
            let words = |i: usize| crate::kernels::philox::philox(seed, 0, i as u64)[0];
            let old: Vec<u8> = (0..from.size()).map(|i| words(i) as u8).collect();
            let wide: Vec<f64> = old.iter().map(|x| f64::from(*x)).collect();
            let (mut new, mut exact) = (vec![0; to.size()], vec![0.0; to.size()]);
            resize(from, &old, to, &mut new, how);
            resize(from, &wide, to, &mut exact, how);
            let halved = how == Interpolation::Linear && (h, w) == (2 * nh, 2 * nw);
            let how = if halved { Interpolation::Area } else { how };
            for i in 0..to.size() {
                let place = [i / to.row(), i / c % nw, i % c];
                let want = naive(from, &wide, to, how, place);
                prop_assert!((exact[i] - want).abs() < 1e-9);
                let near = f64::from(new[i]) - want.clamp(0.0, 255.0);
                prop_assert!(near.abs() < 1.6, "{} {want} at {place:?}", new[i]);
            }
        }

        #[test]
        fn halves_are_rounded_to_nearest(
            (h, w, c) in (1usize..9, 1usize..9, 1usize..6), linear in any::<bool>(), seed in 0u64..1000,
        ) {
            let (from, to) = (extent(2 * h, 2 * w, c), extent(h, w, c));
            let words = |i: usize| crate::kernels::philox::philox(seed, 0, i as u64)[0];
            let old: Vec<u8> = (0..from.size()).map(|i| words(i) as u8).collect();
            let mut new = vec![0; to.size()];
            let how = if linear { Interpolation::Linear } else { Interpolation::Area };
            resize(from, &old, to, &mut new, how);
            for (i, got) in new.iter().enumerate() {
                let (y, x, k) = (i / to.row(), i / c % w, i % c);
                let at = |dy, dx| f64::from(old[((2 * y + dy) * 2 * w + 2 * x + dx) * c + k]);
                let mean = (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) / 4.0;
                let up = matches!(c, 1 | 3 | 4);
                let want = if up { (mean + 0.5).floor() } else { mean.round_ties_even() };
                prop_assert_eq!(f64::from(*got), want);
            }
        }

        #[test]
        fn weights_sum_to_one(old in 1usize..40, new in 1usize..40, how in 0usize..5) {
            let taps = Taps::new(old, new, Interpolation::ALL[how], old >= new);
            for weights in taps.weight.chunks(taps.count) {
                prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-6);
            }
            prop_assert!(taps.from.iter().all(|f| *f < old));
        }
    }

    #[test]
    fn unknown_interpolations_are_refused() {
        assert!(Interpolation::from_number(4).is_ok());
        for number in [-1, 5, 9, 10] {
            let text = Interpolation::from_number(number).unwrap_err().to_string();
            assert!(text.contains("interp") && text.contains(&number.to_string()), "{text}");
        }
    }
}
