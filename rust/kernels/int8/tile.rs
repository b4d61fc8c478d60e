//! The micro-kernel of products of 8-bit integers: a tile of sums in registers.
//!
//! Bytes are taken four at a time, a group: one 32-bit lane adds four products to its sum. A row's
//! group is broadcast; the groups of a vector's columns lie side by side. One side has signed
//! bytes, the other unsigned ones, which is what VNNI multiplies (`vpdpbusd`, 64 products an
//! instruction). Elsewhere groups are split into pairs of 16 bits, whose products are exact, too.

#[cfg(target_arch = "x86_64")]
use crate::kernels::arch::{Level, level};

/// Columns of a tile.
pub const COLUMNS: usize = 32;
/// Most rows of a tile.
pub const ROWS: usize = 12;
/// Bytes of a group.
pub const GROUP: usize = 4;

/// The sums of a tile; rows beyond its height are not written.
pub type Sums = [[i32; COLUMNS]; ROWS];

/// What a tile multiplies.
#[derive(Clone, Copy)]
pub struct Operands {
    /// Groups of each row of the tile, for one group of the inner extent after the other.
    pub rows: *const i32,
    /// The same of [`COLUMNS`] columns.
    pub columns: *const i32,
    pub groups: usize,
}

/// How tiles are calculated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instructions {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

impl Instructions {
    /// Those that this machine has, the best last.
    pub fn all() -> impl Iterator<Item = Self> {
        let all = [
            (Self::Portable, true),
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, level() >= Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            (Self::Vnni, level() >= Level::Avx512 && is_x86_feature_detected!("avx512vnni")),
        ];
        all.into_iter().filter(|(_, has)| *has).map(|(how, _)| how)
    }

    pub fn best() -> Self {
        Self::all().last().unwrap_or(Self::Portable)
    }

    /// `sums[r][c] =` the products of the bytes of row `r` and column `c`, for `height` rows.
    /// `SIGNED_ROWS`: rows have the signed bytes, columns the unsigned ones; else the reverse. Sums
    /// wrap.
    ///
    /// # Safety
    /// The machine has these instructions; `operands` holds `height` rows, at most [`ROWS`].
    pub unsafe fn tile<const SIGNED_ROWS: bool>(
        self,
        height: usize,
        operands: Operands,
        sums: &mut Sums,
    ) {
        macro_rules! of_height {
            ($($n:literal)*) => {
                match height {
                    // SAFETY: promised by the caller.
                    $($n => unsafe { self.rows::<$n, SIGNED_ROWS>(operands, sums) },)*
                    _ => debug_assert_eq!(height, 0),
                }
            };
        }
        of_height!(1 2 3 4 5 6 7 8 9 10 11 12);
    }

    /// # Safety
    /// As [`Instructions::tile`].
    #[inline]
    unsafe fn rows<const R: usize, const SIGNED_ROWS: bool>(self, o: Operands, sums: &mut Sums) {
        // SAFETY: promised by the caller.
        unsafe {
            match self {
                Self::Portable => portable::<R, SIGNED_ROWS>(o, sums),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => x86::avx2::<R, SIGNED_ROWS>(o, sums),
                #[cfg(target_arch = "x86_64")]
                Self::Vnni => x86::vnni::<R, SIGNED_ROWS>(o, sums),
            }
        }
    }
}

/// # Safety
/// As [`Instructions::tile`].
unsafe fn portable<const R: usize, const SIGNED_ROWS: bool>(o: Operands, sums: &mut Sums) {
    let of = |bytes: [u8; GROUP], signed: bool| {
        bytes.map(|b| if signed { i32::from(b as i8) } else { i32::from(b) })
    };
    sums[..R].fill([0; COLUMNS]);
    for g in 0..o.groups {
        for (r, sums) in sums[..R].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            let (row, columns) = unsafe {
                let row = *o.rows.add(g * R + r);
                (of(row.to_ne_bytes(), SIGNED_ROWS), o.columns.add(g * COLUMNS))
            };
            for (c, sum) in sums.iter_mut().enumerate() {
                // SAFETY: as above.
                let column = of(unsafe { *columns.add(c) }.to_ne_bytes(), !SIGNED_ROWS);
                for (a, b) in row.into_iter().zip(column) {
                    *sum = sum.wrapping_add(a * b);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{COLUMNS, Operands, Sums};
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::Instructions::tile`], on a machine with AVX-512 F and VNNI.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub unsafe fn vnni<const R: usize, const SIGNED_ROWS: bool>(o: Operands, sums: &mut Sums) {
        let mut lanes = [[_mm512_setzero_si512(); 2]; R];
        for g in 0..o.groups {
            // SAFETY: promised by the caller.
            unsafe {
                let at = o.columns.add(g * COLUMNS);
                let columns = [0, 16].map(|c| _mm512_loadu_si512(at.add(c).cast()));
                for r in 0..R {
                    let row = _mm512_set1_epi32(*o.rows.add(g * R + r));
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

    /// The bytes at even and at odd places, as 16 bits.
    ///
    /// # Safety
    /// The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn split<const SIGNED: bool>(bytes: __m256i) -> [__m256i; 2] {
        if SIGNED {
            let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes));
            [even, _mm256_srai_epi16::<8>(bytes)]
        } else {
            let even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
            [even, _mm256_srli_epi16::<8>(bytes)]
        }
    }

    /// Rows that are in registers at once.
    const TOGETHER: usize = 3;

    /// # Safety
    /// As [`super::Instructions::tile`], on a machine with AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn avx2<const R: usize, const SIGNED_ROWS: bool>(o: Operands, sums: &mut Sums) {
        for first in (0..R).step_by(TOGETHER) {
            for c in (0..COLUMNS).step_by(16) {
                // SAFETY: promised by the caller; beyond the last row that one stands in.
                unsafe {
                    let rows = [0, 1, 2].map(|r: usize| (first + r).min(R - 1));
                    let o = Operands { columns: o.columns.add(c), ..o };
                    let lanes = if SIGNED_ROWS {
                        strip::<R, true, false>(rows, o)
                    } else {
                        strip::<R, false, true>(rows, o)
                    };
                    for (sums, lanes) in sums[first..R].iter_mut().zip(&lanes) {
                        let to = sums[c..].as_mut_ptr();
                        _mm256_storeu_si256(to.cast(), lanes[0]);
                        _mm256_storeu_si256(to.add(8).cast(), lanes[1]);
                    }
                }
            }
        }
    }

    /// Sixteen columns of a few rows.
    ///
    /// # Safety
    /// As [`avx2`].
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn strip<const R: usize, const SIGNED_ROWS: bool, const SIGNED_COLUMNS: bool>(
        rows: [usize; TOGETHER],
        o: Operands,
    ) -> [[__m256i; 2]; TOGETHER] {
        let mut lanes = [[_mm256_setzero_si256(); 2]; TOGETHER];
        for g in 0..o.groups {
            // SAFETY: promised by the caller.
            unsafe {
                let at = o.columns.add(g * COLUMNS);
                let columns =
                    [0, 8].map(|c| split::<SIGNED_COLUMNS>(_mm256_loadu_si256(at.add(c).cast())));
                for (lanes, row) in lanes.iter_mut().zip(rows) {
                    let row = _mm256_set1_epi32(*o.rows.add(g * R + row));
                    let row = split::<SIGNED_ROWS>(row);
                    for (sum, column) in lanes.iter_mut().zip(columns) {
                        let even = _mm256_madd_epi16(row[0], column[0]);
                        let odd = _mm256_madd_epi16(row[1], column[1]);
                        *sum = _mm256_add_epi32(*sum, _mm256_add_epi32(even, odd));
                    }
                }
            }
        }
        lanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extreme bytes, in every order of signs, by all instructions.
    #[test]
    fn tiles_are_exact() {
        let noise = |i: usize| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8;
        let byte = |i: usize| if i % 5 < 2 { [255u8, 128, 127, 0][i / 5 % 4] } else { noise(i) };
        for groups in [0, 1, 2, 9] {
            let some = |n: usize, from: usize| -> Vec<i32> {
                let of =
                    |i: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|b| byte(i * 4 + b + from)));
                (0..n).map(of).collect()
            };
            let (rows, columns) = (some(groups * ROWS, 0), some(groups * COLUMNS, 3));
            let operands = Operands { rows: rows.as_ptr(), columns: columns.as_ptr(), groups };
            let of = |b: u8, signed| if signed { i32::from(b as i8) } else { i32::from(b) };
            for (how, height) in Instructions::all().flat_map(|h| (0..=ROWS).map(move |n| (h, n))) {
                for signed_rows in [false, true] {
                    let mut sums = [[77; COLUMNS]; ROWS];
                    // SAFETY: the machine has these; the operands have these extents.
                    unsafe {
                        match signed_rows {
                            true => how.tile::<true>(height, operands, &mut sums),
                            false => how.tile::<false>(height, operands, &mut sums),
                        }
                    }
                    for (r, c) in (0..height).flat_map(|r| (0..COLUMNS).map(move |c| (r, c))) {
                        let product = |l: usize| {
                            let column = columns[l / GROUP * COLUMNS + c].to_ne_bytes()[l % GROUP];
                            let row = rows[l / GROUP * height + r].to_ne_bytes()[l % GROUP];
                            of(row, signed_rows) * of(column, !signed_rows)
                        };
                        let want: i32 = (0..groups * GROUP).map(product).sum();
                        assert_eq!(sums[r][c], want, "{how:?} {height} {groups} {r} {c}");
                    }
                    assert!(sums[height..].iter().flatten().all(|s| *s == 77));
                }
            }
        }
    }
}
