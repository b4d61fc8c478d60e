//! Linear maps of planes that act on rows and columns separately: resizing, and pooling over a
//! grid.
//!
//! Each output row is a weighted sum of neighbouring input rows, and likewise each column.

use super::parallel::{Shared, parallel_for};
use super::real::Real;

/// An output element along one axis: the first input element, and the weights from there on.
pub type Taps<T> = Vec<(usize, Vec<T>)>;

/// Bilinear interpolation from `n` to `m` elements. With `align` the first and last elements of
/// both coincide, otherwise their borders do.
pub fn bilinear<T: Real>(n: usize, m: usize, align: bool) -> Taps<T> {
    let tap = |i: usize| {
        let at = if align {
            if m > 1 { i as f64 * (n as f64 - 1.0) / (m as f64 - 1.0) } else { 0.0 }
        } else {
            ((i as f64 + 0.5) * (n as f64 / m as f64) - 0.5).max(0.0)
        };
        let low = (at as usize).min(n.saturating_sub(1));
        let part = T::of(at - low as f64);
        if low + 1 < n { (low, vec![T::one() - part, part]) } else { (low, vec![T::one()]) }
    };
    (0..m).map(tap).collect()
}

/// Averages of `m` bins that cover `n` elements; neighbouring bins may share one.
pub fn averages<T: Real>(n: usize, m: usize) -> Taps<T> {
    let bin = |i: usize| {
        let (low, high) = (i * n / m, ((i + 1) * n).div_ceil(m));
        (low, vec![T::one() / T::of((high - low) as f64); high - low])
    };
    (0..m).map(bin).collect()
}

/// `to += factor * from`.
fn add_scaled<T: Real>(to: &mut [T], factor: T, from: &[T]) {
    for (t, &f) in to.iter_mut().zip(from) {
        *t += factor * f;
    }
}

/// Maps every plane of `x` (rows of `width` elements) by `rows` and `columns`.
pub fn apply<T: Real>(x: &[T], width: usize, rows: &Taps<T>, columns: &Taps<T>, y: &mut [T]) {
    let plane_out = rows.len() * columns.len();
    let planes = y.len() / plane_out.max(1);
    let plane_in = x.len().checked_div(planes).unwrap_or(0);
    let out = Shared(y.as_mut_ptr());
    parallel_for(planes, 1, |range| {
        let mut line = vec![T::zero(); width];
        for plane in range {
            let x = &x[plane * plane_in..(plane + 1) * plane_in];
            for (i, (first, weights)) in rows.iter().enumerate() {
                line.fill(T::zero());
                for (k, &w) in weights.iter().enumerate() {
                    add_scaled(&mut line, w, &x[(first + k) * width..(first + k + 1) * width]);
                }
                for (j, (first, weights)) in columns.iter().enumerate() {
                    let sum = weights.iter().zip(&line[*first..]).map(|(&w, &v)| w * v).sum();
                    // SAFETY: planes of the output belong to one task.
                    unsafe { *out.at(plane * plane_out + i * columns.len() + j) = sum };
                }
            }
        }
    });
}

/// The gradient of [`apply`]: `dx` from `dy`.
pub fn transposed<T: Real>(
    dy: &[T],
    width: usize,
    rows: &Taps<T>,
    columns: &Taps<T>,
    dx: &mut [T],
) {
    let plane_out = rows.len() * columns.len();
    let planes = dy.len() / plane_out.max(1);
    let plane_in = dx.len().checked_div(planes).unwrap_or(0);
    let out = Shared(dx.as_mut_ptr());
    parallel_for(planes, 1, |range| {
        let mut line = vec![T::zero(); width];
        for plane in range {
            // SAFETY: planes of the output belong to one task.
            let dx = unsafe { std::slice::from_raw_parts_mut(out.at(plane * plane_in), plane_in) };
            dx.fill(T::zero());
            for (i, (first, weights)) in rows.iter().enumerate() {
                line.fill(T::zero());
                let grads = &dy[plane * plane_out + i * columns.len()..][..columns.len()];
                for ((first, weights), &g) in columns.iter().zip(grads) {
                    add_scaled(&mut line[*first..first + weights.len()], g, weights);
                }
                for (k, &w) in weights.iter().enumerate() {
                    add_scaled(&mut dx[(first + k) * width..(first + k + 1) * width], w, &line);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_every_output_sum_to_one() {
        for (n, m) in [(3, 5), (5, 3), (1, 4), (4, 1), (7, 7)] {
            for taps in [bilinear(n, m, true), bilinear(n, m, false), averages::<f64>(n, m)] {
                assert_eq!(taps.len(), m);
                for (first, weights) in taps {
                    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                    assert!(first + weights.len() <= n);
                }
            }
        }
    }
}
