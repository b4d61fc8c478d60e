//! Philox4x32-10, a counter-based random generator: element `i` of a call is a pure function of
//! (seed, stream, i), so results depend neither on threads nor on the order of calculation.
//!
//! J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.

use super::arch::opaque;
use super::parallel::{Shared, parallel_for};
use std::mem::MaybeUninit;

/// Four random words of counter `(index, stream)` under `seed`.
#[inline(always)]
pub fn philox(seed: u64, stream: u64, index: u64) -> [u32; 4] {
    const WORD: u64 = 0xffff_ffff;
    // Words in 64 bits, whose upper halves count for nothing: their products are single
    // instructions where counters are calculated side by side.
    let mut c = [index, index >> 32, stream, stream >> 32];
    let mut k = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let a = (c[0] & WORD) * 0xD251_1F53;
        let b = (c[2] & WORD) * 0xCD9E_8D57;
        c = [(b >> 32) ^ c[1] ^ u64::from(k[0]), b, (a >> 32) ^ c[3] ^ u64::from(k[1]), a];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c.map(|word| word as u32)
}

/// Counters calculated side by side, and the words they give.
const GROUP: usize = 16;
const GROUP_WORDS: usize = 4 * GROUP;
/// Words that a task draws.
const GRAIN: usize = 1 << 14;

/// Fills `out` in parallel: `make` turns each `W` of the words of the counters from 0 on, in their
/// order, into the next `N` elements. `W` divides 4. `make` is called side by side, and for some
/// words past the end: write it as arithmetic without branches.
///
/// # Safety
/// `out` is valid for `n` elements.
pub unsafe fn fill<T: Copy + Send, const W: usize, const N: usize>(
    [seed, stream]: [u64; 2],
    out: *mut T,
    n: usize,
    make: impl Fn([u32; W]) -> [T; N] + Sync,
) {
    const { assert!(4 % W == 0 && N > 0) };
    let out = Shared(out);
    let calls = n.div_ceil(N);
    parallel_for((calls * W).div_ceil(GRAIN), 1, |tasks| {
        let first = tasks.start * (GRAIN / W);
        let count = (n - first * N).min(tasks.len() * (GRAIN / W) * N);
        // SAFETY: below `n`; tasks have elements of their own.
        unsafe { fill_task(seed, stream, first * W / 4, out.at(first * N), count, &make) };
    });
}

crate::simd! {
    /// As [`fill`], from counter `first` on.
    ///
    /// # Safety
    /// As [`fill`].
    unsafe fn fill_task[T: Copy, F: Fn([u32; W]) -> [T; N], const W: usize, const N: usize]
        [T, F, W, N](
        seed: u64, stream: u64, first: usize, out: *mut T, n: usize, make: &F,
    ) -> () {
        let step = GROUP_WORDS / W * N;
        for (group, start) in (0..n).step_by(step).enumerate() {
            let counter = (first + opaque(group) * GROUP) as u64;
            let mut words = [0; GROUP_WORDS];
            for i in 0..GROUP {
                let four = philox(seed, stream, counter + i as u64);
                for k in 0..4 {
                    words[4 * i + k] = four[k];
                }
            }
            let mut made = [MaybeUninit::<[T; N]>::uninit(); GROUP_WORDS];
            for i in 0..GROUP_WORDS / W {
                let mut taken = [0; W];
                for k in 0..W {
                    taken[k] = words[i * W + k];
                }
                made[i].write((*make)(taken));
            }
            let count = step.min(n - start);
            // SAFETY: `step` elements were made; `count` from `start` on end at `n` or before.
            unsafe {
                std::ptr::copy_nonoverlapping(made.as_ptr().cast(), out.add(start), count);
            }
        }
    }
}

/// A random word as a number in 0 (inclusive) to 1 (exclusive), in steps of 2^-24.
#[inline(always)]
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / (1u32 << 24) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_arrays_have_the_words_of_their_counters() {
        for n in [0, 1, 3, 4, 63, 64, 65, GRAIN - 1, GRAIN + 7, 3 * GRAIN + 66] {
            let [mut fours, mut pairs, mut ones] = [(); 3].map(|()| vec![0; n + 1]);
            let key = [0x1234_5678_9ABC_DEF0, u64::MAX - 5];
            // SAFETY: all hold more than `n` elements.
            unsafe {
                fill(key, fours.as_mut_ptr(), n, |words: [u32; 4]| words);
                fill(key, pairs.as_mut_ptr(), n, |[a, b]: [u32; 2]| [b, a]);
                fill(key, ones.as_mut_ptr(), n, |words: [u32; 4]| [words[1]]);
            }
            let word = |i: usize, k: usize| philox(key[0], key[1], i as u64)[k];
            assert!(fours[..n].iter().enumerate().all(|(i, w)| *w == word(i / 4, i % 4)), "{n}");
            assert!(ones[..n].iter().enumerate().all(|(i, w)| *w == word(i, 1)), "{n}");
            let turned = |i: usize| word(i / 4, (i % 4) ^ 1);
            assert!(pairs[..n].iter().enumerate().all(|(i, w)| *w == turned(i)), "{n}");
            assert_eq!([fours[n], pairs[n], ones[n]], [0; 3]);
        }
    }

    // The known-answer values of the authors' Random123 distribution.
    #[test]
    fn known_answers() {
        assert_eq!(philox(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
