//! Registers of the machine behind one interface, so that the micro-kernel is written once.
//!
//! The functions are `#[inline(always)]` and only ever run inside a function that enables the
//! instruction set (`micro.rs`).

use crate::kernels::scalar::Scalar;

/// A register of `LEN` elements.
pub trait Vector: Copy {
    type Elem: Scalar;
    const LEN: usize;

    /// Every lane is `x`.
    ///
    /// # Safety
    /// The machine has the instructions of this type, here and below.
    unsafe fn splat(x: Self::Elem) -> Self;

    /// # Safety
    /// `LEN` elements can be read at `from`.
    unsafe fn load(from: *const Self::Elem) -> Self;

    /// # Safety
    /// `LEN` elements can be written at `to`.
    unsafe fn store(self, to: *mut Self::Elem);

    /// `self * b + c`.
    ///
    /// # Safety
    /// As [`Vector::splat`].
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;

    /// `self + b`.
    ///
    /// # Safety
    /// As [`Vector::splat`].
    unsafe fn add(self, b: Self) -> Self;

    /// `self - b`.
    ///
    /// # Safety
    /// As [`Vector::splat`].
    unsafe fn sub(self, b: Self) -> Self;
}

/// Sixteen bytes that the compiler keeps in a register of the baseline (SSE2, NEON).
#[derive(Clone, Copy)]
pub struct Portable<T, const N: usize>(pub [T; N]);

impl<T: Scalar, const N: usize> Vector for Portable<T, N> {
    type Elem = T;
    const LEN: usize = N;

    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Portable([x; N])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: promised by the caller.
        Portable(unsafe { from.cast::<[T; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: promised by the caller.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn mul_add(self, b: Self, mut c: Self) -> Self {
        for i in 0..N {
            // Without the instruction a fused product is a call.
            c.0[i] = if cfg!(target_arch = "aarch64") {
                num_traits::Float::mul_add(self.0[i], b.0[i], c.0[i])
            } else {
                self.0[i] * b.0[i] + c.0[i]
            };
        }
        c
    }

    #[inline(always)]
    unsafe fn add(mut self, b: Self) -> Self {
        for i in 0..N {
            self.0[i] += b.0[i];
        }
        self
    }

    #[inline(always)]
    unsafe fn sub(mut self, b: Self) -> Self {
        for i in 0..N {
            self.0[i] -= b.0[i];
        }
        self
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    /// Implements [`Vector`] by intrinsics.
    macro_rules! vector {
        ($reg:ty, $elem:ty, $len:expr, $splat:ident, $load:ident, $store:ident, $fma:ident, $add:ident, $sub:ident) => {
            impl Vector for $reg {
                type Elem = $elem;
                const LEN: usize = $len;

                #[inline(always)]
                unsafe fn splat(x: $elem) -> Self {
                    // SAFETY: the machine has the instruction; here and below promised by the
                    // caller, as is what memory can be read and written.
                    unsafe { $splat(x) }
                }

                #[inline(always)]
                unsafe fn load(from: *const $elem) -> Self {
                    // SAFETY: as above.
                    unsafe { $load(from) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut $elem) {
                    // SAFETY: as above.
                    unsafe { $store(to, self) }
                }

                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fma(self, b, c) }
                }

                #[inline(always)]
                unsafe fn add(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $add(self, b) }
                }

                #[inline(always)]
                unsafe fn sub(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $sub(self, b) }
                }
            }
        };
    }

    vector!(
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_sub_ps
    );
    vector!(
        __m512d,
        f64,
        8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_fmadd_pd,
        _mm512_add_pd,
        _mm512_sub_pd
    );
    vector!(
        __m256,
        f32,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_sub_ps
    );
    vector!(
        __m256d,
        f64,
        4,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_fmadd_pd,
        _mm256_add_pd,
        _mm256_sub_pd
    );
}
