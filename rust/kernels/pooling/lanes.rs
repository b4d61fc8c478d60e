//! What pooling does with registers beyond [`Vector`]: neighbours of a row side by side.

use crate::kernels::gemm::vector::{Portable, Vector};
use crate::kernels::scalar::Scalar;

/// A register as a stretch of a row.
pub trait Lanes: Vector {
    /// The greater of each two; `self` where one is no number.
    ///
    /// # Safety
    /// As [`Vector::splat`], here and below.
    unsafe fn greatest(self, b: Self) -> Self;

    /// `self / b`.
    ///
    /// # Safety
    /// As above.
    unsafe fn div(self, b: Self) -> Self;

    /// The elements of a stretch of two registers that have even places, and those with odd ones.
    ///
    /// # Safety
    /// As above.
    unsafe fn halves(self, next: Self) -> [Self; 2];

    /// The stretch one element on, which ends with `last`.
    ///
    /// # Safety
    /// As above.
    unsafe fn forth(self, last: Self::Elem) -> Self;

    /// The stretch one element back, which begins with `first`.
    ///
    /// # Safety
    /// As above.
    unsafe fn back(self, first: Self::Elem) -> Self;
}

impl<T: Scalar, const N: usize> Lanes for Portable<T, N> {
    #[inline(always)]
    unsafe fn greatest(mut self, b: Self) -> Self {
        for i in 0..N {
            self.0[i] = if b.0[i] > self.0[i] { b.0[i] } else { self.0[i] };
        }
        self
    }

    #[inline(always)]
    unsafe fn div(mut self, b: Self) -> Self {
        for i in 0..N {
            self.0[i] /= b.0[i];
        }
        self
    }

    #[inline(always)]
    unsafe fn halves(self, next: Self) -> [Self; 2] {
        let (mut even, mut odd) = (self, self);
        for i in 0..N / 2 {
            (even.0[i], odd.0[i]) = (self.0[2 * i], self.0[2 * i + 1]);
            (even.0[N / 2 + i], odd.0[N / 2 + i]) = (next.0[2 * i], next.0[2 * i + 1]);
        }
        [even, odd]
    }

    #[inline(always)]
    unsafe fn forth(self, last: T) -> Self {
        let mut moved = [last; N];
        moved[..N - 1].copy_from_slice(&self.0[1..]);
        Portable(moved)
    }

    #[inline(always)]
    unsafe fn back(self, first: T) -> Self {
        let mut moved = [first; N];
        moved[1..].copy_from_slice(&self.0[..N - 1]);
        Portable(moved)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, Vector};
    use crate::kernels::arch::pairs::x86::{apart_4, apart_8};
    use std::arch::x86_64::*;

    /// Implements [`Lanes`] by intrinsics.
    macro_rules! lanes {
        ($reg:ty, $max:ident, $div:ident, |$a:ident, $b:ident| $halves:expr,
         |$now:ident, $next:ident| $forth:expr, |$same:ident, $before:ident| $back:expr) => {
            impl Lanes for $reg {
                #[inline(always)]
                unsafe fn greatest(self, b: Self) -> Self {
                    // SAFETY: the machine has the instructions, here and below.
                    unsafe { $max(b, self) }
                }

                #[inline(always)]
                unsafe fn div(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $div(self, b) }
                }

                #[inline(always)]
                unsafe fn halves(self, next: Self) -> [Self; 2] {
                    let ($a, $b) = (self, next);
                    // SAFETY: as above.
                    unsafe { $halves }
                }

                #[inline(always)]
                unsafe fn forth(self, last: Self::Elem) -> Self {
                    // SAFETY: as above.
                    unsafe {
                        let ($now, $next) = (self, Self::splat(last));
                        $forth
                    }
                }

                #[inline(always)]
                unsafe fn back(self, first: Self::Elem) -> Self {
                    // SAFETY: as above.
                    unsafe {
                        let ($same, $before) = (self, Self::splat(first));
                        $back
                    }
                }
            }
        };
    }

    lanes!(
        __m512,
        _mm512_max_ps,
        _mm512_div_ps,
        |a, b| apart_4(a, b),
        |now, next| {
            let (now, next) = (_mm512_castps_si512(now), _mm512_castps_si512(next));
            _mm512_castsi512_ps(_mm512_alignr_epi32::<1>(next, now))
        },
        |now, before| {
            let (now, before) = (_mm512_castps_si512(now), _mm512_castps_si512(before));
            _mm512_castsi512_ps(_mm512_alignr_epi32::<15>(now, before))
        }
    );
    lanes!(
        __m512d,
        _mm512_max_pd,
        _mm512_div_pd,
        |a, b| apart_8(a, b),
        |now, next| {
            let (now, next) = (_mm512_castpd_si512(now), _mm512_castpd_si512(next));
            _mm512_castsi512_pd(_mm512_alignr_epi64::<1>(next, now))
        },
        |now, before| {
            let (now, before) = (_mm512_castpd_si512(now), _mm512_castpd_si512(before));
            _mm512_castsi512_pd(_mm512_alignr_epi64::<7>(now, before))
        }
    );
    // Instructions of AVX2 move elements within the halves of a register: what crosses its middle
    // takes one more.
    lanes!(
        __m256,
        _mm256_max_ps,
        _mm256_div_ps,
        |a, b| {
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(a, b));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(a, b));
            let even = _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even));
            [even, _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odd))]
        },
        |now, next| {
            let middle = _mm256_castps_si256(_mm256_permute2f128_ps::<0x21>(now, next));
            _mm256_castsi256_ps(_mm256_alignr_epi8::<4>(middle, _mm256_castps_si256(now)))
        },
        |now, before| {
            let middle = _mm256_castps_si256(_mm256_permute2f128_ps::<0x21>(before, now));
            _mm256_castsi256_ps(_mm256_alignr_epi8::<12>(_mm256_castps_si256(now), middle))
        }
    );
    lanes!(
        __m256d,
        _mm256_max_pd,
        _mm256_div_pd,
        |a, b| {
            let even = _mm256_permute4x64_pd::<0xd8>(_mm256_unpacklo_pd(a, b));
            [even, _mm256_permute4x64_pd::<0xd8>(_mm256_unpackhi_pd(a, b))]
        },
        |now, next| {
            let middle = _mm256_permute2f128_pd::<0x21>(now, next);
            _mm256_shuffle_pd::<0b0101>(now, middle)
        },
        |now, before| {
            let middle = _mm256_permute2f128_pd::<0x21>(before, now);
            _mm256_shuffle_pd::<0b0101>(middle, now)
        }
    );
}
