//! Random numbers of one image: functions of seed, epoch and place in the epoch, so that results do
//! not depend on which thread prepares which image.

use crate::kernels::philox::{philox, unit};

/// The numbers of one image.
pub struct Draws {
    seed: u64,
    epoch: u64,
    next: u64,
}

impl Draws {
    /// An image draws fewer numbers than this.
    const SPAN: u64 = 1 << 20;

    pub fn new(seed: u64, epoch: u64, place: u64) -> Self {
        Draws { seed, epoch, next: place.wrapping_mul(Self::SPAN) }
    }

    fn word(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        philox(self.seed, self.epoch, self.next)[0]
    }

    /// A number from `low` to `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * f64::from(unit(self.word()))
    }

    /// A whole number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.word()) * n as u64) >> 32) as usize
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform(0.0, 1.0) < p
    }

    /// A normal number (G. Box and M. Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(0.0, 1.0)).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform(0.0, 1.0)).cos()
    }
}

/// The numbers from 0 to `n` in random order (R. Durstenfeld, 1964).
pub fn permutation(n: usize, seed: u64, epoch: u64) -> Vec<u32> {
    // A key of its own: images of the same epoch draw from (seed, epoch).
    let mut draws = Draws::new(seed ^ 0x5EED_0F0D_E20A_11CE, epoch, 0);
    let mut order: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        order.swap(i, draws.below(i + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_hold_every_number_and_differ_by_epoch() {
        let (a, b) = (permutation(100, 3, 0), permutation(100, 3, 1));
        assert_ne!(a, b);
        assert_eq!(a, permutation(100, 3, 0));
        for mut order in [a, b] {
            order.sort_unstable();
            assert!(order.iter().enumerate().all(|(i, x)| i == *x as usize));
        }
        assert!(permutation(0, 1, 1).is_empty());
    }
}
