//! Statistics and gradients against plain loops.

use super::*;
use crate::kernels::naive::{close, noise};
use proptest::prelude::*;

/// Extents of planes: too short to be visited as such, short, and long.
fn planes() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0usize..40, 1 => loops::SHORT - 3..loops::SHORT + 4]
}

proptest! {
    #[test]
    fn statistics_match_naive(
        outer in 0usize..5, channels in 0usize..40, inner in planes(), seed: u64, inplace: bool,
    ) {
        let s = Channels { outer, channels, inner };
        let x = noise(outer * channels * inner, seed);
        let (mut mean, mut inv_std) = (vec![9.0; channels], vec![9.0; channels]);
        let (gamma, beta) = (noise(channels, seed ^ 1), noise(channels, seed ^ 2));
        let mut y = if inplace { x.clone() } else { vec![7.0; x.len()] };
        let a = Affine {
            mean: mean.as_mut_ptr().cast_const(),
            inv_std: inv_std.as_mut_ptr().cast_const(),
            gamma: Some(gamma.as_ptr()),
            beta: beta.as_ptr(),
        };
        let from = if inplace { y.as_ptr() } else { x.as_ptr() };
        // SAFETY: the buffers have these extents.
        unsafe { s.normalise_by_batch(from, 0.5, a, y.as_mut_ptr(), &|_| ()) };
        for c in 0..channels {
            let at = |i: usize| ((i / inner) * channels + c) * inner + i % inner;
            let of: Vec<f64> = (0..outer * inner).map(|i| x[at(i)]).collect();
            let n = of.len().max(1) as f64;
            let m = of.iter().sum::<f64>() / n;
            let v = of.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / n;
            let factor = 1.0 / (v + 0.5).sqrt();
            prop_assert!(close(&[mean[c], inv_std[c]], &[m, factor], 1e-12));
            let got: Vec<f64> = (0..outer * inner).map(|i| y[at(i)]).collect();
            let want: Vec<f64> =
                of.iter().map(|x| (x - m) * factor * gamma[c] + beta[c]).collect();
            prop_assert!(close(&got, &want, 1e-12));
        }
    }

    #[test]
    fn gradients_match_naive(
        outer in 1usize..5, channels in 1usize..40, inner in planes(), seed: u64, fixed: bool,
        inplace: bool,
    ) {
        let s = Channels { outer, channels, inner };
        let n = outer * channels * inner;
        let (x, dy, mean) = (noise(n, seed), noise(n, seed ^ 1), noise(channels, seed ^ 2));
        let (inv_std, gamma) = (noise(channels, seed ^ 3), noise(channels, seed ^ 4));
        let a = Affine {
            mean: mean.as_ptr(),
            inv_std: inv_std.as_ptr(),
            gamma: (seed % 2 == 0).then_some(gamma.as_ptr()),
            beta: mean.as_ptr(),
        };
        let mut dx = if inplace { dy.clone() } else { vec![7.0; n] };
        let (mut dgamma, mut dbeta) = (vec![7.0; channels], vec![7.0; channels]);
        let to = Gradients {
            data: dx.as_mut_ptr(),
            gamma: dgamma.as_mut_ptr(),
            beta: dbeta.as_mut_ptr(),
        };
        let from = if inplace { to.data.cast_const() } else { dy.as_ptr() };
        // SAFETY: the buffers have these extents.
        unsafe { s.backward(from, x.as_ptr(), a, fixed, to, &|_| ()) };
        for c in 0..channels {
            let at = |i: usize| ((i / inner) * channels + c) * inner + i % inner;
            let all = || (0..outer * inner).map(at);
            let sum: f64 = all().map(|i| dy[i]).sum();
            let product: f64 = all().map(|i| dy[i] * (x[i] - mean[c])).sum();
            let (inv, count) = (inv_std[c], (outer * inner) as f64);
            let factor = inv * if a.gamma.is_some() { gamma[c] } else { 1.0 };
            let of_gamma = if a.gamma.is_some() { product * inv } else { 0.0 };
            prop_assert!(close(&[dgamma[c], dbeta[c]], &[of_gamma, sum], 1e-11));
            let kept = if fixed { 0.0 } else { 1.0 / count };
            let want: Vec<f64> = all()
                .map(|i| dy[i] - kept * (sum + (x[i] - mean[c]) * product * inv * inv))
                .map(|v| v * factor)
                .collect();
            let got: Vec<f64> = all().map(|i| dx[i]).collect();
            prop_assert!(close(&got, &want, 1e-11));
        }
    }

    #[test]
    fn elements_are_normalised_as_the_whole(
        outer in 1usize..4, channels in 1usize..6, inner in 1usize..70, seed: u64,
        cuts in proptest::collection::vec(0usize..1200, 0..6), inplace: bool,
    ) {
        let s = Channels { outer, channels, inner };
        let x = noise(outer * channels * inner, seed);
        let [mean, inv_std, gamma, beta] = [1, 2, 3, 4].map(|i| noise(channels, seed ^ i));
        let a = Affine {
            mean: mean.as_ptr(),
            inv_std: inv_std.as_ptr(),
            gamma: (seed % 2 == 0).then_some(gamma.as_ptr()),
            beta: beta.as_ptr(),
        };
        let (mut want, mut got) = (vec![7.0; x.len()], x.clone());
        let from = if inplace { got.as_ptr() } else { x.as_ptr() };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(x.len())).collect();
        cuts.extend([0, x.len()]);
        cuts.sort_unstable();
        // SAFETY: the buffers have these extents.
        unsafe {
            s.normalise(x.as_ptr(), a, want.as_mut_ptr(), &|_| ());
            for part in cuts.windows(2).rev() {
                s.normalise_elements(part[0]..part[1], from, a, got.as_mut_ptr());
            }
        }
        prop_assert_eq!(got, want);
    }
}
