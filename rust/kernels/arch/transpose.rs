//! Transposition of squares in registers. The compiler turns a plain loop into element-wise moves.

/// A cache line, all of which is used before the next rows of the source are read.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const LINE_BYTES: usize = 64;

/// Side of the squares of [`squares_4`], a register of elements.
pub const SIDE_4: usize = if cfg!(target_arch = "aarch64") { 4 } else { 8 };
/// Side of the squares of [`squares_8`].
pub const SIDE_8: usize = SIDE_4 / 2;

/// `to[y, x] = from[x, y]` in squares of [`SIDE_4`], as far as they fit in `0..n` and `0..m`;
/// returns how far that is: `(0, 0)` where the machine has no such instructions.
///
/// # Safety
/// Both hold these elements with the given distances between rows, and do not overlap.
pub unsafe fn squares_4(
    from: (*const f32, isize),
    to: (*mut f32, isize),
    (n, m): (usize, usize),
) -> (usize, usize) {
    let (n, m) = (n / SIDE_4 * SIDE_4, m / SIDE_4 * SIDE_4);
    #[cfg(target_arch = "x86_64")]
    if super::level() >= super::Level::Avx2 {
        // SAFETY: the machine has AVX2; the rest is promised by the caller.
        unsafe { x86::squares_4(from, to, n, m) };
        return (n, m);
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: promised by the caller.
        unsafe { arm64::squares_4(from, to, n, m) };
        (n, m)
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        let _ = (from, to, n, m);
        (0, 0)
    }
}

/// As [`squares_4`], for elements of eight bytes and in squares of [`SIDE_8`].
///
/// # Safety
/// As [`squares_4`].
pub unsafe fn squares_8(
    from: (*const f64, isize),
    to: (*mut f64, isize),
    (n, m): (usize, usize),
) -> (usize, usize) {
    let (n, m) = (n / SIDE_8 * SIDE_8, m / SIDE_8 * SIDE_8);
    #[cfg(target_arch = "x86_64")]
    if super::level() >= super::Level::Avx2 {
        // SAFETY: the machine has AVX2; the rest is promised by the caller.
        unsafe { x86::squares_8(from, to, n, m) };
        return (n, m);
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: promised by the caller.
        unsafe { arm64::squares_8(from, to, n, m) };
        (n, m)
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        let _ = (from, to, n, m);
        (0, 0)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LINE_BYTES;
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::squares_4`]; `n` and `m` are multiples of 8.
    #[target_feature(enable = "avx2")]
    pub unsafe fn squares_4(from: (*const f32, isize), to: (*mut f32, isize), n: usize, m: usize) {
        const LINE: usize = LINE_BYTES / size_of::<f32>();
        let square = |x: usize, y: usize| {
            let (x, y) = (x as isize, y as isize);
            // SAFETY: the square lies inside of both.
            unsafe {
                let from = (from.0.offset(x * from.1 + y), from.1);
                square_4(from, (to.0.offset(y * to.1 + x), to.1));
            }
        };
        if n <= LINE {
            // Rows of the source are short, so only a few rows of the result are filled at a time.
            for y in (0..n).step_by(8) {
                for x in (0..m).step_by(8) {
                    square(x, y);
                }
            }
            return;
        }
        for first in (0..n).step_by(LINE) {
            for x in (0..m).step_by(8) {
                for y in (first..n.min(first + LINE)).step_by(8) {
                    square(x, y);
                }
            }
        }
    }

    /// # Safety
    /// As [`super::squares_8`]; `n` and `m` are multiples of 4.
    #[target_feature(enable = "avx2")]
    pub unsafe fn squares_8(from: (*const f64, isize), to: (*mut f64, isize), n: usize, m: usize) {
        const LINE: usize = LINE_BYTES / size_of::<f64>();
        for first in (0..n).step_by(LINE) {
            for x in (0..m).step_by(4) {
                for y in (first..n.min(first + LINE)).step_by(4) {
                    let (x, y) = (x as isize, y as isize);
                    // SAFETY: the square lies inside of both.
                    unsafe {
                        let from = (from.0.offset(x * from.1 + y), from.1);
                        square_8(from, (to.0.offset(y * to.1 + x), to.1));
                    }
                }
            }
        }
    }

    /// # Safety
    /// Both hold eight rows of eight.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn square_4(from: (*const f32, isize), to: (*mut f32, isize)) {
        let mut r = [_mm256_setzero_ps(); 8];
        for i in 0..8 {
            // SAFETY: promised by the caller.
            r[i] = unsafe { _mm256_loadu_ps(from.0.offset(i as isize * from.1)) };
        }
        // Pairs of rows, then fours, then the halves of registers.
        let mut t = r;
        for i in [0, 2, 4, 6] {
            t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
            t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
        }
        for i in [0, 4] {
            r[i] = _mm256_shuffle_ps::<0x44>(t[i], t[i + 2]);
            r[i + 1] = _mm256_shuffle_ps::<0xee>(t[i], t[i + 2]);
            r[i + 2] = _mm256_shuffle_ps::<0x44>(t[i + 1], t[i + 3]);
            r[i + 3] = _mm256_shuffle_ps::<0xee>(t[i + 1], t[i + 3]);
        }
        for i in 0..4 {
            t[i] = _mm256_permute2f128_ps::<0x20>(r[i], r[i + 4]);
            t[i + 4] = _mm256_permute2f128_ps::<0x31>(r[i], r[i + 4]);
        }
        for i in 0..8 {
            // SAFETY: promised by the caller.
            unsafe { _mm256_storeu_ps(to.0.offset(i as isize * to.1), t[i]) };
        }
    }

    /// # Safety
    /// Both hold four rows of four.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn square_8(from: (*const f64, isize), to: (*mut f64, isize)) {
        let mut r = [_mm256_setzero_pd(); 4];
        for i in 0..4 {
            // SAFETY: promised by the caller.
            r[i] = unsafe { _mm256_loadu_pd(from.0.offset(i as isize * from.1)) };
        }
        let mut t = r;
        for i in [0, 2] {
            t[i] = _mm256_unpacklo_pd(r[i], r[i + 1]);
            t[i + 1] = _mm256_unpackhi_pd(r[i], r[i + 1]);
        }
        for i in 0..2 {
            r[i] = _mm256_permute2f128_pd::<0x20>(t[i], t[i + 2]);
            r[i + 2] = _mm256_permute2f128_pd::<0x31>(t[i], t[i + 2]);
        }
        for i in 0..4 {
            // SAFETY: promised by the caller.
            unsafe { _mm256_storeu_pd(to.0.offset(i as isize * to.1), r[i]) };
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm64 {
    use super::{LINE_BYTES, SIDE_4, SIDE_8};
    use std::arch::aarch64::*;

    /// All squares of a matrix.
    macro_rules! squares {
        ($squares:ident, $square:ident, $elem:ty, $side:ident) => {
            /// # Safety
            /// As [`super::squares_4`]; `n` and `m` are multiples of the side.
            #[target_feature(enable = "neon")]
            pub unsafe fn $squares(
                from: (*const $elem, isize),
                to: (*mut $elem, isize),
                n: usize,
                m: usize,
            ) {
                const LINE: usize = LINE_BYTES / size_of::<$elem>();
                for first in (0..n).step_by(LINE) {
                    for x in (0..m).step_by($side) {
                        for y in (first..n.min(first + LINE)).step_by($side) {
                            let (x, y) = (x as isize, y as isize);
                            // SAFETY: the square lies inside of both.
                            unsafe {
                                let from = (from.0.offset(x * from.1 + y), from.1);
                                $square(from, (to.0.offset(y * to.1 + x), to.1));
                            }
                        }
                    }
                }
            }
        };
    }

    squares!(squares_4, square_4, f32, SIDE_4);
    squares!(squares_8, square_8, f64, SIDE_8);

    /// # Safety
    /// Both hold four rows of four.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn square_4(from: (*const f32, isize), to: (*mut f32, isize)) {
        // SAFETY: promised by the caller.
        let r = [0, 1, 2, 3].map(|i| unsafe { vld1q_f32(from.0.offset(i * from.1)) });
        // Even rows and odd ones, then all.
        let zip = |a, b| (vzip1q_f32(a, b), vzip2q_f32(a, b));
        let ((a, b), (c, d)) = (zip(r[0], r[2]), zip(r[1], r[3]));
        let ((a, b), (c, d)) = (zip(a, c), zip(b, d));
        let t = [a, b, c, d];
        for i in 0..4 {
            // SAFETY: promised by the caller.
            unsafe { vst1q_f32(to.0.offset(i as isize * to.1), t[i]) };
        }
    }

    /// # Safety
    /// Both hold two rows of two.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn square_8(from: (*const f64, isize), to: (*mut f64, isize)) {
        // SAFETY: promised by the caller.
        unsafe {
            let (a, b) = (vld1q_f64(from.0), vld1q_f64(from.0.offset(from.1)));
            vst1q_f64(to.0, vtrn1q_f64(a, b));
            vst1q_f64(to.0.offset(to.1), vtrn2q_f64(a, b));
        }
    }
}
