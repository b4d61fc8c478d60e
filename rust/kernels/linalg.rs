//! Factorisations and solutions of one matrix at a time, on row-major slices. Matrices of these
//! operators are small and come in batches, which `ops::linalg` splits between threads.
//!
//! Source of the algorithms: G. Golub, C. Van Loan, Matrix Computations, 4th edition.

use super::real::Real;
use crate::dtype::Element;

/// A triangular matrix or the right-hand sides of a system, as steps between elements.
#[derive(Clone, Copy)]
pub struct Steps {
    pub row: usize,
    pub column: usize,
}

impl Steps {
    pub fn row_major(columns: usize) -> Self {
        Steps { row: columns, column: 1 }
    }

    pub fn turned_if(self, yes: bool) -> Self {
        if yes { Steps { row: self.column, column: self.row } } else { self }
    }

    fn at(self, i: usize, j: usize) -> usize {
        i * self.row + j * self.column
    }
}

/// `A = L L'` in place: the lower triangle of `a` becomes `L`, the upper one 0. Returns the first
/// row whose pivot is not positive.
pub fn cholesky<T: Real>(a: &mut [T], n: usize) -> Result<(), usize> {
    for j in 0..n {
        for i in j..n {
            let dot: T = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - dot;
            if i == j {
                if rest.is_nan() || rest <= T::zero() {
                    return Err(j);
                }
                a[j * n + j] = rest.sqrt();
            } else {
                a[i * n + j] = rest / a[j * n + j];
            }
        }
        a[j * n + j + 1..(j + 1) * n].fill(T::zero());
    }
    Ok(())
}

/// Solves `A X = B` in place of `B`, for a triangular `A` of `n` rows and `B` of `m` columns.
pub fn solve<T: Real>(
    a: &[T],
    (n, sa, lower): (usize, Steps, bool),
    b: &mut [T],
    (m, sb): (usize, Steps),
) {
    for step in 0..n {
        let i = if lower { step } else { n - 1 - step };
        let known = if lower { 0..i } else { i + 1..n };
        let pivot = a[sa.at(i, i)];
        for j in 0..m {
            let dot: T = known.clone().map(|k| a[sa.at(i, k)] * b[sb.at(k, j)]).sum();
            b[sb.at(i, j)] = (b[sb.at(i, j)] - dot) / pivot;
        }
    }
}

/// Multiplies `B` from the left by a triangular matrix, in place.
pub fn multiply<T: Real>(
    a: &[T],
    (n, sa, lower): (usize, Steps, bool),
    b: &mut [T],
    (m, sb): (usize, Steps),
) {
    for step in 0..n {
        // Rows that later ones need are changed last.
        let i = if lower { n - 1 - step } else { step };
        let used = if lower { 0..i + 1 } else { i..n };
        for j in 0..m {
            b[sb.at(i, j)] = used.clone().map(|k| a[sa.at(i, k)] * b[sb.at(k, j)]).sum();
        }
    }
}

/// `P A = L U` in place; returns the rows in their new order and the sign of the permutation. A
/// singular matrix has a pivot of 0.
pub fn lu<T: Real>(a: &mut [T], n: usize) -> (Vec<usize>, T) {
    let mut order: Vec<usize> = (0..n).collect();
    let mut sign = T::one();
    for k in 0..n {
        let larger = |best: usize, i: usize| {
            if a[i * n + k].abs() > a[best * n + k].abs() { i } else { best }
        };
        let pivot = (k + 1..n).fold(k, larger);
        if pivot != k {
            (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
            order.swap(k, pivot);
            sign = -sign;
        }
        if a[k * n + k] == T::zero() {
            continue;
        }
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            a[i * n + k] = factor;
            let (above, below) = a.split_at_mut(i * n);
            let (pivot_row, row) = (&above[k * n + k + 1..(k + 1) * n], &mut below[k + 1..n]);
            row.iter_mut().zip(pivot_row).for_each(|(r, &p)| *r -= factor * p);
        }
    }
    (order, sign)
}

/// The inverse of `a`, which is overwritten by its factors; `None` if it is singular.
pub fn inverse<T: Real>(a: &mut [T], n: usize, out: &mut [T]) -> Option<()> {
    out.fill(T::zero());
    (0..n).for_each(|i| out[i * n + i] = T::one());
    solve_any(a, n, out, n)
}

/// Solves `A X = B` in place of `B`, which has `m` columns; `a` is overwritten by its factors.
/// `None` if it is singular.
pub fn solve_any<T: Real>(a: &mut [T], n: usize, b: &mut [T], m: usize) -> Option<()> {
    let (order, _) = lu(a, n);
    if (0..n).any(|i| a[i * n + i] == T::zero() || a[i * n + i].is_nan()) {
        return None;
    }
    let given = b.to_vec();
    for (i, row) in order.into_iter().enumerate() {
        b[i * m..(i + 1) * m].copy_from_slice(&given[row * m..(row + 1) * m]);
    }
    // L has ones on its diagonal, which is not stored.
    for i in 0..n {
        for k in 0..i {
            let factor = a[i * n + k];
            let (above, below) = b.split_at_mut(i * m);
            let (from, to) = (&above[k * m..(k + 1) * m], &mut below[..m]);
            to.iter_mut().zip(from).for_each(|(t, &f)| *t -= factor * f);
        }
    }
    solve(a, (n, Steps::row_major(n), false), b, (m, Steps::row_major(m)));
    Some(())
}

fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// `A = U diag(s) V` for `m <= n`, `s` falling: `a` becomes `V`, whose rows are orthonormal, each
/// with a positive greatest element. One-sided Jacobi rotations of the rows (M. Hestenes, 1958).
pub fn svd<T: Real>(a: &mut [T], (m, n): (usize, usize), u: &mut [T], s: &mut [T]) {
    // What the rounding of a sum of n products leaves of 0.
    let small = T::epsilon() * T::of((n.max(1) as f64).sqrt());
    let mut turns = vec![T::zero(); m * m];
    (0..m).for_each(|i| turns[i * m + i] = T::one());
    for _ in 0..SWEEPS {
        let mut turned = false;
        for (p, q) in (0..m).flat_map(|p| (p + 1..m).map(move |q| (p, q))) {
            let (x, y) = (&a[p * n..(p + 1) * n], &a[q * n..(q + 1) * n]);
            let (alpha, beta, gamma) = (dot(x, x), dot(y, y), dot(x, y));
            if gamma.abs() <= small * (alpha * beta).sqrt() || gamma == T::zero() {
                continue;
            }
            turned = true;
            let zeta = (beta - alpha) / (gamma + gamma);
            let t = zeta.signum() / (zeta.abs() + (T::one() + zeta * zeta).sqrt());
            let c = T::one() / (T::one() + t * t).sqrt();
            for (rows, width) in [(&mut *a, n), (&mut turns[..], m)] {
                for j in 0..width {
                    let (x, y) = (rows[p * width + j], rows[q * width + j]);
                    rows[p * width + j] = c * (x - t * y);
                    rows[q * width + j] = c * (y + t * x);
                }
            }
        }
        if !turned {
            break;
        }
    }
    let norms: Vec<T> = a.chunks(n.max(1)).take(m).map(|row| dot(row, row).sqrt()).collect();
    let mut order: Vec<usize> = (0..m).collect();
    let size = |i: &usize| Element::to_f64(norms[*i]);
    order.sort_by(|i, j| size(j).total_cmp(&size(i)));
    let (old, most) = (a.to_vec(), norms.iter().fold(T::zero(), |most: T, x| most.max(*x)));
    for (to, &from) in order.iter().enumerate() {
        s[to] = norms[from];
        let (above, row) = a.split_at_mut(to * n);
        let row = &mut row[..n];
        row.copy_from_slice(&old[from * n..(from + 1) * n]);
        if norms[from] > small * most {
            row.iter_mut().for_each(|x| *x /= norms[from]);
        } else {
            complete_rows(above, row);
        }
        let greatest = row.iter().fold(T::zero(), |g: T, &v| if v.abs() > g.abs() { v } else { g });
        let sign = if greatest < T::zero() { -T::one() } else { T::one() };
        row.iter_mut().for_each(|x| *x *= sign);
        (0..m).for_each(|i| u[i * m + to] = sign * turns[from * m + i]);
    }
}

/// Makes `row` a unit vector that is orthogonal to the rows of `above`: what is left of the axis
/// that they cover least.
fn complete_rows<T: Real>(above: &[T], row: &mut [T]) {
    let n = row.len();
    let covered = |i: usize| above.iter().skip(i).step_by(n).map(|&x| x * x).sum::<T>();
    let least = (1..n).fold(0, |best, i| if covered(i) < covered(best) { i } else { best });
    row.fill(T::zero());
    row[least] = T::one();
    for _ in 0..2 {
        for other in above.chunks_exact(n) {
            let part = dot(other, row);
            row.iter_mut().zip(other).for_each(|(x, &o)| *x -= part * o);
        }
    }
    let norm = dot(row, row).sqrt();
    row.iter_mut().for_each(|x| *x /= norm);
}

/// `A = L Q` for `m <= n`, by Householder reflections: `a` becomes `Q`, `l` the triangle.
pub fn lq<T: Real>(a: &mut [T], (m, n): (usize, usize), l: &mut [T]) {
    let mut scales = vec![T::zero(); m];
    for k in 0..m {
        let (row, rest) = a[k * n..].split_at_mut(n);
        let norm = row[k..].iter().map(|&v| v * v).sum::<T>().sqrt();
        let alpha = row[k];
        let beta = if alpha > T::zero() { -norm } else { norm };
        l[k * m..(k + 1) * m].fill(T::zero());
        if norm == T::zero() || (n - k == 1) {
            // Nothing to reflect: the row is this element already.
            l[k * m + k] = alpha;
            row[k] = T::one();
            continue;
        }
        scales[k] = (beta - alpha) / beta;
        row[k + 1..].iter_mut().for_each(|v| *v /= alpha - beta);
        row[k] = T::one();
        for other in rest.chunks_exact_mut(n).take(m - k - 1) {
            reflect(&row[k..], scales[k], &mut other[k..]);
        }
        l[k * m + k] = beta;
    }
    for k in 0..m {
        // What remains left of the diagonal after the reflections is L.
        for j in 0..k {
            l[k * m + j] = a[k * n + j];
        }
    }
    for k in (0..m).rev() {
        let (row, rest) = a[k * n..].split_at_mut(n);
        for other in rest.chunks_exact_mut(n).take(m - k - 1) {
            other[k] = T::zero();
            reflect(&row[k..], scales[k], &mut other[k..]);
        }
        let scale = scales[k];
        row[..k].fill(T::zero());
        row[k + 1..].iter_mut().for_each(|v| *v = -scale * *v);
        row[k] = T::one() - scale;
    }
}

/// `x -= scale * v * (v . x)`.
fn reflect<T: Real>(v: &[T], scale: T, x: &mut [T]) {
    let dot: T = v.iter().zip(&*x).map(|(&a, &b)| a * b).sum();
    x.iter_mut().zip(v).for_each(|(x, &v)| *x -= scale * dot * v);
}

/// Limit on the sweeps of Jacobi's method, which converges within ten.
const SWEEPS: usize = 60;

/// Eigenvalues of a symmetric matrix, rising, and its eigenvectors as the rows of `u`, each with a
/// positive greatest element. Jacobi's method; `a` is overwritten. A matrix that is not finite has
/// no eigenvalues: all numbers are NaN.
pub fn eigen<T: Real>(a: &mut [T], n: usize, u: &mut [T], values: &mut [T]) {
    if !a.iter().all(|x| x.is_finite()) {
        u.fill(T::nan());
        return values.fill(T::nan());
    }
    u.fill(T::zero());
    (0..n).for_each(|i| u[i * n + i] = T::one());
    let least = rounding(a, n);
    for _ in 0..SWEEPS {
        if !sweep(a, n, u, least) {
            break;
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    let key = |i: &usize| Element::to_f64(a[i * n + i]);
    order.sort_by(|i, j| key(i).total_cmp(&key(j)));
    let old = u.to_vec();
    for (to, from) in order.into_iter().enumerate() {
        values[to] = a[from * n + from];
        let row = &old[from * n..(from + 1) * n];
        let greatest = row.iter().fold(T::zero(), |g: T, &v| if v.abs() > g.abs() { v } else { g });
        let sign = if greatest < T::zero() { -T::one() } else { T::one() };
        u[to * n..(to + 1) * n].iter_mut().zip(row).for_each(|(t, &v)| *t = v * sign);
    }
}

/// Makes the elements zero one after the other; false if all are negligible already.
fn sweep<T: Real>(a: &mut [T], n: usize, u: &mut [T], least: T) -> bool {
    let mut turned = false;
    for (p, q) in (0..n).flat_map(|p| (p + 1..n).map(move |q| (p, q))) {
        turned |= rotate((&mut *a, n, &mut *u), (p, q), least);
    }
    turned
}

/// What rounding may leave of an element that is 0, as in rows of an eigenvalue of 0: together such
/// elements are epsilon times the norm of the matrix. 0 for a matrix that is not finite.
fn rounding<T: Real>(a: &[T], n: usize) -> T {
    let squares: f64 = a.iter().map(|x| Element::to_f64(*x).powi(2)).sum();
    let least = Element::to_f64(T::epsilon()) * squares.sqrt() / n as f64;
    if least.is_finite() { T::of(least) } else { T::zero() }
}

/// Makes element `(p, q)` zero; false if it is negligible already, beside its row and column or
/// beside the whole.
fn rotate<T: Real>(
    (a, n, u): (&mut [T], usize, &mut [T]),
    (p, q): (usize, usize),
    least: T,
) -> bool {
    let (app, aqq, apq) = (a[p * n + p], a[q * n + q], a[p * n + q]);
    if apq.is_nan()
        || apq.abs() <= T::epsilon() * T::of(0.25) * app.abs().sqrt() * aqq.abs().sqrt()
        || apq.abs() <= least
    {
        return false;
    }
    let theta = (aqq - app) / (apq + apq);
    let t = theta.signum() / (theta.abs() + (theta * theta + T::one()).sqrt());
    let c = T::one() / (t * t + T::one()).sqrt();
    let s = t * c;
    for k in 0..n {
        let (x, y) = (a[k * n + p], a[k * n + q]);
        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
    }
    for m in [a, u] {
        for k in 0..n {
            let (x, y) = (m[p * n + k], m[q * n + k]);
            m[p * n + k] = c * x - s * y;
            m[q * n + k] = s * x + c * y;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symmetric matrices of `n` rows, with what they are.
    fn matrices<T: Real>(n: usize) -> Vec<(&'static str, Vec<T>)> {
        let number = |i: usize, j: usize| ((i * 7 + j * 13 + i * j) % 17) as f64 / 17.0 - 0.3;
        let of_rank = |rank: usize| {
            let dot = |i: usize, j: usize| (0..rank).map(|k| number(i, k) * number(j, k)).sum();
            square(n, dot)
        };
        vec![
            (
                "definite",
                square(n, |i, j| number(i, j) + number(j, i) + if i == j { 20.0 } else { 0.0 }),
            ),
            ("indefinite", square(n, |i, j| number(i, j) + number(j, i))),
            ("of half the rank", of_rank(n / 2)),
            ("of rank 1", of_rank(1)),
            (
                "of two halves",
                square(n, |i, j| {
                    if (i < n / 2) == (j < n / 2) { 0.0 } else { number(i, j) + number(j, i) }
                }),
            ),
            ("of large numbers", square(n, |i, j| 1e30 * (number(i, j) + number(j, i)))),
            ("zero", square(n, |_, _| 0.0)),
        ]
    }

    fn square<T: Real>(n: usize, f: impl Fn(usize, usize) -> f64) -> Vec<T> {
        (0..n * n).map(|at| T::of(f(at / n, at % n))).collect()
    }

    fn few_sweeps<T: Real>() {
        for n in [1, 2, 9, 24] {
            for (what, mut a) in matrices::<T>(n) {
                let mut u = square(n, |i, j| f64::from(u8::from(i == j)));
                let least = rounding(&a, n);
                let sweeps = (0..SWEEPS).take_while(|_| sweep(&mut a, n, &mut u, least)).count();
                assert!(sweeps <= 10, "{sweeps} sweeps of a matrix {what}, {n} rows");
            }
        }
    }

    #[test]
    fn matrices_with_eigenvalues_of_zero_converge_within_ten_sweeps() {
        few_sweeps::<f32>();
        few_sweeps::<f64>();
    }

    #[test]
    fn a_matrix_that_is_not_finite_has_no_negligible_elements() {
        assert_eq!(rounding(&[1.0f32, f32::INFINITY, f32::INFINITY, 1.0], 2), 0.0);
        assert_eq!(rounding(&[f64::NAN; 4], 2), 0.0);
        assert_eq!(rounding(&[1e200f64; 4], 2), 0.0);
        assert!(rounding(&[1e30f32; 4], 2) > 0.0);
    }
}
