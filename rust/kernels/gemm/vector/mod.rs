//! Registers of the machine behind one interface, so that a kernel is written once for all of them.
//!
//! The functions are `#[inline(always)]` and only ever run inside a function that enables the
//! instruction set.

use crate::dtype::Element;
use crate::half_precision::half_to_f32;
use crate::kernels::scalar::Scalar;
use half::f16;

/// Elements of the longest register.
const LANES: usize = 16;

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

    /// The first `n` elements at `from`, at most [`LEN`](Vector::LEN), and zeros.
    ///
    /// # Safety
    /// `n` elements can be read.
    unsafe fn load_part(from: *const Self::Elem, n: usize) -> Self;

    /// Writes the first `n` elements, at most [`LEN`](Vector::LEN).
    ///
    /// # Safety
    /// `n` elements can be written at `to`.
    unsafe fn store_part(self, to: *mut Self::Elem, n: usize);

    /// The sum of the lanes of each of eight registers: parts of a register are added until one is
    /// left, in an order of each kind of register's own.
    ///
    /// # Safety
    /// As [`Vector::splat`].
    #[inline(always)]
    unsafe fn sums(all: [Self; 8]) -> [Self::Elem; 8] {
        let mut sums = [Self::Elem::from_f64(0.0); 8];
        for i in 0..8 {
            let mut lanes = [Self::Elem::from_f64(0.0); LANES];
            // SAFETY: promised by the caller; no register has more than `LANES` elements.
            unsafe { all[i].store(lanes.as_mut_ptr()) };
            let mut width = Self::LEN / 2;
            while width > 0 {
                for k in 0..width {
                    lanes[k] += lanes[k + width];
                }
                width /= 2;
            }
            sums[i] = lanes[0];
        }
        sums
    }

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

/// A register that is loaded from elements stored as `S`.
pub trait Load<S>: Vector {
    /// # Safety
    /// [`LEN`](Vector::LEN) elements can be read at `from`.
    unsafe fn load_as(from: *const S) -> Self;

    /// The first `n` elements at `from`, at most [`LEN`](Vector::LEN), and zeros.
    ///
    /// # Safety
    /// `n` elements can be read.
    unsafe fn load_part_as(from: *const S, n: usize) -> Self;
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
    unsafe fn load_part(from: *const T, n: usize) -> Self {
        let mut part = [T::from_f64(0.0); N];
        for (i, x) in part[..n].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            *x = unsafe { *from.add(i) };
        }
        Portable(part)
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut T, n: usize) {
        for (i, x) in self.0[..n].iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe { *to.add(i) = *x };
        }
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

impl<const N: usize> Load<f16> for Portable<f32, N> {
    #[inline(always)]
    unsafe fn load_as(from: *const f16) -> Self {
        // SAFETY: promised by the caller.
        Portable(unsafe { from.cast::<[f16; N]>().read_unaligned() }.map(half_to_f32))
    }

    #[inline(always)]
    unsafe fn load_part_as(from: *const f16, n: usize) -> Self {
        let mut part = [0.0; N];
        for (i, x) in part[..n].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            *x = half_to_f32(unsafe { *from.add(i) });
        }
        Portable(part)
    }
}

/// Elements stored as they are.
macro_rules! as_they_are {
    ($($reg:ty),*) => {$(
        impl Load<<$reg as Vector>::Elem> for $reg {
            #[inline(always)]
            unsafe fn load_as(from: *const Self::Elem) -> Self {
                // SAFETY: promised by the caller, here and below.
                unsafe { Self::load(from) }
            }

            #[inline(always)]
            unsafe fn load_part_as(from: *const Self::Elem, n: usize) -> Self {
                // SAFETY: as above.
                unsafe { Self::load_part(from, n) }
            }
        }
    )*};
}

as_they_are!(Portable<f32, 4>, Portable<f64, 2>);

#[cfg(target_arch = "x86_64")]
mod x86;
