//! Instruction sets: which this machine has, and the one macro by which element loops are compiled
//! for each.
//!
//! A loop is written once in plain Rust; [`simd!`](crate::simd) compiles it for the baseline, for
//! AVX2 and for AVX-512, where the compiler vectorises it differently, and picks at run time.

pub mod channels;
pub mod pairs;
pub mod transpose;

use std::sync::atomic::{AtomicU8, Ordering};

/// The instruction sets a loop is compiled for, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// What every machine of the target has.
    Baseline = 1,
    /// AVX2 with fused multiply-add and half-precision conversions (x86-64-v3).
    Avx2 = 2,
    /// AVX-512 F, BW, DQ, VL (x86-64-v4).
    Avx512 = 3,
}

/// The best level of this machine; looked up once.
#[inline]
pub fn level() -> Level {
    static FOUND: AtomicU8 = AtomicU8::new(0);
    match FOUND.load(Ordering::Relaxed) {
        1 => Level::Baseline,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => {
            let found = detect();
            FOUND.store(found as u8, Ordering::Relaxed);
            found
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let v3 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let v4 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (v3, v4) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Baseline,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// The same index, of which the compiler no longer knows how it grows.
///
/// A loop over blocks is meant to be vectorised within blocks. Where a block is short, the compiler
/// may unroll it first and vectorise the loop over blocks instead, in which neighbours are far
/// apart: with gathers and scatters, at a tenth of the speed. It does not with this index.
#[inline(always)]
pub fn opaque(at: usize) -> usize {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut at = at;
        // SAFETY: no instruction; the register keeps its value.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) at,
                options(pure, nomem, nostack, preserves_flags));
        }
        at
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    at
}

/// Where [`prefetch`] brings lines.
#[derive(Clone, Copy, Debug)]
pub enum Cache {
    First,
    /// The first, to be written.
    FirstToWrite,
    Second,
}

/// Asks for the cache line of an element ahead of its use. Any address will do.
#[inline(always)]
pub fn prefetch<T>(at: *const T, to: Cache) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: hints, which never fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match to {
            Cache::First | Cache::FirstToWrite => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            Cache::Second => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
        }
    };
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        use std::arch::asm;
        match to {
            Cache::First => asm!("prfm pldl1keep, [{}]", in(reg) at,
                options(readonly, nostack, preserves_flags)),
            Cache::FirstToWrite => asm!("prfm pstl1keep, [{}]", in(reg) at,
                options(readonly, nostack, preserves_flags)),
            Cache::Second => asm!("prfm pldl2keep, [{}]", in(reg) at,
                options(readonly, nostack, preserves_flags)),
        }
    }
    let _ = (at, to);
}

/// Asks for all cache lines of `n` elements.
#[inline(always)]
pub fn prefetch_all<T>(at: *const T, n: usize, to: Cache) {
    const LINE_BYTES: usize = 64;
    let before = at.addr() % LINE_BYTES;
    for line in 0..(before + n * size_of::<T>()).div_ceil(LINE_BYTES) {
        prefetch(at.cast::<u8>().wrapping_add(line * LINE_BYTES), to);
    }
}

/// Defines an unsafe function whose body is compiled for every [`Level`] and chosen at each call.
/// Generics are given twice: declared, then named. Call it once per block of elements, not once per
/// element.
///
/// The body sees `FUSED`, a constant: whether the level has products that are added without
/// rounding (`mul_add`), which would be calls elsewhere.
///
/// What the body calls is compiled for the level only where it is inlined: give such functions
/// `#[inline(always)]`. Closures in the body itself belong to its level; those in an inlined
/// function, and those that come as arguments, belong to the baseline and may stay calls, so write
/// hot loops without them.
///
/// ```
/// rsnet::simd! {
///     /// Adds `y` to `x`.
///     ///
///     /// # Safety
///     /// Both hold `n` elements.
///     pub unsafe fn add[T: Copy + std::ops::AddAssign][T](x: *mut T, y: *const T, n: usize) -> () {
///         for i in 0..n {
///             // SAFETY: promised by the caller.
///             unsafe { *x.add(i) += *y.add(i) };
///         }
///     }
/// }
/// let (mut x, y) = ([1.0f32; 40], [2.0f32; 40]);
/// // SAFETY: both hold 40 elements.
/// unsafe { add(x.as_mut_ptr(), y.as_ptr(), 40) };
/// assert_eq!(x, [3.0; 40]);
/// ```
#[macro_export]
macro_rules! simd {
    ($(
        $(#[$meta:meta])*
        $vis:vis unsafe fn $name:ident[$($gen:tt)*][$($used:tt)*]($($arg:ident : $ty:ty),* $(,)?)
            -> $ret:ty $body:block
    )*) => {$(
        $(#[$meta])*
        #[inline]
        #[allow(clippy::too_many_arguments)] // an address for each operand
        $vis unsafe fn $name<$($gen)*>($($arg: $ty),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// As the dispatching function, on a machine with AVX-512.
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
                unsafe fn avx512<$($gen)*>($($arg: $ty),*) -> $ret {
                    #[allow(dead_code)]
                    const FUSED: bool = true;
                    $body
                }
                /// # Safety
                /// As the dispatching function, on a machine with AVX2, FMA and BMI2.
                #[target_feature(enable = "avx2,fma,bmi2")]
                unsafe fn avx2<$($gen)*>($($arg: $ty),*) -> $ret {
                    #[allow(dead_code)]
                    const FUSED: bool = true;
                    $body
                }
                match $crate::kernels::arch::level() {
                    $crate::kernels::arch::Level::Avx512 => {
                        // SAFETY: the machine has these instructions; the rest is promised by the
                        // caller.
                        return unsafe { avx512::<$($used)*>($($arg),*) };
                    }
                    $crate::kernels::arch::Level::Avx2 => {
                        // SAFETY: as above.
                        return unsafe { avx2::<$($used)*>($($arg),*) };
                    }
                    $crate::kernels::arch::Level::Baseline => {}
                }
            }
            #[allow(dead_code)]
            const FUSED: bool = cfg!(target_arch = "aarch64");
            $body
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opaque_index_is_the_same() {
        assert!([0, 1, 64, usize::MAX].into_iter().all(|at| opaque(at) == at));
    }
}
