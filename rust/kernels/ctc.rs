//! Connectionist temporal classification: the negative logarithm of the probability of a label
//! sequence, summed over all alignments, and its gradient.
//!
//! A. Graves et al., Connectionist Temporal Classification, ICML 2006, sections 4.1 and 4.2; in
//! logarithms.

/// `log(exp(a) + exp(b))`.
fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// Loss of one sequence. `log_p[t][k]` are logarithms of probabilities (rows of `classes`). A label
/// that is the blank is a step of its own. If `grad` is given it receives the derivative by the
/// activations before the softmax. A label sequence that does not fit into the time has loss 0 and
/// no gradient.
pub fn loss(
    log_p: &[f64],
    classes: usize,
    labels: &[usize],
    blank: usize,
    grad: Option<&mut [f64]>,
) -> f64 {
    let time = log_p.len() / classes.max(1);
    let states = 2 * labels.len() + 1;
    let class = |s: usize| if s.is_multiple_of(2) { blank } else { labels[s / 2] };
    // May a path come to state `s` from two states before?
    let skips = |s: usize| s >= 2 && class(s) != blank && class(s) != class(s - 2);
    let p = |t: usize, s: usize| log_p[t * classes + class(s)];
    let none = f64::NEG_INFINITY;
    if time == 0 {
        return 0.0;
    }
    let mut alpha = vec![none; time * states];
    for s in 0..states.min(2) {
        alpha[s] = p(0, s);
    }
    for t in 1..time {
        for s in 0..states {
            let before = &alpha[(t - 1) * states..t * states];
            let mut sum = before[s];
            if s >= 1 {
                sum = log_add(sum, before[s - 1]);
            }
            if skips(s) {
                sum = log_add(sum, before[s - 2]);
            }
            alpha[t * states + s] = sum + p(t, s);
        }
    }
    let end = &alpha[(time - 1) * states..];
    let total = if states > 1 { log_add(end[states - 1], end[states - 2]) } else { end[0] };
    if total == none {
        if let Some(grad) = grad {
            grad.fill(0.0);
        }
        return 0.0;
    }
    if let Some(grad) = grad {
        for (g, l) in grad.iter_mut().zip(log_p) {
            *g = l.exp();
        }
        // beta: probability of the rest of the path after time t.
        let mut beta = vec![none; states];
        for s in states.saturating_sub(2)..states {
            beta[s] = 0.0;
        }
        for t in (0..time).rev() {
            for s in 0..states {
                let posterior = (alpha[t * states + s] + beta[s] - total).exp();
                grad[t * classes + class(s)] -= posterior;
            }
            let after: Vec<f64> = (0..states).map(|s| beta[s] + p(t, s)).collect();
            for s in 0..states {
                let mut sum = after[s];
                if s + 1 < states {
                    sum = log_add(sum, after[s + 1]);
                }
                if s + 2 < states && skips(s + 2) {
                    sum = log_add(sum, after[s + 2]);
                }
                beta[s] = sum;
            }
        }
    }
    -total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::naive::noise;
    use proptest::prelude::*;

    /// The loss by enumerating every path.
    fn enumerated(log_p: &[f64], classes: usize, labels: &[usize], blank: usize) -> f64 {
        let time = log_p.len() / classes;
        let mut total = 0.0;
        for path in 0..classes.pow(time as u32) {
            let steps: Vec<usize> =
                (0..time).map(|t| path / classes.pow(t as u32) % classes).collect();
            let mut merged = steps.clone();
            merged.dedup();
            merged.retain(|&k| k != blank);
            if merged == labels {
                total += (0..time).map(|t| log_p[t * classes + steps[t]]).sum::<f64>().exp();
            }
        }
        if total == 0.0 { 0.0 } else { -total.ln() }
    }

    proptest! {
        #[test]
        fn loss_matches_enumeration(
            time in 1usize..5, labels in prop::collection::vec(1usize..3, 0..4), seed: u64,
        ) {
            let log_p = noise(time * 3, seed);
            let got = loss(&log_p, 3, &labels, 0, None);
            prop_assert!((got - enumerated(&log_p, 3, &labels, 0)).abs() < 1e-9);
        }
    }
}
