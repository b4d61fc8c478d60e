//! Random numbers of common distributions. Element `i` of a call has a stream of words of its own,
//! so results depend on (seed, stream, i) only; rejection takes as many words as it needs.

use super::normal::{log, normal_pair};
use super::philox::{fill, philox};
use crate::dtype::DType;
use half::f16;

/// The words of one element.
pub struct Draws {
    seed: u64,
    stream: u64,
    index: u64,
    words: [u32; 4],
    used: usize,
}

impl Draws {
    /// The stream of element `i`.
    pub fn new(seed: u64, stream: u64, i: usize) -> Self {
        Draws::begin(seed, stream, i as u64, philox(seed, stream, i as u64))
    }

    #[inline(always)]
    fn begin(seed: u64, stream: u64, index: u64, words: [u32; 4]) -> Self {
        Draws { seed, stream, index, words, used: 0 }
    }

    #[inline(always)]
    fn word(&mut self) -> u32 {
        if self.used == 4 {
            // The next block of this element: no call has 2^44 elements.
            self.index = self.index.wrapping_add(1 << 44);
            self.words = philox(self.seed, self.stream, self.index);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// 64 random bits.
    #[inline(always)]
    pub fn bits(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// In 0 (inclusive) to 1 (exclusive).
    #[inline(always)]
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In 0 (exclusive) to 1 (inclusive).
    #[inline(always)]
    fn positive(&mut self) -> f64 {
        1.0 - self.uniform()
    }

    /// Standard normal: the cosine of the pair.
    #[inline(always)]
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        normal_pair(a, b)[0]
    }

    /// Exponential of mean 1.
    #[inline(always)]
    pub fn exponential(&mut self) -> f64 {
        -log(self.positive())
    }

    /// Gamma of this shape and scale 1 (Marsaglia and Tsang, 2000). NaN where there is no such
    /// distribution.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if !(0.0..f64::INFINITY).contains(&shape) {
            return if shape == f64::INFINITY { shape } else { f64::NAN };
        }
        if shape < 1.0 {
            let u = self.positive();
            return self.gamma(shape + 1.0) * u.powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.positive().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// Poisson of this mean: products of uniforms, for large means transformed rejection (Hörmann,
    /// 1993). NaN where there is no such distribution.
    pub fn poisson(&mut self, mean: f64) -> f64 {
        if !(0.0..f64::INFINITY).contains(&mean) {
            return if mean == f64::INFINITY { mean } else { f64::NAN };
        }
        if mean < 30.0 {
            let (limit, mut product, mut k) = ((-mean).exp(), self.positive(), 0.0);
            while product > limit {
                product *= self.positive();
                k += 1.0;
            }
            return k;
        }
        let b = 0.931 + 2.53 * mean.sqrt();
        let a = -0.059 + 0.024_83 * b;
        let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        let v_r = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let u = self.uniform() - 0.5;
            let v = self.positive();
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + mean + 0.43).floor();
            if us >= 0.07 && v <= v_r {
                return k;
            }
            if k < 0.0 || (us < 0.013 && v > us) {
                continue;
            }
            let accept = k * mean.ln() - mean - super::math::gammaln_f64(k + 1.0);
            if (v * inverse_alpha / (a / (us * us) + b)).ln() <= accept {
                return k;
            }
        }
    }

    /// A whole number in `low..high`.
    pub fn integer(&mut self, low: i64, high: i64) -> i64 {
        let span = high.wrapping_sub(low) as u64;
        let scaled = (u128::from(self.bits()) * u128::from(span)) >> 64;
        low.wrapping_add(scaled as i64)
    }
}

/// Fills `out` with `make(words of element i)`, side by side: what `make` draws must not need more
/// than the first four words, and be arithmetic without branches.
///
/// # Safety
/// `out` is valid for `n` elements.
pub unsafe fn fill_from_draws<T: Copy + Send>(
    key: [u64; 2],
    out: *mut T,
    n: usize,
    make: impl Fn(&mut Draws) -> T + Sync,
) {
    let [seed, stream] = key;
    // SAFETY: promised by the caller.
    unsafe {
        fill(key, out, n, |words: [u32; 4]| {
            let mut draws = Draws::begin(seed, stream, 0, words);
            let made = make(&mut draws);
            debug_assert_eq!(draws.index, 0, "more than four words of an element are drawn");
            [made]
        });
    }
}

/// A number `u` of `[0, 1)` carried to `[low, high)` of a float dtype, whose rounding must not
/// reach `high`.
#[derive(Clone, Copy)]
pub struct Span {
    low: f64,
    width: f64,
    last: f64,
}

impl Span {
    pub fn new(dtype: DType, low: f64, high: f64) -> Self {
        let (first, last) = match dtype {
            DType::F16 => (f16::from_f64(low).to_f64(), half_below(f16::from_f64(high)).to_f64()),
            DType::F32 => (f64::from(low as f32), f64::from((high as f32).next_down())),
            _ => (low, high.next_down()),
        };
        // If no number lies between the limits, only the lower one is left.
        let last = if high > low { last.max(first) } else { f64::INFINITY };
        Span { low, width: high - low, last }
    }

    /// The lower limit, the width, and the last number below the upper limit.
    pub fn parts(&self) -> [f64; 3] {
        [self.low, self.width, self.last]
    }

    #[inline(always)]
    pub fn at(&self, u: f64) -> f64 {
        (self.low + self.width * u).min(self.last)
    }
}

/// The greatest number of half precision below `x`.
fn half_below(x: f16) -> f16 {
    f16::from_bits(match x.to_bits() {
        0 | 0x8000 => 0x8001,
        bits if bits & 0x8000 == 0 => bits - 1,
        bits => bits + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(f: impl Fn(&mut Draws) -> f64) -> (f64, f64) {
        let n = 40_000;
        let x: Vec<f64> = (0..n).map(|i| f(&mut Draws::new(3, 1, i))).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        (mean, x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64)
    }

    fn check(what: &str, f: impl Fn(&mut Draws) -> f64, mean: f64, var: f64) {
        let (m, v) = moments(f);
        assert!((m - mean).abs() < 5.0 * (var / 40_000.0).sqrt(), "{what}: mean {m}");
        assert!((v / var - 1.0).abs() < 0.1, "{what}: variance {v}");
    }

    #[test]
    fn distributions_have_their_moments() {
        check("uniform", Draws::uniform, 0.5, 1.0 / 12.0);
        check("normal", Draws::normal, 0.0, 1.0);
        check("exponential", Draws::exponential, 1.0, 1.0);
        check("gamma 2.5", |d| d.gamma(2.5), 2.5, 2.5);
        check("gamma 0.4", |d| d.gamma(0.4), 0.4, 0.4);
        check("poisson 3", |d| d.poisson(3.0), 3.0, 3.0);
        check("poisson 80", |d| d.poisson(80.0), 80.0, 80.0);
        check("integer", |d| d.integer(-5, 5) as f64, -0.5, 99.0 / 12.0);
    }

    #[test]
    fn spans_stay_below_their_end() {
        for (low, high) in [(0.0, 1.0), (-1.0, 0.0), (-3.0, -2.0), (0.1, 0.3), (1e3, 1e3 + 1e-3)] {
            let top = 1.0 - f64::EPSILON;
            let half = f16::from_f64(Span::new(DType::F16, low, high).at(top));
            assert!(
                half < f16::from_f64(high) || half == f16::from_f64(low),
                "{low} {high}: {half}"
            );
            let single = Span::new(DType::F32, low, high).at(top) as f32;
            assert!(single < high as f32, "{low} {high}: {single}");
            assert_eq!(Span::new(DType::F64, low, high).at(0.0), low);
        }
        assert_eq!(Span::new(DType::F16, 2.0, 2.0).at(0.5), 2.0);
    }

    #[test]
    fn numbers_drawn_side_by_side_are_those_of_each_element() {
        let (n, key) = (1_003, [7, 9]);
        let drawn: [fn(&mut Draws) -> f64; 3] = [Draws::uniform, Draws::normal, Draws::exponential];
        for draw in drawn {
            let mut found = vec![0.0; n];
            // SAFETY: `n` elements.
            unsafe { fill_from_draws(key, found.as_mut_ptr(), n, draw) };
            let each = |i: usize| draw(&mut Draws::new(key[0], key[1], i));
            assert!(found.iter().enumerate().all(|(i, v)| *v == each(i)));
        }
    }

    #[test]
    fn elements_do_not_depend_on_each_other() {
        let a: Vec<u64> = (0..9).map(|i| Draws::new(1, 2, i).bits()).collect();
        let mut b: Vec<u64> = (0..9).rev().map(|i| Draws::new(1, 2, i).bits()).collect();
        b.reverse();
        assert_eq!(a, b);
        assert!(a.windows(2).all(|w| w[0] != w[1]));
    }
}
