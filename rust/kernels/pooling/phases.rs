//! Rows laid out so that a tap of the windows is one stretch, whatever their stride.
//!
//! A row is extended by its padding and cut into phases, one for each remainder of a position by
//! the stride: what tap `k` reads for the windows of a row of outputs, one after the other, is then
//! contiguous. Phases have room for whole blocks of lanes, so loops over them have no ends to treat
//! apart.

use super::Pool;
use crate::kernels::arch::pairs::{self, BLOCK};
use crate::kernels::layout::copy_row;
use crate::kernels::real::Real;

/// Outputs of a row that are calculated together.
pub const LANES: usize = BLOCK;

/// How the rows of a plane are laid out.
#[derive(Clone, Copy)]
pub struct Phases {
    pub stride: usize,
    pub taps: usize,
    pub pad: usize,
    /// Elements of a row of the input.
    pub width: usize,
    /// Elements of a phase, a multiple of [`LANES`].
    pub room: usize,
    /// How many elements of a phase the windows reach beyond their first.
    pub reach: usize,
}

impl Phases {
    #[inline(always)]
    pub fn new(pool: &Pool) -> Self {
        let [stride, taps, pad] = [pool.stride[2], pool.kernel[2], pool.pad[2]];
        let (width, out) = (pool.input[2], pool.output[2]);
        let reach = (taps - 1) / stride;
        let read = out.next_multiple_of(LANES) + reach;
        let room = read.max((pad + width).div_ceil(stride)).next_multiple_of(LANES);
        Phases { stride, taps, pad, width, room, reach }
    }

    /// Elements of all phases of a row.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.stride * self.room
    }

    /// Where the stretch of tap `k` starts.
    #[inline(always)]
    pub fn tap(&self, k: usize) -> usize {
        k % self.stride * self.room + k / self.stride
    }

    /// Cuts an extended row into its phases.
    ///
    /// # Safety
    /// Both hold [`Phases::size`] elements.
    #[inline(always)]
    pub unsafe fn cut<T: Real>(&self, line: *const T, to: *mut T) {
        // SAFETY: promised by the caller.
        unsafe {
            match self.stride {
                1 => to.copy_from_nonoverlapping(line, self.room),
                2 => pairs::split(line, to, to.add(self.room), self.room),
                _ => {
                    for i in 0..self.size() {
                        let (cell, phase) = (i / self.stride, i % self.stride);
                        *to.add(phase * self.room + cell) = *line.add(i);
                    }
                }
            }
        }
    }

    /// The two phases of a stride of 2 where the elements of a row with an even and with an odd
    /// place are.
    #[inline(always)]
    fn halves(&self) -> [usize; 2] {
        [self.pad, self.pad + 1].map(|first| first % 2 * self.room + first / 2)
    }

    /// Lays a row of the input out; the phases have their padding already.
    ///
    /// # Safety
    /// `row` is a row of the input, `to` holds [`Phases::size`] elements.
    #[inline(always)]
    pub unsafe fn extend<T: Real>(&self, row: *const T, to: *mut T) {
        let (pairs, whole) = (self.width / 2, self.width / 2 / LANES * LANES);
        // SAFETY: promised by the caller; the last block of pairs overlaps the one before.
        unsafe {
            let [even, odd] = self.halves().map(|at| to.wrapping_add(at));
            match self.stride {
                1 => copy_row(row, to.add(self.pad), self.width),
                2 => {
                    if whole > 0 {
                        let last = pairs - LANES;
                        pairs::split(row, even, odd, whole);
                        pairs::split(row.add(2 * last), even.add(last), odd.add(last), LANES);
                    } else {
                        for i in 0..pairs {
                            (*even.add(i), *odd.add(i)) = (*row.add(2 * i), *row.add(2 * i + 1));
                        }
                    }
                    if self.width % 2 == 1 {
                        *even.add(pairs) = *row.add(2 * pairs);
                    }
                }
                stride => {
                    for i in 0..self.width {
                        let (cell, phase) = ((i + self.pad) / stride, (i + self.pad) % stride);
                        *to.add(phase * self.room + cell) = *row.add(i);
                    }
                }
            }
        }
    }

    /// Writes the row that has these phases, without its padding: the inverse of
    /// [`Phases::extend`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn uncut<T: Real>(&self, from: *const T, row: *mut T) {
        let (pairs, whole) = (self.width / 2, self.width / 2 / LANES * LANES);
        // SAFETY: as above.
        unsafe {
            let [even, odd] = self.halves().map(|at| from.wrapping_add(at));
            match self.stride {
                1 => copy_row(from.add(self.pad), row, self.width),
                2 => {
                    if whole > 0 {
                        let last = pairs - LANES;
                        pairs::join(even, odd, row, whole);
                        pairs::join(even.add(last), odd.add(last), row.add(2 * last), LANES);
                    } else {
                        for i in 0..pairs {
                            (*row.add(2 * i), *row.add(2 * i + 1)) = (*even.add(i), *odd.add(i));
                        }
                    }
                    if self.width % 2 == 1 {
                        *row.add(2 * pairs) = *even.add(pairs);
                    }
                }
                stride => {
                    for i in 0..self.width {
                        let (cell, phase) = ((i + self.pad) / stride, (i + self.pad) % stride);
                        *row.add(i) = *from.add(phase * self.room + cell);
                    }
                }
            }
        }
    }
}
