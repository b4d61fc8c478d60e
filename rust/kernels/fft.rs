//! The discrete Fourier transform of any length: mixed radices, and Bluestein's algorithm for
//! lengths with a large prime factor (L. Bluestein, A linear filtering approach to the computation
//! of discrete Fourier transform, 1970).

use std::f64::consts::PI;

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex {
    pub re: f64,
    pub im: f64,
}

impl Complex {
    fn add(self, other: Complex) -> Complex {
        Complex { re: self.re + other.re, im: self.im + other.im }
    }

    fn mul(self, other: Complex) -> Complex {
        Complex {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }

    fn conj(self) -> Complex {
        Complex { re: self.re, im: -self.im }
    }

    /// `exp(-2 pi i k / n)`.
    fn root(k: usize, n: usize) -> Complex {
        let angle = -2.0 * PI * (k as f64 / n as f64);
        Complex { re: angle.cos(), im: angle.sin() }
    }
}

/// Prime factors above this are left to Bluestein's algorithm.
const LARGEST_RADIX: usize = 31;

/// Transforms of one length.
pub struct Transform {
    n: usize,
    /// The roots of unity, `exp(-2 pi i k / n)`.
    roots: Vec<Complex>,
    factors: Vec<usize>,
    chirp: Option<Box<Chirp>>,
}

/// What Bluestein's algorithm needs: a convolution of a length that is a power of 2.
struct Chirp {
    inner: Transform,
    /// `exp(-pi i k^2 / n)`.
    wave: Vec<Complex>,
    /// The transform of the conjugate wave.
    filter: Vec<Complex>,
}

impl Transform {
    pub fn new(n: usize) -> Transform {
        let roots = (0..n).map(|k| Complex::root(k, n)).collect();
        let (mut rest, mut factors) = (n, Vec::new());
        for radix in 2..=LARGEST_RADIX {
            while rest > 1 && rest.is_multiple_of(radix) {
                factors.push(radix);
                rest /= radix;
            }
        }
        let chirp = (rest > 1).then(|| Box::new(Chirp::new(n)));
        Transform { n, roots, factors, chirp }
    }

    /// `y[k] = sum of x[j] exp(-2 pi i j k / n)`.
    pub fn forward(&self, x: &mut [Complex], scratch: &mut Vec<Complex>) {
        assert_eq!(x.len(), self.n);
        match &self.chirp {
            Some(chirp) => chirp.forward(x, scratch),
            None => {
                scratch.clear();
                scratch.extend_from_slice(x);
                self.mixed(scratch, 1, x, &self.factors);
            }
        }
    }

    /// `y[k] = sum of x[j] exp(2 pi i j k / n)`: n times the inverse.
    pub fn backward(&self, x: &mut [Complex], scratch: &mut Vec<Complex>) {
        x.iter_mut().for_each(|value| *value = value.conj());
        self.forward(x, scratch);
        x.iter_mut().for_each(|value| *value = value.conj());
    }

    /// The transform of every `stride`-th element of `x`, by decimation in time.
    fn mixed(&self, x: &[Complex], stride: usize, y: &mut [Complex], factors: &[usize]) {
        let Some((&radix, rest)) = factors.split_first() else {
            y[0] = x[0];
            return;
        };
        let (n, part) = (y.len(), y.len() / radix);
        for (q, piece) in y.chunks_exact_mut(part).enumerate() {
            self.mixed(&x[q * stride..], stride * radix, piece, rest);
        }
        let mut terms = [Complex::default(); LARGEST_RADIX];
        for k in 0..part {
            for (q, term) in terms[..radix].iter_mut().enumerate() {
                *term = y[q * part + k].mul(self.roots[(q * k * (self.n / n)) % self.n]);
            }
            for r in 0..radix {
                let mut sum = terms[0];
                for (q, term) in terms[..radix].iter().enumerate().skip(1) {
                    let root = self.roots[(q * r % radix) * (self.n / radix)];
                    sum = sum.add(term.mul(root));
                }
                y[r * part + k] = sum;
            }
        }
    }
}

impl Chirp {
    fn new(n: usize) -> Chirp {
        let length = (2 * n - 1).next_power_of_two();
        let inner = Transform::new(length);
        // k^2 modulo 2n, so that the angle stays exact.
        let wave: Vec<Complex> = (0..n).map(|k| Complex::root(k * k % (2 * n), 2 * n)).collect();
        let mut filter = vec![Complex::default(); length];
        for (k, value) in wave.iter().enumerate() {
            filter[k] = value.conj();
            filter[(length - k) % length] = value.conj();
        }
        inner.forward(&mut filter, &mut Vec::new());
        Chirp { inner, wave, filter }
    }

    fn forward(&self, x: &mut [Complex], scratch: &mut Vec<Complex>) {
        let length = self.filter.len();
        let mut product = vec![Complex::default(); length];
        for (to, (value, wave)) in product.iter_mut().zip(x.iter().zip(&self.wave)) {
            *to = value.mul(*wave);
        }
        self.inner.forward(&mut product, scratch);
        product.iter_mut().zip(&self.filter).for_each(|(a, b)| *a = a.mul(*b));
        self.inner.backward(&mut product, scratch);
        let scale = 1.0 / length as f64;
        for (to, (value, wave)) in x.iter_mut().zip(product.iter().zip(&self.wave)) {
            let full = value.mul(*wave);
            *to = Complex { re: full.re * scale, im: full.im * scale };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::naive::noise;
    use proptest::prelude::*;

    fn naive(x: &[Complex]) -> Vec<Complex> {
        let n = x.len();
        let term = |j: usize, k: usize| x[j].mul(Complex::root(j * k % n, n));
        (0..n).map(|k| (0..n).fold(Complex::default(), |sum, j| sum.add(term(j, k)))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn transforms_match_naive(n in 1..140usize, seed in 0..1000u64) {
            let values = noise(2 * n, seed);
            let x: Vec<Complex> =
                values.chunks(2).map(|pair| Complex { re: pair[0], im: pair[1] }).collect();
            let (mut y, mut scratch) = (x.clone(), Vec::new());
            let transform = Transform::new(n);
            transform.forward(&mut y, &mut scratch);
            for (got, want) in y.iter().zip(naive(&x)) {
                prop_assert!((got.re - want.re).abs() < 1e-9 && (got.im - want.im).abs() < 1e-9);
            }
            transform.backward(&mut y, &mut scratch);
            for (got, want) in y.iter().zip(&x) {
                prop_assert!((got.re / n as f64 - want.re).abs() < 1e-9);
            }
        }
    }
}
