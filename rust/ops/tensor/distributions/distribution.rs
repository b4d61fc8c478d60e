//! The distributions by name: which parameters they have, and how their numbers are drawn.

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::random::{Draws, Span, fill_from_draws};
use crate::operator::RandomKey;

/// A distribution of one or two parameters; `draws.cu` has them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(in crate::ops) enum Distribution {
    Uniform,
    Normal,
    Exponential,
    Gamma,
    Poisson,
    /// Failures before a number of successes: Poisson, with a mean of the gamma distribution.
    Failures,
    /// The same by mean and dispersion.
    Dispersed,
}
use Distribution::*;

/// A parameter that is out of range: which one, and what was expected.
pub struct Fault {
    pub at: usize,
    pub expected: String,
}

impl Distribution {
    /// What is wrong with these parameters, if anything.
    pub fn fault(self, [a, b]: [f64; 2]) -> Option<Fault> {
        let positive = |x: f64| (x > 0.0, "more than 0");
        let not_negative = |x: f64| (x >= 0.0 && x.is_finite(), "at least 0, and finite");
        let any = (true, "");
        let (first, second) = match self {
            Uniform if a <= b => (any, any),
            Uniform => return Some(Fault { at: 1, expected: format!("at least low, {a}") }),
            Normal => (any, not_negative(b)),
            Exponential => (positive(a), any),
            Gamma => (positive(a), positive(b)),
            Poisson => (not_negative(a), any),
            Failures => (positive(a), (b > 0.0 && b <= 1.0, "more than 0 and at most 1")),
            Dispersed => (not_negative(a), not_negative(b)),
        };
        let faulty = [first, second].into_iter().position(|(is_valid, _)| !is_valid)?;
        let expected = [first, second][faulty].1.to_owned();
        Some(Fault { at: faulty, expected })
    }

    /// The parameters, which have these names; an error if there is no such distribution.
    pub fn check(self, named: [(&str, f64); 2]) -> Result<[f64; 2]> {
        match self.fault(named.map(|(_, value)| value)) {
            None => Ok(named.map(|(_, value)| value)),
            Some(Fault { at, expected }) => Err(Error::invalid(named[at].0, named[at].1, expected)),
        }
    }

    /// The distribution with these parameters, for numbers of a dtype.
    pub fn of(self, dtype: DType, [a, b]: [f64; 2]) -> Drawing {
        Drawing { distribution: self, a, b, span: Span::new(dtype, a, b) }
    }
}

/// Parameters of a distribution: one or two numbers.
pub(in crate::ops) trait Setting {
    const DISTRIBUTION: Distribution;
    /// The numbers with their names; the second is 0 where there is one.
    fn named(&self) -> [(&'static str, f64); 2];

    /// The numbers; an error if there is no such distribution.
    fn checked(&self) -> Result<[f64; 2]> {
        Self::DISTRIBUTION.check(self.named())
    }
}

/// Says which distribution parameters are those of: `UniformParam: Uniform(low, high);`.
macro_rules! settings {
    ($($param:ident: $distribution:ident($first:ident $(, $second:ident)?);)*) => {$(
        impl $crate::ops::tensor::distributions::distribution::Setting for $param {
            const DISTRIBUTION: Distribution = Distribution::$distribution;
            fn named(&self) -> [(&'static str, f64); 2] {
                let given = [
                    (stringify!($first), self.$first as f64),
                    $((stringify!($second), self.$second as f64),)?
                ];
                std::array::from_fn(|i| given.get(i).copied().unwrap_or(("", 0.0)))
            }
        }
    )*};
}
pub(in crate::ops) use settings;

/// A distribution with its parameters.
#[derive(Clone, Copy)]
pub struct Drawing {
    distribution: Distribution,
    a: f64,
    b: f64,
    /// From `a` to `b`.
    span: Span,
}

impl Drawing {
    #[inline(always)]
    fn uniform(&self, d: &mut Draws) -> f64 {
        self.span.at(d.uniform())
    }

    #[inline(always)]
    fn normal(&self, d: &mut Draws) -> f64 {
        self.a + self.b * d.normal()
    }

    #[inline(always)]
    fn exponential(&self, d: &mut Draws) -> f64 {
        d.exponential() / self.a
    }

    /// Fills `out` with numbers, if each takes so few words that they are drawn side by side.
    ///
    /// # Safety
    /// `out` is valid for `n` elements.
    pub unsafe fn fill<T: Element>(&self, key: RandomKey, out: *mut T, n: usize) -> bool {
        // SAFETY: promised by the caller.
        unsafe {
            match self.distribution {
                Uniform => fill_from_draws(key.words(), out, n, |d| T::from_f64(self.uniform(d))),
                Normal => fill_from_draws(key.words(), out, n, |d| T::from_f64(self.normal(d))),
                Exponential => {
                    fill_from_draws(key.words(), out, n, |d| T::from_f64(self.exponential(d)));
                }
                _ => return false,
            }
        }
        true
    }

    /// One number.
    #[inline(always)]
    pub fn draw(&self, d: &mut Draws) -> f64 {
        let (a, b) = (self.a, self.b);
        match self.distribution {
            Uniform => self.uniform(d),
            Normal => self.normal(d),
            Exponential => self.exponential(d),
            Gamma => b * d.gamma(a),
            Poisson => d.poisson(a),
            Failures => gamma_poisson(d, a, (1.0 - b) / b),
            Dispersed if b == 0.0 => d.poisson(a),
            Dispersed => gamma_poisson(d, 1.0 / b, a * b),
        }
    }
}

fn gamma_poisson(d: &mut Draws, shape: f64, scale: f64) -> f64 {
    let mean = d.gamma(shape) * scale;
    d.poisson(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The enumeration of `draws.cu` has the same names in the same order.
    #[test]
    fn devices_have_the_same_numbers() {
        let source = include_str!("../../../../python/rsnet/cuda/kernels/draws.cu");
        let (_, listed) = source.split_once("enum {").unwrap();
        let (listed, _) = listed.split_once('}').unwrap();
        let all = [Uniform, Normal, Exponential, Gamma, Poisson, Failures, Dispersed];
        for (i, distribution) in all.into_iter().enumerate() {
            assert_eq!(distribution as usize, i);
        }
        let names = all.map(|distribution| format!("{distribution:?}").to_uppercase());
        assert_eq!(listed.split(',').map(str::trim).collect::<Vec<_>>(), names);
    }
}
