//! Elementary functions against those of the standard library, and vectors against scalars.

use super::*;
use crate::kernels::arith::Arith;

/// A function, and what it approximates.
type Pair = (&'static str, fn(f32) -> f32, fn(f64) -> f64);

/// Functions of both values of `FUSED`.
macro_rules! pairs {
    ($($name:ident: $oracle:expr;)*) => {
        [$(
            (stringify!($name), single::plain::$name as fn(f32) -> f32, $oracle as fn(f64) -> f64),
            (stringify!($name), single::fused::$name as fn(f32) -> f32, $oracle as fn(f64) -> f64),
        )*]
    };
}

/// Every pair at numbers of all sizes, and near the ends of -1 to 1.
fn check(pairs: &[Pair], within: f64) {
    for (name, run, oracle) in pairs.iter().copied() {
        let check = |x: f32| {
            let (got, want) = (run(x), oracle(f64::from(x)));
            assert!(ulps(got, want) < within, "{name}({x:e}): {got:e} for {want:e}");
            let same_sign = got.is_sign_negative() == want.is_sign_negative();
            assert!(want.is_nan() || same_sign, "{name}({x:e}): {got:e} for {want:e}");
        };
        for i in 0..40_000 {
            // Even steps, and even steps of the exponent.
            let even = (i as f32 - 20_000.0) * 5e-3;
            let size = 10f32.powf(i as f32 * 2e-3 - 42.0);
            let near_one = 1.0 - 10f32.powf(-i as f32 * 1.8e-4);
            [even, even * 1e-2, size, -size, 1.0 + size, near_one, -near_one]
                .into_iter()
                .for_each(check);
        }
        let special = [0.0, 1.0, f32::INFINITY, f32::MAX, f32::NAN];
        special.iter().flat_map(|x| [*x, -x]).for_each(check);
    }
}

#[test]
fn functions_by_way_of_double_precision_are_rounded_once() {
    let pairs = pairs! {
        expm1: f64::exp_m1;
        sinh: f64::sinh;
        cosh: f64::cosh;
        atan: f64::atan;
        asinh: asinh_f64;
        asin: f64::asin;
        acos: f64::acos;
        acosh: acosh_f64;
    };
    check(&pairs, 0.51);
}

#[test]
fn functions_of_single_precision_are_within_few_ulps() {
    let exact = pairs! {
        erf: erf_f64;
        log: f64::ln;
        log1p: f64::ln_1p;
        log2: f64::log2;
        log10: f64::log10;
    };
    check(&exact, 1.5);
    let of_two_steps = pairs! {
        exp: f64::exp;
        tanh: f64::tanh;
        softplus: |x| x.max(0.0) + (-x.abs()).exp().ln_1p();
        atanh: double::atanh;
    };
    check(&of_two_steps, 2.5);
    check(&pairs! { erfinv: erfinv_f64; }, 4.0);
}

#[test]
fn logarithms_of_powers_are_whole() {
    for k in 0..=10 {
        let x = 10f32.powi(k);
        assert_eq!((single::plain::log10(x), single::fused::log10(x)), (k as f32, k as f32));
        let x = 2f32.powi(11 * k - 60);
        let want = (11 * k - 60) as f32;
        assert_eq!((single::plain::log2(x), single::fused::log2(x)), (want, want));
    }
}

/// Up to 5e7 they are rounded once, also next to their zeros, and beyond it NaN.
#[test]
fn trigonometric_functions_are_rounded_once() {
    let pairs = pairs! { sin: f64::sin; cos: f64::cos; tan: f64::tan; };
    for (name, run, oracle) in pairs.iter().copied() {
        let check = |x: f32| {
            let (got, want) = (run(x), oracle(f64::from(x)));
            if x.abs() <= 5e7 {
                assert!(ulps(got, want) < 0.51, "{name}({x:e}): {got:e} for {want:e}");
                assert_eq!(got.is_sign_negative(), want.is_sign_negative(), "{name}({x:e})");
            } else {
                assert!(got.is_nan(), "{name}({x:e}): {got:e}");
            }
        };
        for i in 0..60_000 {
            let quarter = (f64::from(i) * 270.0 * std::f64::consts::FRAC_PI_2) as f32;
            let size = 10f32.powf(i as f32 * 1e-3 - 45.0);
            let even = i as f32 * 1e-3;
            [quarter, size, even].into_iter().flat_map(|x| [x, -x]).for_each(check);
        }
        [0.0, -0.0, 5e7, 5.1e7, f32::MAX, f32::INFINITY, f32::NAN].into_iter().for_each(check);
    }
}

#[test]
fn remainders_are_exact_or_unknown() {
    let sizes = [1e-45f32, 3e-39, 1e-20, 0.1, 0.3, 1.0, 1.5, 7.0, 1e5, 3e8, 1e30, f32::MAX];
    let special = [0.0, f32::INFINITY, f32::NAN];
    let numbers: Vec<f32> = sizes.iter().chain(&special).flat_map(|x| [*x, -x]).collect();
    let mixed = (0..200_000u32).map(|i| {
        let [a, b] = [i.wrapping_mul(2_654_435_761), i.wrapping_mul(40_503) ^ 0x9e37_79b9];
        (f32::from_bits(a), f32::from_bits(b))
    });
    let mut known = 0;
    for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(|b| (*a, *b))).chain(mixed) {
        let (got, want) = (rem_f32(a, b), Arith::rem(a, b));
        known += i32::from(!got.is_nan());
        let unknown = got.is_nan() && !(a.is_finite() && b.is_finite() && (a / b).abs() < 1e8);
        assert!(got.to_bits() == want.to_bits() || unknown, "{a:e} % {b:e}: {got:e} for {want:e}");
    }
    assert!(known > 50_000);
}

#[test]
fn hypotenuses_are_rounded_once() {
    let sizes =
        [0.0, 1e-45f32, 3e-39, 1e-20, 0.1, 3.0, 1e5, 1e30, f32::MAX, f32::INFINITY, f32::NAN];
    for a in sizes.iter().flat_map(|a| [*a, -a]) {
        for b in sizes {
            let (got, want) = (hypot_f32(a, b), f64::from(a).hypot(f64::from(b)));
            assert!(ulps(got, want) < 0.501, "{a:e} {b:e}: {got:e} for {want:e}");
        }
    }
}

/// Distance in units of the last place of the true value.
fn ulps(got: f32, want: f64) -> f64 {
    let w = want as f32;
    if !w.is_normal() {
        return if got == w || (got.is_nan() && w.is_nan()) || (got - w).abs() < 1e-44 {
            0.0
        } else {
            1e9
        };
    }
    let ulp = f32::from_bits(w.abs().to_bits() + 1) as f64 - w.abs() as f64;
    (got as f64 - want).abs() / ulp
}

#[test]
fn powers_are_rounded_once() {
    check_powers(pow_f32::<false>);
    check_powers(pow_f32::<true>);
}

fn check_powers(pow: fn(f32, f32) -> f32) {
    let sizes = [1e-45, 3e-39, 1.2e-38, 1e-20, 0.3, 0.999_999_9, 1.0, 1.000_000_1, 1.5, 7.0, 1e9];
    let exponents =
        [0.0, 1e-30, 0.01, 1.0 / 3.0, 0.5, 1.0, 1.7, 2.0, 3.0, 8.5, 21.0, 1e5, 16_777_217.0];
    let special = [0.0, f32::INFINITY, f32::NAN, f32::MAX];
    for a in sizes.iter().chain(&special).flat_map(|a| [*a, -a]) {
        for b in exponents.iter().chain(&special).flat_map(|b| [*b, -b]) {
            let (got, want) = (pow(a, b), f64::from(a).powf(f64::from(b)));
            assert!(ulps(got, want) < 0.501, "{a}^{b}: {got} for {want}");
            let same_sign = got.is_sign_negative() == want.is_sign_negative();
            assert!(want.is_nan() || same_sign, "{a}^{b}: {got} for {want}");
        }
    }
    for i in 0..100_000 {
        let (a, b) = (1e-3 * (i as f32 + 0.5), (i % 97) as f32 * 0.1 - 4.0);
        let want = f64::from(a).powf(f64::from(b));
        assert!(ulps(pow(a, b), want) < 0.501, "{a}^{b}");
    }
}

#[test]
fn exponentials_below_88_are_within_two_ulps_or_flushed() {
    for i in 0..200_000 {
        let x = 88.0 - i as f32 * 9e-4;
        let want = f64::from(x).exp();
        for got in [narrow::exp_below_88::<true>(x), narrow::exp_below_88::<false>(x)] {
            let flushed = got == 0.0 && want < f64::from(f32::MIN_POSITIVE);
            assert!(flushed || ulps(got, want) < 2.0, "exp({x}): {got} for {want}");
        }
    }
    for exp in [narrow::exp_below_88::<true>, narrow::exp_below_88::<false>] {
        assert_eq!((exp(0.0), exp(-1e30), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert!(exp(f32::from_bits(0x7fff_ffff)).is_nan() && exp(f32::NAN).is_nan());
    }
}

#[test]
fn special_functions_have_their_tabulated_values() {
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{a} {b}");
    close(erf_f64(0.5), 0.520_499_877_813_046_5);
    close(erf_f64(3.0), 0.999_977_909_503_001_4);
    close(erfinv_f64(0.5), 0.476_936_276_204_469_9);
    close(erfinv_f64(f64::EPSILON / 2.0 - 1.0), -5.863_584_748_755_168);
    close(erfinv_f64(1.0 - f64::EPSILON), 5.805_018_683_193_453);
    close(double::atanh(f64::EPSILON / 2.0 - 1.0), -18.714_973_875_118_524);
    close(gamma_f64(5.0), 24.0);
    close(gamma_f64(0.5), std::f64::consts::PI.sqrt());
    close(gammaln_f64(10.5), 13.940_625_219_403_763);
    close(digamma_f64(1.0), -0.577_215_664_901_532_9);
    close(acosh_f64(1.0 + 1e-14), 1.4136482746161713e-07);
    close(asinh_f64(-1e300), -691.4686750787736);
    for n in 1..=23u32 {
        assert_eq!(gamma_f64(f64::from(n)), (1..n).map(f64::from).product::<f64>());
    }
}

#[test]
fn special_functions_have_their_limits() {
    let inf = f64::INFINITY;
    assert_eq!((gamma_f64(0.0), gamma_f64(inf)), (inf, inf));
    assert!(gamma_f64(-1.0).is_nan() && gamma_f64(-inf).is_nan());
    for pole in [0.0, -1.0, -2.0, inf, -inf] {
        assert_eq!(gammaln_f64(pole), inf);
    }
    assert_eq!((digamma_f64(-3.0), digamma_f64(0.0), digamma_f64(inf)), (inf, inf, inf));
    assert_eq!((asinh_f64(inf), asinh_f64(-inf), acosh_f64(inf)), (inf, -inf, inf));
    assert!(acosh_f64(0.5).is_nan() && acosh_f64(f64::NAN).is_nan());
    assert_eq!(acosh_f64(1.0), 0.0);
}
