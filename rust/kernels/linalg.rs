//! Factorisations and solutions of one matrix at a time, on row-major slices. Matrices of these
//! operators are small and come in batches, over which the callers split the work.
//!
//! Source of the algorithms: G. Golub, C. Van Loan, Matrix Computations, 4th edition.

use super::real::Real;

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
    let (order, _) = lu(a, n);
    if (0..n).any(|i| a[i * n + i] == T::zero() || a[i * n + i].is_nan()) {
        return None;
    }
    out.fill(T::zero());
    for (i, row) in order.into_iter().enumerate() {
        out[i * n + row] = T::one();
    }
    // L has ones on its diagonal, which is not stored.
    for i in 0..n {
        for k in 0..i {
            let factor = a[i * n + k];
            let (above, below) = out.split_at_mut(i * n);
            let (from, to) = (&above[k * n..(k + 1) * n], &mut below[..n]);
            to.iter_mut().zip(from).for_each(|(t, &f)| *t -= factor * f);
        }
    }
    solve(a, (n, Steps::row_major(n), false), out, (n, Steps::row_major(n)));
    Some(())
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
/// positive greatest element. Jacobi's method; `a` is overwritten.
pub fn eigen<T: Real>(a: &mut [T], n: usize, u: &mut [T], values: &mut [T]) {
    u.fill(T::zero());
    (0..n).for_each(|i| u[i * n + i] = T::one());
    for _ in 0..SWEEPS {
        let mut turned = false;
        for (p, q) in (0..n).flat_map(|p| (p + 1..n).map(move |q| (p, q))) {
            turned |= rotate(a, n, u, (p, q));
        }
        if !turned {
            break;
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    let key = |i: &usize| a[i * n + i];
    order.sort_by(|i, j| key(i).partial_cmp(&key(j)).unwrap_or(std::cmp::Ordering::Equal));
    let old = u.to_vec();
    for (to, from) in order.into_iter().enumerate() {
        values[to] = a[from * n + from];
        let row = &old[from * n..(from + 1) * n];
        let greatest = row.iter().fold(T::zero(), |g: T, &v| if v.abs() > g.abs() { v } else { g });
        let sign = if greatest < T::zero() { -T::one() } else { T::one() };
        u[to * n..(to + 1) * n].iter_mut().zip(row).for_each(|(t, &v)| *t = v * sign);
    }
}

/// Makes element `(p, q)` zero; false if it is negligible already.
fn rotate<T: Real>(a: &mut [T], n: usize, u: &mut [T], (p, q): (usize, usize)) -> bool {
    let (app, aqq, apq) = (a[p * n + p], a[q * n + q], a[p * n + q]);
    if apq.is_nan()
        || apq.abs() <= T::epsilon() * T::of(0.25) * (app * aqq).abs().sqrt()
        || apq == T::zero()
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
