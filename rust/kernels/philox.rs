//! Philox4x32-10, a counter-based random generator: element `i` of a call is a pure function of
//! (seed, stream, i), so results depend neither on threads nor on the order of calculation.
//!
//! J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.

/// Four random words of counter `(index, stream)` under `seed`.
#[inline(always)]
pub fn philox(seed: u64, stream: u64, index: u64) -> [u32; 4] {
    let mut c = [index as u32, (index >> 32) as u32, stream as u32, (stream >> 32) as u32];
    let mut k = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let a = u64::from(c[0]) * 0xD251_1F53;
        let b = u64::from(c[2]) * 0xCD9E_8D57;
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// A random word as a number in 0 (inclusive) to 1 (exclusive), in steps of 2^-24.
#[inline(always)]
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / (1u32 << 24) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The known-answer values of the authors' Random123 distribution.
    #[test]
    fn known_answers() {
        assert_eq!(philox(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
