//! Eigenvalues of general square matrices whose eigenvalues are real: the Schur form `A = Q T Q'`
//! with `T` upper triangular, and eigenvectors from it.
//!
//! Source: G. Golub, C. Van Loan, Matrix Computations, 4th edition, algorithms 7.4.2 (Hessenberg
//! form), 7.5.1 and 7.5.2 (implicit double shifts, by J. Francis).

/// Why there is no triangular form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Some eigenvalues are complex.
    Complex,
    /// An element is not finite, or the iteration does not converge.
    Diverges,
}

/// A row-major square matrix, and the product of the transformations so far.
struct Work<'a> {
    t: &'a mut [f64],
    q: &'a mut [f64],
    n: usize,
}

impl Work<'_> {
    fn at(&self, i: usize, j: usize) -> f64 {
        self.t[i * self.n + j]
    }

    /// The reflection that makes a multiple of the first axis of `x`, as `v` of `1 - v v'`, applied
    /// from both sides to the rows and columns from `first` on.
    fn reflect(&mut self, first: usize, x: &[f64]) {
        let norm = x.iter().fold(0.0f64, |norm, x| norm.hypot(*x));
        if norm == 0.0 || x[1..].iter().all(|x| *x == 0.0) {
            return;
        }
        let mut v = x.to_vec();
        v[0] += if x[0] < 0.0 { -norm } else { norm };
        let scale = v.iter().map(|v| v * v).sum::<f64>();
        v.iter_mut().for_each(|v| *v *= (2.0 / scale).sqrt());
        let n = self.n;
        for column in 0..n {
            let dot: f64 = v.iter().enumerate().map(|(i, v)| v * self.at(first + i, column)).sum();
            v.iter().enumerate().for_each(|(i, v)| self.t[(first + i) * n + column] -= v * dot);
        }
        for m in [&mut *self.t, &mut *self.q] {
            for row in m.chunks_exact_mut(n) {
                let part = &mut row[first..first + v.len()];
                let dot: f64 = v.iter().zip(&*part).map(|(v, x)| v * x).sum();
                part.iter_mut().zip(&v).for_each(|(x, v)| *x -= v * dot);
            }
        }
    }

    /// Makes the elements below the first subdiagonal 0.
    fn make_hessenberg(&mut self) {
        for k in 0..self.n.saturating_sub(2) {
            let x: Vec<f64> = (k + 1..self.n).map(|i| self.at(i, k)).collect();
            self.reflect(k + 1, &x);
            (k + 2..self.n).for_each(|i| self.t[i * self.n + k] = 0.0);
        }
    }

    /// The first row of the block that ends with row `last`: what is left of it below the diagonal
    /// counts as 0.
    fn start_of_block(&mut self, last: usize) -> usize {
        for i in (1..=last).rev() {
            let around = self.at(i - 1, i - 1).abs() + self.at(i, i).abs();
            if self.at(i, i - 1).abs() <= f64::EPSILON * around {
                self.t[i * self.n + i - 1] = 0.0;
                return i;
            }
        }
        0
    }

    /// One double step of the block of at least three rows; an unusual one does not repeat itself.
    fn step(&mut self, (low, high): (usize, usize), unusual: bool) {
        let (a, b) = (self.at(high - 1, high - 1), self.at(high, high));
        let (c, d) = (self.at(high - 1, high), self.at(high, high - 1));
        let (sum, product) = match unusual {
            false => (a + b, a * b - c * d),
            true => {
                let size = d.abs() + self.at(high - 1, high - 2).abs();
                (1.5 * size, size * size)
            }
        };
        let (first, below) = (self.at(low, low), self.at(low + 1, low));
        let mut x = vec![
            first * first + self.at(low, low + 1) * below - sum * first + product,
            below * (first + self.at(low + 1, low + 1) - sum),
            below * self.at(low + 2, low + 1),
        ];
        for k in low..high {
            self.reflect(k, &x);
            if k > low {
                (k + 1..=(k + 2).min(high)).for_each(|i| self.t[i * self.n + k - 1] = 0.0);
            }
            x = (k + 1..=(k + 3).min(high)).map(|i| self.at(i, k)).collect();
        }
    }

    /// Makes a block of two rows triangular.
    fn split(&mut self, low: usize) -> Result<(), Failure> {
        let (a, b) = (self.at(low, low), self.at(low, low + 1));
        let (c, d) = (self.at(low + 1, low), self.at(low + 1, low + 1));
        let half = 0.5 * (a - d);
        let square = half * half + b * c;
        if square < 0.0 {
            return Err(Failure::Complex);
        }
        // The eigenvector of d + z is (z, c).
        let z = half + if half < 0.0 { -square.sqrt() } else { square.sqrt() };
        let length = z.hypot(c);
        if length > 0.0 {
            self.turn(low, z / length, c / length);
        }
        self.t[(low + 1) * self.n + low] = 0.0;
        Ok(())
    }

    /// A turn of two axes by an angle with this cosine and sine.
    fn turn(&mut self, low: usize, cos: f64, sin: f64) {
        let n = self.n;
        for column in 0..n {
            let (x, y) = (self.at(low, column), self.at(low + 1, column));
            self.t[low * n + column] = cos * x + sin * y;
            self.t[(low + 1) * n + column] = cos * y - sin * x;
        }
        for m in [&mut *self.t, &mut *self.q] {
            for row in m.chunks_exact_mut(n) {
                let (x, y) = (row[low], row[low + 1]);
                (row[low], row[low + 1]) = (cos * x + sin * y, cos * y - sin * x);
            }
        }
    }
}

/// Steps for an eigenvalue before it is given up.
const STEPS: usize = 60;

/// Makes `t` triangular, and `q` the orthogonal matrix that does it.
fn schur(t: &mut [f64], q: &mut [f64], n: usize) -> Result<(), Failure> {
    if t.iter().any(|x| !x.is_finite()) {
        return Err(Failure::Diverges);
    }
    q.fill(0.0);
    (0..n).for_each(|i| q[i * n + i] = 1.0);
    let mut work = Work { t, q, n };
    work.make_hessenberg();
    let (mut left, mut steps) = (n, 0);
    while left > 1 {
        let last = left - 1;
        let low = work.start_of_block(last);
        match last - low {
            0 => (left, steps) = (last, 0),
            1 => {
                work.split(low)?;
                (left, steps) = (low, 0);
            }
            _ if steps == STEPS => return Err(Failure::Diverges),
            _ => {
                steps += 1;
                work.step((low, last), steps.is_multiple_of(10));
            }
        }
    }
    Ok(())
}

/// The eigenvalues of `a`, and as the columns of `vectors` the eigenvectors, of length 1, each with
/// a positive greatest element. `a` is overwritten.
pub fn eigen_general(
    a: &mut [f64],
    n: usize,
    values: &mut [f64],
    vectors: &mut [f64],
) -> Result<(), Failure> {
    let mut q = vec![0.0; n * n];
    schur(a, &mut q, n)?;
    let most = a.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let least = (f64::EPSILON * most).max(f64::MIN_POSITIVE);
    let mut y = vec![0.0; n];
    for k in 0..n {
        let value = a[k * n + k];
        values[k] = value;
        // (T - value) y = 0 from below, with y[k] = 1; equal values are held apart.
        y.fill(0.0);
        y[k] = 1.0;
        for i in (0..k).rev() {
            let sum: f64 = (i + 1..=k).map(|j| a[i * n + j] * y[j]).sum();
            let gap = value - a[i * n + i];
            y[i] = sum / if gap.abs() < least { least } else { gap };
        }
        let column: Vec<f64> =
            q.chunks_exact(n).map(|row| row.iter().zip(&y).map(|(q, y)| q * y).sum()).collect();
        let greatest = column.iter().fold(0.0f64, |g, x| if x.abs() > g.abs() { *x } else { g });
        // Divided by the greatest first, or squares of it overflow.
        let norm = column.iter().map(|x| (x / greatest).powi(2)).sum::<f64>().sqrt();
        (0..n).for_each(|i| vectors[i * n + k] = column[i] / greatest / norm);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn times(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
        let one = |at: usize| (0..n).map(|k| a[at / n * n + k] * b[k * n + at % n]).sum();
        (0..n * n).map(one).collect()
    }

    proptest! {
        /// `A V = V diag(w)` for matrices made of eigenvalues and a triangular transformation.
        #[test]
        fn vectors_are_stretched(n in 1usize..7, seed in vec(-1.0..1.0f64, 49)) {
            let part = |i: usize, j: usize| match i.cmp(&j) {
                std::cmp::Ordering::Greater => 0.0,
                std::cmp::Ordering::Equal => i as f64 - 2.0,
                std::cmp::Ordering::Less => seed[i * 7 + j],
            };
            let triangle: Vec<f64> = (0..n * n).map(|at| part(at / n, at % n)).collect();
            let (mut a, mut q) = (triangle, vec![0.0; n * n]);
            (0..n).for_each(|i| q[i * n + i] = 1.0);
            let mut work = Work { t: &mut a, q: &mut q, n };
            work.reflect(0, &seed[..n]);
            let given = a.clone();
            let (mut w, mut v) = (vec![0.0; n], vec![0.0; n * n]);
            prop_assert_eq!(eigen_general(&mut a, n, &mut w, &mut v), Ok(()));
            let left = times(&given, &v, n);
            for (at, left) in left.iter().enumerate() {
                prop_assert!((left - v[at] * w[at % n]).abs() < 1e-8, "{w:?}");
            }
            w.sort_by(f64::total_cmp);
            for (i, w) in w.iter().enumerate() {
                prop_assert!((w - (i as f64 - 2.0)).abs() < 1e-7);
            }
        }
    }

    #[test]
    fn complex_values_are_told() {
        let mut turn = [0.0, 1.0, -1.0, 0.0];
        let found = eigen_general(&mut turn, 2, &mut [0.0; 2], &mut [0.0; 4]);
        assert_eq!(found, Err(Failure::Complex));
        let mut broken = [f64::NAN];
        let found = eigen_general(&mut broken, 1, &mut [0.0], &mut [0.0]);
        assert_eq!(found, Err(Failure::Diverges));
    }
}
