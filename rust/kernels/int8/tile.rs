//! The micro-kernels of products of 8-bit integers: a tile of sums in registers.
//!
//! Both sides are laid out in groups of 32 bits. A row's group is broadcast, and the groups of a
//! vector's columns lie side by side; one lane multiplies the members of two groups and adds the
//! products to its sum. What a group holds depends on the instructions ([`Tiles`]): with VNNI four
//! bytes, those of one side signed and those of the other not (`vpdpbusd`, 64 products an
//! instruction), with the dot products of arm64 four signed bytes (`sdot`, 16 products); elsewhere
//! two integers widened to 16 bits (`vpmaddwd`, 16 products with AVX2; `smlal`, 4 with NEON).
//! Products are exact in all, and sums wrap.

use super::Byte;
#[cfg(target_arch = "x86_64")]
use crate::kernels::arch::{Level, level};

/// Most columns of a tile.
pub const MOST_COLUMNS: usize = 32;
/// Most rows of a tile.
pub const MOST_ROWS: usize = 12;
/// Most members of a group.
pub const MOST_MEMBERS: usize = 4;

/// The sums of a tile; those beyond its height and width are not written.
pub type Sums = [[i32; MOST_COLUMNS]; MOST_ROWS];

/// What a tile multiplies.
#[derive(Clone, Copy)]
pub struct Operands {
    /// Groups of each row of the tile, for one group of the inner extent after the other; or, where
    /// data lies like that, all groups of the first row.
    pub rows: *const i32,
    /// Bytes from a row to the next in the latter case; 0 in the first.
    pub row: usize,
    /// Groups of [`Tiles::COLUMNS`] columns, for one group of the inner extent after the other.
    pub columns: *const i32,
    pub groups: usize,
}

/// How operands are laid out and multiplied.
pub trait Tiles: Copy + Send + Sync + 'static {
    /// Members of a group.
    const MEMBERS: usize;
    /// Columns of a tile.
    const COLUMNS: usize;
    /// Most rows of a tile.
    const ROWS: usize;
    /// Whether data of either sign may be rows as it lies, and weights then have the other sign.
    const IN_PLACE: bool;
    /// By how much members that are data are greater than `T`, of which they may have another sign.
    fn moved<T: Byte>() -> i32;
    /// Data as the lowest bits of a group.
    fn data<T: Byte>(x: T) -> u32;
    /// A weight as the lowest bits of a group.
    fn weight(w: i8) -> u32;

    /// `sums[r][c] =` the products of the members of row `r` and column `c`, for `height` rows.
    /// `SIGNED_ROWS`: of members that differ in sign, those of rows are signed.
    ///
    /// # Safety
    /// `operands` holds `height` rows, at most [`Tiles::ROWS`], which lie apart only where
    /// [`Tiles::IN_PLACE`] says so.
    unsafe fn tile<const SIGNED_ROWS: bool>(height: usize, operands: Operands, sums: &mut Sums);

    /// The group of these members.
    #[inline(always)]
    fn group(members: [u32; MOST_MEMBERS]) -> i32 {
        let mut group = 0;
        for (l, member) in members.into_iter().enumerate().take(Self::MEMBERS) {
            group |= member << (32 / Self::MEMBERS * l);
        }
        group as i32
    }
}

/// Calls a function with the height of a tile as a constant.
macro_rules! by_height {
    ($height:expr, $R:ident => $body:expr, $($n:literal)*) => {
        match $height {
            $($n => { const $R: usize = $n; $body })*
            _ => debug_assert_eq!($height, 0),
        }
    };
}

/// Groups of two integers of 16 bits.
#[derive(Clone, Copy)]
pub struct Pairs;

impl Tiles for Pairs {
    const MEMBERS: usize = 2;
    const COLUMNS: usize = 16;
    const ROWS: usize = 6;
    const IN_PLACE: bool = false;

    #[inline(always)]
    fn moved<T: Byte>() -> i32 {
        0
    }

    #[inline(always)]
    fn data<T: Byte>(x: T) -> u32 {
        u32::from(x.wide() as u16)
    }

    #[inline(always)]
    fn weight(w: i8) -> u32 {
        u32::from(i16::from(w) as u16)
    }

    #[inline]
    unsafe fn tile<const SIGNED_ROWS: bool>(height: usize, o: Operands, sums: &mut Sums) {
        // SAFETY: promised by the caller; the machine has the instructions.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if level() >= Level::Avx2 {
                return by_height!(height, R => x86::pairs::<R>(o, sums), 1 2 3 4 5 6);
            }
            #[cfg(target_arch = "aarch64")]
            by_height!(height, R => arm64::pairs::<R>(o, sums), 1 2 3 4 5 6);
            #[cfg(not(target_arch = "aarch64"))]
            portable::<Pairs, 2>(height, o, sums, [widen_16; 2]);
        }
    }
}

/// Groups of four bytes: weights are signed; data is signed on arm64 and unsigned elsewhere.
#[derive(Clone, Copy)]
pub struct Quads;

/// Of an unsigned byte, the bit that differs in the data of [`Quads`].
const SIGN: u8 = if cfg!(target_arch = "aarch64") { 0x80 } else { 0 };

impl Quads {
    /// Whether this machine has instructions for them.
    pub fn suit() -> bool {
        #[cfg(target_arch = "x86_64")]
        return level() >= Level::Avx512 && is_x86_feature_detected!("avx512vnni");
        #[cfg(target_arch = "aarch64")]
        return std::arch::is_aarch64_feature_detected!("dotprod");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        false
    }
}

impl Tiles for Quads {
    const MEMBERS: usize = 4;
    const COLUMNS: usize = if cfg!(target_arch = "aarch64") { 16 } else { 32 };
    const ROWS: usize = if cfg!(target_arch = "aarch64") { 6 } else { 12 };
    const IN_PLACE: bool = cfg!(not(target_arch = "aarch64"));

    #[inline(always)]
    fn moved<T: Byte>() -> i32 {
        T::MOVED - i32::from(SIGN)
    }

    #[inline(always)]
    fn data<T: Byte>(x: T) -> u32 {
        u32::from(x.moved() ^ SIGN)
    }

    #[inline(always)]
    fn weight(w: i8) -> u32 {
        u32::from(w as u8)
    }

    #[inline]
    unsafe fn tile<const SIGNED_ROWS: bool>(height: usize, o: Operands, sums: &mut Sums) {
        // SAFETY: promised by the caller; the machine has the instructions.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if Self::suit() {
                return match o.row {
                    0 => by_height!(height, R => x86::quads::<R, SIGNED_ROWS, false>(o, sums),
                        1 2 3 4 5 6 7 8 9 10 11 12),
                    _ => by_height!(height, R => x86::quads::<R, SIGNED_ROWS, true>(o, sums),
                        1 2 3 4 5 6 7 8 9 10 11 12),
                };
            }
            #[cfg(target_arch = "aarch64")]
            if Self::suit() {
                return by_height!(height, R => arm64::quads::<R>(o, sums), 1 2 3 4 5 6);
            }
            let data = if SIGN == 0 { widen_8 } else { signed_8 };
            let widen = if SIGNED_ROWS { [signed_8, data] } else { [data, signed_8] };
            portable::<Quads, 4>(height, o, sums, widen);
        }
    }
}

#[cfg(any(test, not(target_arch = "aarch64")))]
fn widen_16(member: u32) -> i32 {
    i32::from(member as u16 as i16)
}

fn widen_8(member: u32) -> i32 {
    i32::from(member as u8)
}

fn signed_8(member: u32) -> i32 {
    i32::from(member as u8 as i8)
}

/// A tile on any machine; `widen` makes integers of the members of rows and of columns.
///
/// # Safety
/// As [`Tiles::tile`].
unsafe fn portable<T: Tiles, const MEMBERS: usize>(
    height: usize,
    o: Operands,
    sums: &mut Sums,
    widen: [fn(u32) -> i32; 2],
) {
    let members = |group: i32, widen: fn(u32) -> i32| -> [i32; MEMBERS] {
        std::array::from_fn(|l| widen(group as u32 >> (32 / MEMBERS * l)))
    };
    for sums in &mut sums[..height] {
        sums[..T::COLUMNS].fill(0);
    }
    for g in 0..o.groups {
        for (r, sums) in sums[..height].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            let (row, columns) = unsafe {
                let row = match o.row {
                    0 => o.rows.add(g * height + r),
                    row => o.rows.byte_add(r * row).add(g),
                };
                (row.read_unaligned(), o.columns.add(g * T::COLUMNS))
            };
            let row = members(row, widen[0]);
            for (c, sum) in sums[..T::COLUMNS].iter_mut().enumerate() {
                // SAFETY: as above.
                let column = members(unsafe { *columns.add(c) }, widen[1]);
                for (a, b) in row.into_iter().zip(column) {
                    *sum = sum.wrapping_add(a * b);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Operands, Pairs, Quads, Sums, Tiles};
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::Tiles::tile`], on a machine with AVX-512 F and VNNI.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub unsafe fn quads<const R: usize, const SIGNED_ROWS: bool, const IN_PLACE: bool>(
        o: Operands,
        sums: &mut Sums,
    ) {
        let mut lanes = [[_mm512_setzero_si512(); 2]; R];
        let mut rows = [o.rows; R];
        for r in 0..if IN_PLACE { R } else { 0 } {
            // SAFETY: promised by the caller.
            rows[r] = unsafe { o.rows.byte_add(r * o.row) };
        }
        for g in 0..o.groups {
            // SAFETY: promised by the caller.
            unsafe {
                let at = o.columns.add(g * Quads::COLUMNS);
                let columns = [0, 16].map(|c| _mm512_loadu_si512(at.add(c).cast()));
                for r in 0..R {
                    let row = if IN_PLACE { rows[r].add(g) } else { o.rows.add(g * R + r) };
                    let row = _mm512_set1_epi32(row.read_unaligned());
                    for v in 0..2 {
                        lanes[r][v] = if SIGNED_ROWS {
                            _mm512_dpbusd_epi32(lanes[r][v], columns[v], row)
                        } else {
                            _mm512_dpbusd_epi32(lanes[r][v], row, columns[v])
                        };
                    }
                }
            }
        }
        for r in 0..R {
            for v in 0..2 {
                // SAFETY: a row of sums is two vectors.
                unsafe { _mm512_storeu_si512(sums[r][16 * v..].as_mut_ptr().cast(), lanes[r][v]) };
            }
        }
    }

    /// Six rows of two vectors, with what they are calculated from, fill the registers.
    ///
    /// # Safety
    /// As [`super::Tiles::tile`], on a machine with AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn pairs<const R: usize>(o: Operands, sums: &mut Sums) {
        let mut lanes = [[_mm256_setzero_si256(); 2]; R];
        for g in 0..o.groups {
            // SAFETY: promised by the caller.
            unsafe {
                let at = o.columns.add(g * Pairs::COLUMNS);
                let columns = [0, 8].map(|c| _mm256_loadu_si256(at.add(c).cast()));
                for r in 0..R {
                    let row = _mm256_set1_epi32(*o.rows.add(g * R + r));
                    for v in 0..2 {
                        let products = _mm256_madd_epi16(row, columns[v]);
                        lanes[r][v] = _mm256_add_epi32(lanes[r][v], products);
                    }
                }
            }
        }
        for r in 0..R {
            for v in 0..2 {
                // SAFETY: a row of sums has room for two vectors.
                unsafe { _mm256_storeu_si256(sums[r][8 * v..].as_mut_ptr().cast(), lanes[r][v]) };
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm64 {
    use super::{Operands, Pairs, Quads, Sums, Tiles};
    use std::arch::aarch64::*;
    use std::arch::asm;

    /// # Safety
    /// As [`super::Tiles::tile`], on a machine with dot products.
    #[target_feature(enable = "neon,dotprod")]
    pub unsafe fn quads<const R: usize>(o: Operands, sums: &mut Sums) {
        let mut lanes = [[vdupq_n_s32(0); 4]; R];
        for g in 0..o.groups {
            // SAFETY: promised by the caller.
            unsafe {
                let at = o.columns.add(g * Quads::COLUMNS);
                let columns = [0, 4, 8, 12].map(|c| vld1q_s32(at.add(c)));
                for r in 0..R {
                    // Four bytes as the lowest ones of a vector: a broadcast would be a second
                    // instruction beside the load.
                    let row: f32 = o.rows.add(g * R + r).cast::<f32>().read();
                    for v in 0..4 {
                        // The standard library's function for it is not stable.
                        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[0]",
                            inout(vreg) lanes[r][v], in(vreg) columns[v], in(vreg) row,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                }
            }
        }
        // SAFETY: the machine has the instructions.
        unsafe { store(&lanes, sums) };
    }

    /// Six rows of four vectors, with what they are calculated from, fill the registers.
    ///
    /// # Safety
    /// As [`super::Tiles::tile`].
    #[target_feature(enable = "neon")]
    pub unsafe fn pairs<const R: usize>(o: Operands, sums: &mut Sums) {
        let mut lanes = [[vdupq_n_s32(0); 4]; R];
        for g in 0..o.groups {
            // SAFETY: promised by the caller.
            unsafe {
                let at = o.columns.add(g * Pairs::COLUMNS).cast::<i16>();
                // The first members of eight columns, and the second ones.
                let [left, right] = [0, 16].map(|c| vld2q_s16(at.add(c)));
                for r in 0..R {
                    let row = vreinterpret_s16_s32(vdup_n_s32(*o.rows.add(g * R + r)));
                    let [a, b, c, d] = &mut lanes[r];
                    *a = vmlal_lane_s16::<0>(*a, vget_low_s16(left.0), row);
                    *b = vmlal_high_lane_s16::<0>(*b, left.0, row);
                    *c = vmlal_lane_s16::<0>(*c, vget_low_s16(right.0), row);
                    *d = vmlal_high_lane_s16::<0>(*d, right.0, row);
                    *a = vmlal_lane_s16::<1>(*a, vget_low_s16(left.1), row);
                    *b = vmlal_high_lane_s16::<1>(*b, left.1, row);
                    *c = vmlal_lane_s16::<1>(*c, vget_low_s16(right.1), row);
                    *d = vmlal_high_lane_s16::<1>(*d, right.1, row);
                }
            }
        }
        // SAFETY: the machine has the instructions.
        unsafe { store(&lanes, sums) };
    }

    /// # Safety
    /// None beyond the instructions, which every machine of the target has.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn store<const R: usize>(lanes: &[[int32x4_t; 4]; R], sums: &mut Sums) {
        for r in 0..R {
            for v in 0..4 {
                // SAFETY: a row of sums has room for four vectors.
                unsafe { vst1q_s32(sums[r][4 * v..].as_mut_ptr(), lanes[r][v]) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(i: usize) -> u8 {
        let byte = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8;
        if i % 5 < 2 { [255u8, 128, 127, 0][i / 5 % 4] } else { byte }
    }

    /// `n` groups of `T`: of data, which stand for these numbers, or of weights.
    fn groups<T: Tiles, D: Byte>(n: usize, data: Option<fn(u8) -> D>) -> (Vec<i32>, Vec<i32>) {
        let (mut all, mut numbers) = (Vec::new(), Vec::new());
        for g in 0..n {
            let bytes: Vec<u8> = (0..T::MEMBERS).map(|l| noise(g * T::MEMBERS + l + 3)).collect();
            let mut members = [0; MOST_MEMBERS];
            for (to, &byte) in members.iter_mut().zip(&bytes) {
                let (member, number) = match data {
                    Some(of) => (T::data(of(byte)), i32::from(of(byte).wide()) + T::moved::<D>()),
                    None => (T::weight(byte as i8), i32::from(byte as i8)),
                };
                *to = member;
                numbers.push(number);
            }
            all.push(T::group(members));
        }
        (all, numbers)
    }

    /// Extreme bytes, with data in rows or columns.
    fn exact<T: Tiles, D: Byte, const SIGNED_ROWS: bool>(of: fn(u8) -> D) {
        for (n, height) in [0, 1, 2, 9].into_iter().flat_map(|n| (0..=T::ROWS).map(move |h| (n, h)))
        {
            let (in_rows, in_columns) = match SIGNED_ROWS {
                true => (None, Some(of)),
                false => (Some(of), None),
            };
            let (rows, row_numbers) = groups::<T, D>(n * height, in_rows);
            let (columns, column_numbers) = groups::<T, D>(n * T::COLUMNS, in_columns);
            let operands =
                Operands { rows: rows.as_ptr(), row: 0, columns: columns.as_ptr(), groups: n };
            let mut sums = [[77; MOST_COLUMNS]; MOST_ROWS];
            // SAFETY: the operands have these extents.
            unsafe { T::tile::<SIGNED_ROWS>(height, operands, &mut sums) };
            for (r, c) in (0..height).flat_map(|r| (0..T::COLUMNS).map(move |c| (r, c))) {
                let product = |l: usize| {
                    let (g, member) = (l / T::MEMBERS, l % T::MEMBERS);
                    row_numbers[(g * height + r) * T::MEMBERS + member]
                        * column_numbers[(g * T::COLUMNS + c) * T::MEMBERS + member]
                };
                let want: i32 = (0..n * T::MEMBERS).map(product).sum();
                assert_eq!(sums[r][c], want, "{height} {n} {r} {c}");
            }
            assert!(sums[height..].iter().flatten().all(|s| *s == 77));
        }
    }

    #[test]
    fn tiles_are_exact() {
        exact::<Pairs, u8, true>(|byte| byte);
        exact::<Pairs, i8, false>(|byte| byte as i8);
        exact::<Quads, u8, false>(|byte| byte);
        exact::<Quads, i8, true>(|byte| byte as i8);
    }

    /// Data that lies apart, as machines with the instructions and others read it.
    #[test]
    fn rows_in_place_are_those_in_groups() {
        const HEIGHT: usize = 5;
        let (rows, _) = groups::<Quads, u8>(9 * HEIGHT, Some(|byte| byte));
        let (columns, _) = groups::<Quads, i8>(9 * Quads::COLUMNS, None);
        let packed = Operands { rows: rows.as_ptr(), row: 0, columns: columns.as_ptr(), groups: 9 };
        let apart: Vec<i32> =
            (0..HEIGHT).flat_map(|r| rows[r..].iter().step_by(HEIGHT).copied()).collect();
        let apart = Operands { rows: apart.as_ptr(), row: 9 * size_of::<i32>(), ..packed };
        let mut sums = [[[77; MOST_COLUMNS]; MOST_ROWS]; 3];
        // SAFETY: the operands have these extents.
        unsafe {
            let widen = [if SIGN == 0 { widen_8 } else { signed_8 }, signed_8];
            portable::<Quads, 4>(HEIGHT, packed, &mut sums[0], widen);
            portable::<Quads, 4>(HEIGHT, apart, &mut sums[1], widen);
            let of_machine = if Quads::IN_PLACE { apart } else { packed };
            Quads::tile::<false>(HEIGHT, of_machine, &mut sums[2]);
        }
        assert_eq!(sums[0], sums[1]);
        assert_eq!(sums[0], sums[2]);
    }

    /// What machines without the instructions run.
    #[test]
    fn portable_tiles_are_those_of_this_machine() {
        let (rows, _) = groups::<Pairs, i8>(9 * 5, None);
        let (columns, _) = groups::<Pairs, u8>(9 * Pairs::COLUMNS, Some(|byte| byte));
        let operands =
            Operands { rows: rows.as_ptr(), row: 0, columns: columns.as_ptr(), groups: 9 };
        let mut sums = [[[77; MOST_COLUMNS]; MOST_ROWS]; 2];
        // SAFETY: the operands have these extents.
        unsafe {
            Pairs::tile::<true>(5, operands, &mut sums[0]);
            portable::<Pairs, 2>(5, operands, &mut sums[1], [widen_16; 2]);
        }
        assert_eq!(sums[0], sums[1]);
    }
}
