//! Registers of AVX2 and AVX-512.

use super::{Load, Vector};
use half::f16;
use std::arch::x86_64::*;

/// The first `n` bits of 16 and of 8.
#[inline(always)]
fn first16(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

#[inline(always)]
fn first8(n: usize) -> __mmask8 {
    ((1u32 << n) - 1) as __mmask8
}

/// As many lanes of ones, of 8 and of 4.
///
/// # Safety
/// The machine has the instructions, here and below.
#[inline(always)]
unsafe fn ones8(n: usize) -> __m256i {
    // SAFETY: promised by the caller: the machine has the instructions.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn ones4(n: usize) -> __m256i {
    // SAFETY: as above.
    unsafe {
        let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), lanes)
    }
}

/// Of each register the sums of both halves, side by side: those of the low ones first.
///
/// # Safety
/// The machine has the instructions, here and below.
#[inline(always)]
unsafe fn half_sums_ps(a: __m256, b: __m256, c: __m256, d: __m256) -> __m256 {
    // SAFETY: promised by the caller, here and below.
    unsafe { _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d)) }
}

/// [`Vector::sums`], eight registers together.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn sums_ps256([a, b, c, d, e, f, g, h]: [__m256; 8]) -> [f32; 8] {
    let mut sums = [0.0; 8];
    // SAFETY: as above.
    unsafe {
        let (x, y) = (half_sums_ps(a, b, c, d), half_sums_ps(e, f, g, h));
        let (low, high) =
            (_mm256_permute2f128_ps::<0x20>(x, y), _mm256_permute2f128_ps::<0x31>(x, y));
        _mm256_storeu_ps(sums.as_mut_ptr(), _mm256_add_ps(low, high));
    }
    sums
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn sums_pd256(all: [__m256d; 8]) -> [f64; 8] {
    let mut sums = [0.0; 8];
    for i in [0, 4] {
        // SAFETY: as above.
        unsafe {
            let x = _mm256_hadd_pd(all[i], all[i + 1]);
            let y = _mm256_hadd_pd(all[i + 2], all[i + 3]);
            let (low, high) =
                (_mm256_permute2f128_pd::<0x20>(x, y), _mm256_permute2f128_pd::<0x31>(x, y));
            _mm256_storeu_pd(sums.as_mut_ptr().add(i), _mm256_add_pd(low, high));
        }
    }
    sums
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn sums_ps512(all: [__m512; 8]) -> [f32; 8] {
    // SAFETY: as above.
    unsafe {
        let mut halves = [_mm256_setzero_ps(); 8];
        for i in 0..8 {
            let (low, high) = (_mm512_castps512_ps256(all[i]), _mm512_extractf32x8_ps::<1>(all[i]));
            halves[i] = _mm256_add_ps(low, high);
        }
        sums_ps256(halves)
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn sums_pd512(all: [__m512d; 8]) -> [f64; 8] {
    // SAFETY: as above.
    unsafe {
        let mut halves = [_mm256_setzero_pd(); 8];
        for i in 0..8 {
            let (low, high) = (_mm512_castpd512_pd256(all[i]), _mm512_extractf64x4_pd::<1>(all[i]));
            halves[i] = _mm256_add_pd(low, high);
        }
        sums_pd256(halves)
    }
}

/// Implements [`Vector`] by intrinsics; those of parts take a mask before or after the address.
macro_rules! vector {
    ($reg:ty, $elem:ty, $len:expr, $splat:ident, $load:ident, $store:ident, $fma:ident,
     $add:ident, $sub:ident, $sums:ident, $first:ident,
     |$from:ident, $mask:ident| $part:expr, |$to:ident, $kept:ident, $x:ident| $put:expr) => {
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
            unsafe fn load_part($from: *const $elem, n: usize) -> Self {
                #[allow(unused_unsafe)] // a mask of bits needs no instruction
                // SAFETY: as above.
                unsafe {
                    let $mask = $first(n);
                    $part
                }
            }

            #[inline(always)]
            unsafe fn store_part(self, $to: *mut $elem, n: usize) {
                #[allow(unused_unsafe)]
                // SAFETY: as above.
                unsafe {
                    let ($kept, $x) = ($first(n), self);
                    $put
                }
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

            #[inline(always)]
            unsafe fn sums(all: [Self; 8]) -> [$elem; 8] {
                // SAFETY: as above.
                unsafe { $sums(all) }
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
    _mm512_sub_ps,
    sums_ps512,
    first16,
    |from, mask| _mm512_maskz_loadu_ps(mask, from),
    |to, mask, x| _mm512_mask_storeu_ps(to, mask, x)
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
    _mm512_sub_pd,
    sums_pd512,
    first8,
    |from, mask| _mm512_maskz_loadu_pd(mask, from),
    |to, mask, x| _mm512_mask_storeu_pd(to, mask, x)
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
    _mm256_sub_ps,
    sums_ps256,
    ones8,
    |from, mask| _mm256_maskload_ps(from, mask),
    |to, mask, x| _mm256_maskstore_ps(to, mask, x)
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
    _mm256_sub_pd,
    sums_pd256,
    ones4,
    |from, mask| _mm256_maskload_pd(from, mask),
    |to, mask, x| _mm256_maskstore_pd(to, mask, x)
);

as_they_are!(__m512, __m512d, __m256, __m256d);

/// The first `n` halves at `from`, at most 16, and zeros.
///
/// # Safety
/// `n` can be read.
#[inline(always)]
unsafe fn halves(from: *const f16, n: usize) -> [f16; 16] {
    let mut part = [f16::ZERO; 16];
    // SAFETY: promised by the caller.
    unsafe { part.as_mut_ptr().copy_from_nonoverlapping(from, n) };
    part
}

impl Load<f16> for __m512 {
    #[inline(always)]
    unsafe fn load_as(from: *const f16) -> Self {
        // SAFETY: promised by the caller, here and below.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_part_as(from: *const f16, n: usize) -> Self {
        // SAFETY: as above.
        unsafe { Self::load_as(halves(from, n).as_ptr()) }
    }
}

impl Load<f16> for __m256 {
    #[inline(always)]
    unsafe fn load_as(from: *const f16) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_part_as(from: *const f16, n: usize) -> Self {
        // SAFETY: as above.
        unsafe { Self::load_as(halves(from, n).as_ptr()) }
    }
}
