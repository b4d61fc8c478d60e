//! The two kernels: columns of `B` times rows of `A`, and terms of `B` added to rows of `C`.

use crate::dtype::Element;
use crate::kernels::arch::Level;
use crate::kernels::gemm::vector::{Load, Portable, Vector};
use half::f16;

/// Rows that are multiplied at once, at most.
pub const TOGETHER: usize = 4;
/// Columns of [`Dots`], as many as [`Vector::sums`] adds, and terms of [`Sums`].
pub const WIDE: usize = 8;

/// `sums[i * WIDE + j]`: the products of `k` terms of row `i` of `A` and column `j` of `B`.
///
/// The operands: `A` and from row to row; `B` and from column to column. Terms stand side by side.
///
/// # Safety
/// The machine has the kernel's instructions, and the operands these extents.
pub type Dots<T, S> = unsafe fn((*const T, usize), (*const S, usize), usize, *mut T);

/// Adds `n` columns of some terms of `B` to rows of `C`, or begins the rows of `C` with them.
///
/// The operands: `A` and from row to row; `B` and from term to term; `C` and from row to row.
/// Columns of `B` and of `C` stand side by side.
///
/// # Safety
/// As [`Dots`].
pub type Sums<T, S> = unsafe fn((*const T, usize), (*const S, usize), (*mut T, usize), usize, bool);

/// The kernels of one instruction set, by rows - 1.
pub struct FewKernels<T: 'static, S: 'static> {
    /// Of [`WIDE`] columns, and of one.
    pub dots: [[Dots<T, S>; 2]; TOGETHER],
    /// Of [`WIDE`] terms, and of one.
    pub sums: [[Sums<T, S>; 2]; TOGETHER],
}

/// A type in which the right operand may be stored, to be multiplied as `T`.
pub trait Stored<T: 'static>: Copy + Sized + 'static {
    /// The kernels of `level`, which this machine must have for them to be called.
    fn few_kernels(level: Level) -> &'static FewKernels<T, Self>;
}

/// Elements at `from`: a register of them, or `n` and zeros.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn load<V: Vector, const WHOLE: bool>(from: *const V::Elem, n: usize) -> V {
    // SAFETY: promised by the caller.
    unsafe { if WHOLE { V::load(from) } else { V::load_part(from, n) } }
}

/// As [`load`], of elements stored as `S`.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn load_as<V: Load<S>, S, const WHOLE: bool>(from: *const S, n: usize) -> V {
    // SAFETY: promised by the caller.
    unsafe { if WHOLE { V::load_as(from) } else { V::load_part_as(from, n) } }
}

/// Adds the products of a register of terms, or of `n` terms.
///
/// # Safety
/// As [`Dots`].
#[inline(always)]
unsafe fn add_dots<V: Load<S>, S, const M: usize, const N: usize, const WHOLE: bool>(
    (a, a_step): (*const V::Elem, usize),
    (b, b_step): (*const S, usize),
    n: usize,
    lanes: &mut [[V; N]; M],
) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut row = [V::splat(V::Elem::from_f64(0.0)); M];
        for i in 0..M {
            row[i] = load::<V, WHOLE>(a.add(i * a_step), n);
        }
        for j in 0..N {
            let column = load_as::<V, S, WHOLE>(b.add(j * b_step), n);
            for i in 0..M {
                lanes[i][j] = row[i].mul_add(column, lanes[i][j]);
            }
        }
    }
}

/// As [`Dots`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn dots<V: Load<S>, S, const M: usize, const N: usize>(
    (a, a_step): (*const V::Elem, usize),
    (b, b_step): (*const S, usize),
    k: usize,
    sums: *mut V::Elem,
) {
    // SAFETY: promised by the caller; registers end at `k`.
    unsafe {
        let mut lanes = [[V::splat(V::Elem::from_f64(0.0)); N]; M];
        let whole = k / V::LEN * V::LEN;
        for p in (0..whole).step_by(V::LEN) {
            let (a, b) = ((a.add(p), a_step), (b.add(p), b_step));
            add_dots::<V, S, M, N, true>(a, b, V::LEN, &mut lanes);
        }
        if whole < k {
            let (a, b) = ((a.add(whole), a_step), (b.add(whole), b_step));
            add_dots::<V, S, M, N, false>(a, b, k - whole, &mut lanes);
        }
        for i in 0..M {
            let mut row = [V::splat(V::Elem::from_f64(0.0)); WIDE];
            row[..N].copy_from_slice(&lanes[i]);
            *sums.add(i * WIDE).cast() = V::sums(row);
        }
    }
}

/// Adds a register of columns of the terms, or `n` of them.
///
/// # Safety
/// As [`Sums`].
#[inline(always)]
unsafe fn add_terms<V: Load<S>, S, const M: usize, const N: usize, const WHOLE: bool>(
    factors: &[[V; N]; M],
    (b, b_step): (*const S, usize),
    (c, c_step): (*mut V::Elem, usize),
    n: usize,
    begin: bool,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut sums = [V::splat(V::Elem::from_f64(0.0)); M];
        for i in 0..if begin { 0 } else { M } {
            sums[i] = load::<V, WHOLE>(c.add(i * c_step), n);
        }
        for p in 0..N {
            let row = load_as::<V, S, WHOLE>(b.add(p * b_step), n);
            for i in 0..M {
                sums[i] = factors[i][p].mul_add(row, sums[i]);
            }
        }
        for i in 0..M {
            let to = c.add(i * c_step);
            if WHOLE {
                sums[i].store(to);
            } else {
                sums[i].store_part(to, n);
            }
        }
    }
}

/// As [`Sums`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn sums<V: Load<S>, S, const M: usize, const N: usize>(
    (a, a_step): (*const V::Elem, usize),
    (b, b_step): (*const S, usize),
    (c, c_step): (*mut V::Elem, usize),
    n: usize,
    begin: bool,
) {
    // SAFETY: promised by the caller; registers end at `n`.
    unsafe {
        let mut factors = [[V::splat(V::Elem::from_f64(0.0)); N]; M];
        for i in 0..M {
            for p in 0..N {
                factors[i][p] = V::splat(*a.add(i * a_step + p));
            }
        }
        let whole = n / V::LEN * V::LEN;
        for j in (0..whole).step_by(V::LEN) {
            let (b, c) = ((b.add(j), b_step), (c.add(j), c_step));
            add_terms::<V, S, M, N, true>(&factors, b, c, V::LEN, begin);
        }
        if whole < n {
            let (b, c) = ((b.add(whole), b_step), (c.add(whole), c_step));
            add_terms::<V, S, M, N, false>(&factors, b, c, n - whole, begin);
        }
    }
}

/// Defines a module with both compiled with the given features.
macro_rules! compiled {
    ($name:ident $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// As [`Dots`].
            $(#[target_feature(enable = $features)])?
            pub unsafe fn run_dots<V: Load<S>, S, const M: usize, const N: usize>(
                a: (*const V::Elem, usize),
                b: (*const S, usize),
                k: usize,
                sums: *mut V::Elem,
            ) {
                // SAFETY: promised by the caller.
                unsafe { dots::<V, S, M, N>(a, b, k, sums) }
            }

            /// # Safety
            /// As [`Sums`].
            $(#[target_feature(enable = $features)])?
            pub unsafe fn run_sums<V: Load<S>, S, const M: usize, const N: usize>(
                a: (*const V::Elem, usize),
                b: (*const S, usize),
                c: (*mut V::Elem, usize),
                n: usize,
                begin: bool,
            ) {
                // SAFETY: promised by the caller.
                unsafe { sums::<V, S, M, N>(a, b, c, n, begin) }
            }
        }
    };
}

compiled!(baseline);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
compiled!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");

/// The kernels of one instruction set and register.
macro_rules! kernels {
    ($set:ident, $vector:ty, $stored:ty, $($rows:literal)*) => {
        &FewKernels {
            dots: [$([
                $set::run_dots::<$vector, $stored, $rows, WIDE>,
                $set::run_dots::<$vector, $stored, $rows, 1>,
            ]),*],
            sums: [$([
                $set::run_sums::<$vector, $stored, $rows, WIDE>,
                $set::run_sums::<$vector, $stored, $rows, 1>,
            ]),*],
        }
    };
}

/// Implements [`Stored`].
macro_rules! stored {
    ($($stored:ty as $t:ty, $baseline:ty, $avx2:ident, $avx512:ident;)*) => {$(
        impl Stored<$t> for $stored {
            fn few_kernels(level: Level) -> &'static FewKernels<$t, Self> {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => {
                        kernels!(avx512, std::arch::x86_64::$avx512, $stored, 1 2 3 4)
                    }
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => kernels!(avx2, std::arch::x86_64::$avx2, $stored, 1 2 3 4),
                    _ => kernels!(baseline, $baseline, $stored, 1 2 3 4),
                }
            }
        }
    )*};
}

stored! {
    f32 as f32, Portable<f32, 4>, __m256, __m512;
    f16 as f32, Portable<f32, 4>, __m256, __m512;
    f64 as f64, Portable<f64, 2>, __m256d, __m512d;
}
