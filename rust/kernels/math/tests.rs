//! Elementary functions against those of the standard library, and vectors against scalars.

use super::*;

/// Functions that go by way of double precision are rounded once.
#[test]
fn functions_by_way_of_double_precision_are_rounded_once() {
    use super::single as s;
    type Pair = (&'static str, fn(f32) -> f32, fn(f64) -> f64);
    let everywhere: [Pair; 9] = [
        ("expm1", s::expm1, f64::exp_m1),
        ("softplus", s::softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p()),
        ("sinh", s::sinh, f64::sinh),
        ("cosh", s::cosh, f64::cosh),
        ("atan", s::atan, f64::atan),
        ("asinh", s::asinh, asinh_f64),
        ("erf", s::erf, erf_f64),
        ("log1p", s::log1p, f64::ln_1p),
        ("log2", s::log2, f64::log2),
    ];
    let inside: [Pair; 4] = [
        ("asin", s::asin, f64::asin),
        ("acos", s::acos, f64::acos),
        ("atanh", s::atanh, f64::atanh),
        ("erfinv", s::erfinv, erfinv_f64),
    ];
    let upwards: [Pair; 2] = [("acosh", s::acosh, acosh_f64), ("log10", s::log10, f64::log10)];
    let check = |(name, run, oracle): Pair, x: f32| {
        let (got, want) = (run(x), oracle(f64::from(x)));
        assert!(ulps(got, want) < 0.51, "{name}({x:e}): {got:e} for {want:e}");
        let same_sign = got.is_sign_negative() == want.is_sign_negative();
        assert!(want.is_nan() || same_sign, "{name}({x:e}): {got:e} for {want:e}");
    };
    for i in 0..40_000 {
        // Even steps, and even steps of the exponent.
        let even = (i as f32 - 20_000.0) * 5e-3;
        let size = 10f32.powf(i as f32 * 2e-3 - 42.0);
        for x in [even, size, -size] {
            everywhere.into_iter().for_each(|f| check(f, x));
        }
        let near_one = 1.0 - 10f32.powf(-i as f32 * 1.8e-4);
        for x in [even * 1e-2, size, -size, near_one, -near_one] {
            inside.into_iter().for_each(|f| check(f, x));
        }
        for x in [1.0 + size, size, -size, even] {
            upwards.into_iter().for_each(|f| check(f, x));
        }
    }
    for x in [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN]
    {
        everywhere.into_iter().chain(inside).chain(upwards).for_each(|f| check(f, x));
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
    let sizes = [1e-45, 3e-39, 1.2e-38, 1e-20, 0.3, 0.999_999_9, 1.0, 1.000_000_1, 1.5, 7.0, 1e9];
    let exponents =
        [0.0, 1e-30, 0.01, 1.0 / 3.0, 0.5, 1.0, 1.7, 2.0, 3.0, 8.5, 21.0, 1e5, 16_777_217.0];
    let special = [0.0, f32::INFINITY, f32::NAN, f32::MAX];
    for a in sizes.iter().chain(&special).flat_map(|a| [*a, -a]) {
        for b in exponents.iter().chain(&special).flat_map(|b| [*b, -b]) {
            let (got, want) = (pow_f32(a, b), f64::from(a).powf(f64::from(b)));
            assert!(ulps(got, want) < 0.501, "{a}^{b}: {got} for {want}");
            let same_sign = got.is_sign_negative() == want.is_sign_negative();
            assert!(want.is_nan() || same_sign, "{a}^{b}: {got} for {want}");
        }
    }
    for i in 0..100_000 {
        let (a, b) = (1e-3 * (i as f32 + 0.5), (i % 97) as f32 * 0.1 - 4.0);
        let want = f64::from(a).powf(f64::from(b));
        assert!(ulps(pow_f32(a, b), want) < 0.501, "{a}^{b}");
    }
}

#[test]
fn single_precision_is_within_three_ulps() {
    for i in 0..200_000 {
        let x = (i as f32 - 100_000.0) * 1.1e-3;
        assert!(ulps(exp_f32(x), (x as f64).exp()) < 3.0, "exp({x})");
        let t = x * 0.1;
        assert!(ulps(tanh_f32(t), (t as f64).tanh()) < 4.0, "tanh({t})");
        let y = exp_f32(x * 0.7);
        if y.is_normal() {
            assert!(ulps(log_f32(y), (y as f64).ln()) < 3.0 || (y - 1.0).abs() < 1e-6, "log({y})");
        }
    }
}

#[test]
fn exponentials_below_88_are_within_two_ulps_or_flushed() {
    for i in 0..200_000 {
        let x = 88.0 - i as f32 * 9e-4;
        let want = f64::from(x).exp();
        for got in [exp_below_88_f32::<true>(x), exp_below_88_f32::<false>(x)] {
            let flushed = got == 0.0 && want < f64::from(f32::MIN_POSITIVE);
            assert!(flushed || ulps(got, want) < 2.0, "exp({x}): {got} for {want}");
        }
    }
    for exp in [exp_below_88_f32::<true>, exp_below_88_f32::<false>] {
        assert_eq!((exp(0.0), exp(-1e30), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert!(exp(f32::from_bits(0x7fff_ffff)).is_nan() && exp(f32::NAN).is_nan());
    }
}

#[test]
fn limits() {
    assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
    assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
    assert!(
        exp_f32(f32::NAN).is_nan() && log_f32(f32::NAN).is_nan() && tanh_f32(f32::NAN).is_nan()
    );
    assert_eq!(log_f32(0.0), f32::NEG_INFINITY);
    assert_eq!(log_f32(f32::INFINITY), f32::INFINITY);
    assert!(log_f32(-1.0).is_nan());
    assert_eq!(tanh_f32(f32::INFINITY), 1.0);
    assert_eq!(tanh_f32(-50.0), -1.0);
    assert!(tanh_f32(-0.0).is_sign_negative() && !tanh_f32(0.0).is_sign_negative());
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
