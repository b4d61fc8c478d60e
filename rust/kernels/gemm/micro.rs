//! The micro-kernel: a tile of `C` that stays in registers while `k` runs.
//!
//! One generic function, compiled for every height of a tile, one or two registers of columns, and
//! every instruction set. All users (matrix products, convolutions) bring their operands into the
//! order that it reads.
//!
//! K. Goto, R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.

use super::vector::{Portable, Vector};
use crate::dtype::Element;
use crate::kernels::arch::{Cache, Level, level, prefetch};

/// Registers of columns in a tile, at most.
pub const WIDE: usize = 2;
/// Rows of a tile, at most, on any machine.
pub const TALLEST: usize = 14;
/// Elements of the largest tile.
pub const TILE: usize = TALLEST * WIDE * 16;

/// How a tile's operands are addressed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// `A` stands in panels: element `(i, p)` is at `p * a_step + i`.
    Panels,
    /// `A` stands in blocks of [`BLOCK`] terms: at `p / BLOCK * a_step + i * BLOCK + p % BLOCK`.
    Blocks,
    /// `A` stands in panels, and row `p` of `B` is at `offsets[p]`.
    TermsByOffset,
    /// Row `i` of `A` is at `offsets[i]`, its terms one after the other.
    RowsByOffset,
    /// Term `p` of `A` is at `offsets[p]`, and rows have every second element from there on.
    EverySecond,
    /// As above, with every fourth element.
    EveryFourth,
}

/// Ways of [`Access`].
const WAYS: usize = Access::EveryFourth as usize + 1;

/// Elements from a row of `A` to the next, where terms are at offsets; 0 for other ways.
const fn step(access: u8) -> usize {
    const SECOND: u8 = Access::EverySecond as u8;
    const FOURTH: u8 = Access::EveryFourth as u8;
    match access {
        SECOND => 2,
        FOURTH => 4,
        _ => 0,
    }
}

/// From this many terms on, what a tile writes is no longer near when its sums are done.
const FETCH_FROM: usize = 128;

/// Terms of a block.
pub const BLOCK: usize = 16;

/// The operands of one tile. Distances are in elements.
#[derive(Clone, Copy)]
pub struct Tile<T> {
    pub k: usize,
    pub a: *const T,
    pub a_step: usize,
    /// Row `p` of register `j` is at `p * b_step + j * b_next`, unless offsets say where.
    pub b: *const T,
    pub b_step: usize,
    pub b_next: usize,
    /// Of terms or of rows.
    pub offsets: *const usize,
    /// Row `i` of register `j` is at `i * c_step + j * c_next`.
    pub c: *mut T,
    pub c_step: usize,
    pub c_next: usize,
    /// Adds to `C` instead of writing it.
    pub add: bool,
    /// An element for each row that is added, or null.
    pub bias: *const T,
}

/// Computes a tile.
///
/// # Safety
/// The machine has the kernel's instructions, and the tile's operands have its extents.
pub type TileFn<T> = unsafe fn(&Tile<T>);

/// The micro-kernels of one instruction set.
pub struct Kernels<T: 'static> {
    /// Rows of the tallest tile.
    pub rows: usize,
    /// Elements of a register.
    pub lanes: usize,
    /// By rows - 1, registers of columns - 1 and access.
    all: &'static [[[TileFn<T>; WAYS]; WIDE]],
}

impl<T> Kernels<T> {
    /// Columns of a full tile.
    pub fn columns(&self) -> usize {
        WIDE * self.lanes
    }

    /// The kernel of `rows` rows and `registers` registers of columns.
    #[inline]
    pub fn get(&self, rows: usize, registers: usize, access: Access) -> TileFn<T> {
        self.all[rows - 1][registers - 1][access as usize]
    }
}

/// Adds the products of a term: number `p` of block `first`.
///
/// # Safety
/// As [`TileFn`].
#[inline(always)]
unsafe fn term<V: Vector, const ACCESS: u8, const M: usize, const N: usize>(
    t: &Tile<V::Elem>,
    (a, at, mut b): (*const V::Elem, &[*const V::Elem; M], *const V::Elem),
    (first, p): (usize, usize),
    sums: &mut [[V; N]; M],
) {
    // SAFETY: promised by the caller.
    unsafe {
        if ACCESS == Access::TermsByOffset as u8 {
            b = t.b.add(*t.offsets.add(first));
        }
        let step = const { step(ACCESS) };
        let a = if step > 0 { t.a.add(*t.offsets.add(first)) } else { a };
        let mut row = [V::splat(V::Elem::from_f64(0.0)); N];
        for j in 0..N {
            row[j] = V::load(b.add(j * t.b_next));
        }
        for i in 0..M {
            let x = V::splat(if ACCESS == Access::Blocks as u8 {
                *a.add(i * BLOCK + p)
            } else if ACCESS == Access::RowsByOffset as u8 {
                *at[i].add(first)
            } else if step > 0 {
                *a.add(i * step)
            } else {
                *a.add(i)
            });
            for j in 0..N {
                sums[i][j] = x.mul_add(row[j], sums[i][j]);
            }
        }
    }
}

/// The tile of `M` rows and `N` registers.
///
/// # Safety
/// As [`TileFn`].
#[inline(always)]
unsafe fn tile<V: Vector, const ACCESS: u8, const M: usize, const N: usize>(t: &Tile<V::Elem>) {
    // SAFETY: promised by the caller.
    unsafe {
        let zero = V::splat(V::Elem::from_f64(0.0));
        let mut sums = [[zero; N]; M];
        let mut at = [t.a; M];
        if ACCESS == Access::RowsByOffset as u8 {
            for i in 0..M {
                at[i] = t.a.add(*t.offsets.add(i));
            }
        }
        // `C` is read and written only after all terms.
        for i in 0..if t.k < FETCH_FROM { 0 } else { M } {
            for j in 0..N {
                prefetch(t.c.wrapping_add(i * t.c_step + j * t.c_next), Cache::FirstToWrite);
            }
        }
        let (mut a, mut b) = (t.a, t.b);
        // Terms whose elements of a row of `A` stand side by side.
        let together = if ACCESS == Access::Blocks as u8 { BLOCK } else { 1 };
        for first in 0..t.k / together {
            for p in 0..together {
                term::<V, ACCESS, M, N>(t, (a, &at, b), (first, p), &mut sums);
                b = b.wrapping_add(t.b_step);
            }
            if const { step(ACCESS) } > 0 {
                // The next terms follow, and are read only after all tiles with these.
                for j in 0..N {
                    prefetch(b.wrapping_add(t.k * t.b_step + j * t.b_next), Cache::Second);
                }
            }
            if ACCESS == Access::Panels as u8 {
                // Panels follow one another, and the processor does not foresee the next one.
                prefetch(a.wrapping_add(t.k * t.a_step), Cache::Second);
            }
            a = a.wrapping_add(t.a_step);
        }
        // The rest is a loop of its own: one loop with a changing end keeps sums out of registers.
        for p in 0..t.k % together {
            term::<V, ACCESS, M, N>(t, (a, &at, b), (0, p), &mut sums);
            b = b.wrapping_add(t.b_step);
        }
        for i in 0..M {
            for j in 0..N {
                let to = t.c.add(i * t.c_step + j * t.c_next);
                let mut sum = sums[i][j];
                if !t.bias.is_null() {
                    sum = sum.add(V::splat(*t.bias.add(i)));
                }
                if t.add {
                    sum = sum.add(V::load(to));
                }
                sum.store(to);
            }
        }
    }
}

/// Defines a module with [`tile`] compiled with the given features.
macro_rules! compiled {
    ($name:ident $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// As [`TileFn`].
            $(#[target_feature(enable = $features)])?
            pub unsafe fn run<V: Vector, const ACCESS: u8, const M: usize, const N: usize>(
                t: &Tile<V::Elem>,
            ) {
                // SAFETY: promised by the caller.
                unsafe { tile::<V, ACCESS, M, N>(t) }
            }
        }
    };
}

compiled!(baseline);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

/// The kernels of one instruction set and register.
macro_rules! kernels {
    ($set:ident, $vector:ty, $($rows:literal)*) => {{
        const ROWS: usize = [$($rows),*].len();
        &Kernels {
            rows: ROWS,
            lanes: <$vector as Vector>::LEN,
            all: &[$([kernels!($set, $vector, $rows; 1), kernels!($set, $vector, $rows; 2)]),*],
        }
    }};
    ($set:ident, $vector:ty, $rows:literal; $registers:literal) => {
        [
            $set::run::<$vector, 0, $rows, $registers>,
            $set::run::<$vector, 1, $rows, $registers>,
            $set::run::<$vector, 2, $rows, $registers>,
            $set::run::<$vector, 3, $rows, $registers>,
            $set::run::<$vector, 4, $rows, $registers>,
            $set::run::<$vector, 5, $rows, $registers>,
        ]
    };
}

/// The kernels of a type for a machine.
macro_rules! for_levels {
    ($level:expr, $baseline:ty, $avx2:ident, $avx512:ident) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                kernels!(avx512, std::arch::x86_64::$avx512, 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => kernels!(avx2, std::arch::x86_64::$avx2, 1 2 3 4 5 6),
            // Twelve rows leave eight of 32 registers for operands; with fourteen the compiler
            // moves sums about. What it makes of arrays is what it makes of NEON's intrinsics.
            #[cfg(target_arch = "aarch64")]
            _ => kernels!(baseline, $baseline, 1 2 3 4 5 6 7 8 9 10 11 12),
            #[cfg(not(target_arch = "aarch64"))]
            _ => kernels!(baseline, $baseline, 1 2 3 4 5 6),
        }
    };
}

/// An element type with micro-kernels.
pub trait Tiled: Sized + 'static {
    /// The kernels of `level`, which this machine must have for them to be called.
    fn kernels_of(level: Level) -> &'static Kernels<Self>;

    /// The kernels of this machine.
    #[inline]
    fn kernels() -> &'static Kernels<Self> {
        Self::kernels_of(level())
    }
}

impl Tiled for f32 {
    fn kernels_of(level: Level) -> &'static Kernels<f32> {
        for_levels!(level, Portable<f32, 4>, __m256, __m512)
    }
}

impl Tiled for f64 {
    fn kernels_of(level: Level) -> &'static Kernels<f64> {
        for_levels!(level, Portable<f64, 2>, __m256d, __m512d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::naive::{close, noise};
    use crate::kernels::real::Real;

    /// Where element `(i, p)` of `A` is.
    fn place(access: Access, a_step: usize, offsets: &[usize], i: usize, p: usize) -> usize {
        match access {
            Access::Panels | Access::TermsByOffset => p * a_step + i,
            Access::Blocks => p / BLOCK * a_step + i * BLOCK + p % BLOCK,
            Access::RowsByOffset => offsets[i] + p,
            Access::EverySecond => offsets[p] + 2 * i,
            Access::EveryFourth => offsets[p] + 4 * i,
        }
    }

    /// Runs one kernel beside plain sums.
    fn check<T: Real>(level: Level, rows: usize, registers: usize, access: Access) {
        let kernels = T::kernels_of(level);
        let (k, columns) = (2 * BLOCK - rows, registers * kernels.lanes);
        let [a, b, c, bias] = [(4000, 1), (9000, 2), (14 * 40, 3), (14, 4)]
            .map(|(len, seed)| noise(len, seed).into_iter().map(T::of).collect::<Vec<_>>());
        let count = if access == Access::RowsByOffset { rows } else { k };
        let offsets: Vec<usize> = (0..count).map(|i| i * 7 % 90 * 3).collect();
        let a_step = if access == Access::Blocks { 14 * BLOCK } else { rows };
        for (add, with_bias) in [(false, true), (true, false)] {
            let mut got = c.clone();
            let tile = Tile {
                k,
                a: a.as_ptr(),
                a_step,
                b: b.as_ptr(),
                b_step: 40,
                b_next: kernels.lanes,
                offsets: offsets.as_ptr(),
                c: got.as_mut_ptr(),
                c_step: 40,
                c_next: kernels.lanes,
                add,
                bias: if with_bias { bias.as_ptr() } else { std::ptr::null() },
            };
            // SAFETY: the machine has the level, and the arrays hold what the tile addresses.
            unsafe { kernels.get(rows, registers, access)(&tile) };
            let mut want = c.clone();
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                let term = |p: usize| {
                    let row =
                        if access == Access::TermsByOffset { offsets[p] } else { p * tile.b_step };
                    a[place(access, a_step, &offsets, i, p)] * b[row + j]
                };
                let mut sum: T = (0..k).map(term).sum();
                if with_bias {
                    sum += bias[i];
                }
                let to = &mut want[i * 40 + j];
                *to = if add { *to + sum } else { sum };
            }
            let tolerance = if size_of::<T>() == 4 { 1e-5 } else { 1e-12 };
            assert!(close(&got, &want, tolerance), "{level:?} {rows}x{registers}");
        }
    }

    #[test]
    fn every_kernel_matches_plain_sums() {
        use Access::*;
        let all = [Panels, Blocks, TermsByOffset, RowsByOffset, EverySecond, EveryFourth];
        for level in [Level::Baseline, Level::Avx2, Level::Avx512] {
            if level > crate::kernels::arch::level() {
                continue;
            }
            for (registers, access) in (1..=WIDE).flat_map(|n| all.map(|access| (n, access))) {
                for rows in 1..=f32::kernels_of(level).rows {
                    check::<f32>(level, rows, registers, access);
                    check::<f64>(level, rows, registers, access);
                }
            }
        }
    }
}
