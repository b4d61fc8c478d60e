//! Gradients of maxima and sums row by row.
//!
//! A row of the gradient of sums gathers what the few lines of windows give that read it, and is
//! written once. Maxima give to one element each, which is looked up in all windows of a line side
//! by side.

use super::Pool;
use super::phases::{LANES, Phases};
use super::rows::{Greatest, join_block, set_counts};
use crate::kernels::arch::opaque;
use crate::kernels::layout::copy_row;
use crate::kernels::real::Real;
use smallvec::SmallVec;
use std::ops::Range;

/// Where stretches start.
type Stretches<T> = SmallVec<[*const T; 16]>;

/// What lines of windows give to each of their taps: line `i` is in slot `i % lines`.
#[derive(Clone, Copy)]
struct Given {
    /// Lines that are kept.
    lines: usize,
    /// Zeros at the start of a line: at least as many as windows reach back, in whole blocks.
    lead: usize,
    /// Elements of a line.
    size: usize,
}

impl Given {
    fn new(pool: &Pool) -> Self {
        let (lay, [deep, high, _]) = (Phases::new(pool), pool.kernel);
        // Rows are gathered a line later than they could be: what was just written would be read
        // in other blocks, which waits until it has reached the cache.
        let lines = match deep {
            1 => (high - 1) / pool.stride[1] + 2,
            _ => ((deep - 1) / pool.stride[0] + 1) * pool.output[1] + 1,
        };
        let lead = lay.reach.next_multiple_of(LANES);
        Given { lines, lead, size: lead + lay.room }
    }

    #[inline(always)]
    fn line(self, at: usize) -> usize {
        at % self.lines * self.size + self.lead
    }
}

impl Pool {
    /// The rows of the input that no line of windows from `line` on reads.
    #[inline(always)]
    fn passed(&self, line: usize) -> usize {
        let ([in_d, in_h, _], out_h) = (self.input, self.output[1]);
        let (d, h) = (line / out_h, line % out_h);
        let layer = (d * self.stride[0]).saturating_sub(self.pad[0]);
        let row = match self.kernel[0] {
            1 => (h * self.stride[1]).saturating_sub(self.pad[1]).min(in_h),
            _ => 0,
        };
        (layer * in_h + row).min(in_d * in_h)
    }

    /// The windows of an axis that read position `at`.
    #[inline(always)]
    fn readers(&self, axis: usize, at: usize) -> Range<usize> {
        let (at, stride) = (at + self.pad[axis], self.stride[axis]);
        let first = (at + 1).saturating_sub(self.kernel[axis]).div_ceil(stride);
        first..(at / stride + 1).min(self.output[axis])
    }

    /// Elements of scratch for [`averages_back`].
    pub(super) fn averages_back_room(&self) -> usize {
        let given = Given::new(self);
        given.lines * given.size + Phases::new(self).size()
    }

    /// Elements of scratch for [`maxima_back`].
    pub(super) fn maxima_back_room(&self) -> usize {
        self.open_rows() * Phases::new(self).size()
    }

    /// Rows of the input that are laid out at once: row `r` is in slot `r % open_rows`.
    fn open_rows(&self) -> usize {
        let [in_d, in_h, _] = self.input;
        // Windows over several layers read rows that are far apart.
        if self.kernel[0] == 1 { self.kernel[1].min(in_d * in_h) } else { in_d * in_h }
    }

    /// The place in a row of the first element of window `i` of a line, if it has one.
    fn first_place(&self, i: usize) -> Option<usize> {
        let (inside, _) = self.extent(2, i);
        (!inside.is_empty()).then_some(inside.start)
    }
}

/// Writes `rows` of a gradient. `phases` is scratch for a row.
///
/// # Safety
/// `given` has what the lines that read these rows give; `dx` is the plane.
#[inline(always)]
unsafe fn gather<T: Real>(
    pool: &Pool,
    (lay, lines): (&Phases, Given),
    rows: Range<usize>,
    given: *const T,
    phases: *mut T,
    dx: *mut T,
) {
    let mut starts: Stretches<T> = SmallVec::new();
    let (mut d, mut h) = (rows.start / pool.input[1], rows.start % pool.input[1]);
    for row in rows {
        starts.clear();
        // SAFETY: promised by the caller; stretches have room for whole blocks.
        unsafe {
            for above in pool.readers(0, d) {
                for line in pool.readers(1, h) {
                    starts.push(given.add(lines.line(above * pool.output[1] + line)));
                }
            }
            for phase in 0..lay.stride {
                let to = phases.add(phase * lay.room);
                for first in (0..lay.room).step_by(LANES) {
                    let mut sum = [T::zero(); LANES];
                    for start in &starts {
                        let mut from = start.add(first);
                        for _ in (phase..lay.taps).step_by(lay.stride) {
                            let next = *from.cast::<[T; LANES]>();
                            for i in 0..LANES {
                                sum[i] += next[i];
                            }
                            from = from.wrapping_sub(1);
                        }
                    }
                    *to.add(first).cast() = sum;
                }
            }
            lay.uncut(phases, dx.add(row * lay.width));
        }
        h += 1;
        if h == pool.input[1] {
            (d, h) = (d + 1, 0);
        }
    }
}

crate::simd! {
    /// The gradient of the sums or averages of a plane; `widths` as for the sums.
    ///
    /// # Safety
    /// `dx` is a plane of the input, `dy` one of the output; they do not overlap. The scratch has
    /// [`Pool::averages_back_room`] elements.
    pub unsafe fn averages_back[T: Real][T](
        pool: &Pool, dy: *const T, dx: *mut T, widths: &mut [T], scratch: &mut [T],
    ) -> () {
        let (lay, lines) = (Phases::new(pool), Given::new(pool));
        let [out_d, out_h, out_w] = pool.output;
        scratch.fill(T::zero());
        let (given, phases) = scratch.split_at_mut(lines.lines * lines.size);
        let (given, phases) = (given.as_mut_ptr(), phases.as_mut_ptr());
        let (mut done, mut counted) = (0, T::zero());
        for at in 0..out_d * out_h {
            // SAFETY: promised by the caller; the scratch has room for whole blocks.
            unsafe {
                let own = given.add(lines.line(at));
                copy_row(dy.add(at * out_w), own, out_w);
                if !widths.is_empty() {
                    let height = pool.height::<T>((at / out_h, at % out_h));
                    let counts = set_counts(widths, &mut counted, height);
                    for first in (0..out_w).step_by(LANES).map(opaque) {
                        let count = &*counts.add(first).cast::<[T; LANES]>();
                        let own = &mut *own.add(first).cast::<[T; LANES]>();
                        for i in 0..LANES {
                            own[i] /= count[i];
                        }
                    }
                }
                let next = pool.passed(at).max(done);
                gather(pool, (&lay, lines), done..next, given, phases, dx);
                done = next;
            }
        }
        let all = pool.input[0] * pool.input[1];
        // SAFETY: as above.
        unsafe { gather(pool, (&lay, lines), done..all, given, phases, dx) };
    }

    /// The gradient of the maxima of a plane: the first of equal ones gets it, and the first
    /// element of a window without any number. `places` is scratch for a line of windows.
    ///
    /// # Safety
    /// `x` and `dx` are planes of the input, `dy` is one of the output; `dx` overlaps none of the
    /// others. The scratch has [`Pool::maxima_back_room`] elements, `places` whole blocks.
    pub unsafe fn maxima_back[T: Real][T](
        pool: &Pool, x: *const T, dy: *const T, dx: *mut T, image: &mut [T], places: &mut [i32],
    ) -> () {
        let (lay, open) = (Phases::new(pool), pool.open_rows());
        let ([out_d, out_h, out_w], all) = (pool.output, pool.input[0] * pool.input[1]);
        // Padding is equal to no maximum.
        image.fill(T::nan());
        let (image, places) = (image.as_mut_ptr(), places.as_mut_ptr());
        let offsets: SmallVec<[usize; 8]> = (0..lay.taps).map(|k| lay.tap(k)).collect();
        // What the taps read, and the place of what the first window's tap reads.
        let mut taps: Stretches<T> = SmallVec::new();
        let mut firsts: SmallVec<[i32; 16]> = SmallVec::new();
        let mut read = 0;
        for at in 0..out_d * out_h {
            let place = (at / out_h, at % out_h);
            taps.clear();
            firsts.clear();
            let mut top_row = None;
            // SAFETY: promised by the caller; the scratch has room for whole blocks.
            unsafe {
                for k in 0..pool.kernel[0] * pool.kernel[1] {
                    let Some(row) = pool.row(place, k) else { continue };
                    for next in read..=row {
                        let to = image.add(next % open * lay.size());
                        lay.extend(x.add(next * lay.width), to);
                        dx.add(next * lay.width).write_bytes(0, lay.width);
                    }
                    read = read.max(row + 1);
                    top_row.get_or_insert(row * lay.width);
                    let stretch = image.add(row % open * lay.size()).cast_const();
                    let first = ((row * lay.width) as i32).wrapping_sub(lay.pad as i32);
                    for (tap, &offset) in offsets.iter().enumerate() {
                        taps.push(stretch.add(offset));
                        firsts.push(first.wrapping_add(tap as i32));
                    }
                }
                for first in (0..out_w).step_by(LANES) {
                    let top: [T; LANES] = join_block::<T, Greatest, LANES>(&taps, first);
                    let mut found = [i32::MIN; LANES];
                    for (tap, &place) in taps.iter().zip(&firsts).rev() {
                        let x = *tap.add(first).cast::<[T; LANES]>();
                        for i in 0..LANES {
                            found[i] = if x[i] == top[i] { place } else { found[i] };
                        }
                    }
                    *places.add(first).cast() = found;
                }
                let Some(top_row) = top_row else { continue };
                for i in 0..out_w {
                    let found = *places.add(i);
                    let g = *dy.add(at * out_w + i);
                    if found != i32::MIN {
                        let to = (found as isize).wrapping_add((i * lay.stride) as isize);
                        *dx.offset(to) += g;
                    } else if let Some(first) = pool.first_place(i) {
                        *dx.add(top_row + first) += g;
                    }
                }
            }
        }
        // SAFETY: the plane has these rows.
        unsafe { dx.add(read * lay.width).write_bytes(0, (all - read) * lay.width) };
    }
}
