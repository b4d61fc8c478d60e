//! Filters over a single channel, applied directly.
//!
//! A plane is first laid out in scratch with its padding, so that no tap needs to ask where the
//! image ends, and as if every stride were 1: positions that differ by less than the stride go to
//! grids of their own (phases). Rows of all phases and of the output have the same extent `cells`;
//! positions of a whole plane are then one stretch, and a tap is one offset: `y[p] = sum over t of
//! w[t] x[p + offset[t]]`, however short the rows are. The few positions between the rows of the
//! output are calculated for nothing.

use super::Conv;
use super::pack::inside;
use crate::dtype::Element;
use crate::kernels::pairwise::LEAF;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Positions calculated together.
const LANES: usize = 64;

/// `y = conv(x, w) + b`.
///
/// # Safety
/// As [`super::forward`].
pub unsafe fn forward<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
) {
    let grid = Grid::new(conv);
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    let offsets: Vec<usize> = (0..conv.taps()).map(|t| grid.offset(conv, t)).collect();
    let room = grid.span.next_multiple_of(LANES);
    planes(conv, conv.batch * conv.groups, |range| {
        with_scratch::<T, _>(grid.all() + LANES + room, |scratch| {
            let (image, sums) = scratch.split_at_mut(grid.all() + LANES);
            image.fill(T::zero());
            let mut taps = Vec::with_capacity(offsets.len());
            for i in range.clone() {
                // SAFETY: planes of image and channel `i` are read, those of its filters are this
                // task's to write.
                unsafe {
                    grid.spread(conv, x.at(i * conv.in_size()), image);
                    for f in 0..conv.out_c {
                        let filter = i % conv.groups * conv.out_c + f;
                        let w = w.at(filter * conv.taps());
                        taps.clear();
                        taps.extend(offsets.iter().enumerate().map(|(t, &at)| (at, *w.add(t))));
                        let first = bias.map_or(T::zero(), |b| *b.at(filter));
                        correlate(image.as_ptr(), &taps, first, sums.as_mut_ptr(), room);
                        let y = y.at((i * conv.out_c + f) * conv.out_size());
                        grid.for_output(conv, |cell, at| {
                            copy_row(sums.as_ptr().add(cell), y.add(at), conv.output[2]);
                        });
                    }
                }
            }
        });
    });
}

/// `dx` from `dy` and the filters: every phase of the plane gathers what its taps gave.
///
/// # Safety
/// As [`super::backward_data`].
pub unsafe fn backward_data<T: Real>(conv: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let grid = Grid::new(conv);
    if grid.size == 0 {
        // SAFETY: promised by the caller.
        return unsafe { dx.write_bytes(0, conv.batch * conv.groups * conv.in_size()) };
    }
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    // Gradients of the output stand between margins of zeros as wide as a filter reaches.
    let reach = grid.size - grid.span.min(grid.size);
    let stretch = reach + grid.size + LANES;
    let room = grid.size.next_multiple_of(LANES);
    let mut by_phase = vec![Vec::new(); grid.phases()];
    for (t, at) in (0..conv.taps()).map(|t| (t, grid.offset(conv, t))) {
        by_phase[at / grid.size].push((t, at % grid.size));
    }
    planes(conv, conv.batch * conv.groups, |range| {
        with_scratch::<T, _>(conv.out_c * stretch + room, |scratch| {
            let (grads, sums) = scratch.split_at_mut(conv.out_c * stretch);
            grads.fill(T::zero());
            let mut taps = Vec::new();
            for i in range.clone() {
                // SAFETY: as in `forward`, the other way round.
                unsafe {
                    let dx = dx.at(i * conv.in_size());
                    let dx = std::slice::from_raw_parts_mut(dx, conv.in_size());
                    dx.fill(T::zero());
                    for (f, grads) in grads.chunks_exact_mut(stretch).enumerate() {
                        let dy = dy.at((i * conv.out_c + f) * conv.out_size());
                        grid.collect(conv, dy, &mut grads[reach..]);
                    }
                    for (phase, own) in by_phase.iter().enumerate() {
                        taps.clear();
                        for f in 0..conv.out_c {
                            let w = w.at((i % conv.groups * conv.out_c + f) * conv.taps());
                            let first = f * stretch + reach;
                            taps.extend(own.iter().map(|&(t, shift)| (first - shift, *w.add(t))));
                        }
                        correlate(grads.as_ptr(), &taps, T::zero(), sums.as_mut_ptr(), room);
                        grid.gather(conv, phase, sums, dx);
                    }
                }
            }
        });
    });
}

/// `dw` from the image and `dy`, summed over the batch.
///
/// # Safety
/// As [`super::backward_weight`].
pub unsafe fn backward_weight<T: Real>(conv: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    let grid = Grid::new(conv);
    let (x, dy, dw) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(dw));
    let offsets: Vec<usize> = (0..conv.taps()).map(|t| grid.offset(conv, t)).collect();
    let room = grid.span.next_multiple_of(LANES);
    planes(conv, conv.groups, |range| {
        with_scratch::<T, _>(grid.all() + LANES + room, |scratch| {
            scratch.fill(T::zero());
            let (image, grads) = scratch.split_at_mut(grid.all() + LANES);
            let mut sums = vec![0.0; conv.out_c * conv.taps()];
            for g in range.clone() {
                sums.fill(0.0);
                // SAFETY: the filters of channel `g` are this task's to write; extents are the
                // caller's promise.
                unsafe {
                    for plane in (0..conv.batch).map(|n| n * conv.groups + g) {
                        grid.spread(conv, x.at(plane * conv.in_size()), image);
                        for f in 0..conv.out_c {
                            let dy = dy.at((plane * conv.out_c + f) * conv.out_size());
                            grid.collect(conv, dy, grads);
                            let sums = &mut sums[f * conv.taps()..];
                            add_products(image.as_ptr(), &offsets, grads.as_ptr(), room, sums);
                        }
                    }
                    let dw = dw.at(g * sums.len());
                    sums.iter().enumerate().for_each(|(i, &sum)| *dw.add(i) = T::of(sum));
                }
            }
        });
    });
}

fn planes(conv: &Conv, count: usize, f: impl Fn(Range<usize>) + Send + Sync) {
    let work = conv.out_size() * conv.taps() * conv.out_c;
    parallel_for(count, (1usize << 16).div_ceil(work.max(1)), f);
}

/// Copies a row. Most are too short to call a function for: they are moved in blocks, the last of
/// which overlaps the one before.
///
/// # Safety
/// Both hold `n` elements and do not overlap.
#[inline(always)]
unsafe fn copy_row<T: Copy>(from: *const T, to: *mut T, n: usize) {
    const BLOCK: usize = 8;
    const HALF: usize = BLOCK / 2;
    // SAFETY: promised by the caller; blocks end at `n`.
    unsafe {
        let block = |at: usize| *from.add(at).cast::<[T; BLOCK]>();
        let half = |at: usize| *from.add(at).cast::<[T; HALF]>();
        if n >= 8 * BLOCK {
            to.copy_from_nonoverlapping(from, n);
        } else if n >= BLOCK {
            for at in (0..n - BLOCK).step_by(BLOCK) {
                *to.add(at).cast() = block(at);
            }
            *to.add(n - BLOCK).cast() = block(n - BLOCK);
        } else if n >= HALF {
            *to.cast() = half(0);
            *to.add(n - HALF).cast() = half(n - HALF);
        } else {
            for at in 0..n {
                *to.add(at) = *from.add(at);
            }
        }
    }
}

/// How a plane is laid out.
struct Grid {
    /// Extents of a phase, which are those of the output and as much as the filter reaches beyond.
    cells: [usize; 3],
    /// Phases along every axis: those that a tap reads.
    phases: [usize; 3],
    /// Elements of a phase.
    size: usize,
    /// Elements from the first position of the output to its last.
    span: usize,
}

impl Grid {
    fn new(conv: &Conv) -> Self {
        let reach = |a: usize| (conv.kernel[a].max(1) - 1) * conv.dilate[a];
        let cells = [0, 1, 2].map(|a| conv.output[a] + reach(a) / conv.stride[a]);
        let last = conv.output.map(|n| n.saturating_sub(1));
        let span = (last[0] * cells[1] + last[1]) * cells[2] + conv.output[2];
        Grid {
            cells,
            phases: [0, 1, 2].map(|a| conv.stride[a].min(reach(a) + 1)),
            size: cells.iter().product(),
            span: if conv.out_size() == 0 { 0 } else { span },
        }
    }

    fn phases(&self) -> usize {
        self.phases.iter().product()
    }

    /// Elements of all phases.
    fn all(&self) -> usize {
        self.phases() * self.size
    }

    /// From a position of the output to what tap `t` reads for it.
    fn offset(&self, conv: &Conv, t: usize) -> usize {
        let [_, kh, kw] = conv.kernel;
        let (mut phase, mut shift) = (0, 0);
        for (a, tap) in [t / (kh * kw), t / kw % kh, t % kw].into_iter().enumerate() {
            let at = tap * conv.dilate[a];
            phase = phase * self.phases[a] + at % conv.stride[a];
            shift = shift * self.cells[a] + at / conv.stride[a];
        }
        phase * self.size + shift
    }

    /// Calls `f(cell, start)` with the first cell and the first element of every row of an output
    /// plane.
    #[inline(always)]
    fn for_output(&self, conv: &Conv, mut f: impl FnMut(usize, usize)) {
        let [out_d, out_h, out_w] = conv.output;
        for d in 0..out_d {
            for h in 0..out_h {
                f((d * self.cells[1] + h) * self.cells[2], (d * out_h + h) * out_w);
            }
        }
    }

    /// Calls `f(row of cells, first element of the image's row if there is one)` for every row of a
    /// phase.
    #[inline(always)]
    fn for_rows(&self, conv: &Conv, phase: usize, mut f: impl FnMut(usize, Option<usize>)) {
        let [_, in_h, in_w] = conv.input;
        let lines = phase / self.phases[2];
        let phases = [lines / self.phases[1], lines % self.phases[1]];
        let source = |a: usize, cell: usize| {
            let at = (cell * conv.stride[a] + phases[a]).checked_sub(conv.pad[a]);
            at.filter(|&at| at < conv.input[a])
        };
        for d in 0..self.cells[0] {
            for h in 0..self.cells[1] {
                let row = source(0, d).zip(source(1, h)).map(|(d, h)| (d * in_h + h) * in_w);
                f((d * self.cells[1] + h) * self.cells[2], row);
            }
        }
    }

    /// The cells of a row of a phase that lie inside the image, and where in its row the first
    /// does.
    fn inside(&self, conv: &Conv, phase: usize) -> (Range<usize>, usize) {
        let offset = (phase % self.phases[2]) as isize - conv.pad[2] as isize;
        let good = inside(&(0..self.cells[2]), conv.stride[2], offset, conv.input[2]);
        let first = (good.start * conv.stride[2]) as isize + offset;
        (good, first.max(0) as usize)
    }

    /// Lays a plane of the image out; the cells outside of it, which are those of every plane, stay
    /// as they are.
    ///
    /// # Safety
    /// `x` is a plane of the input; `to` has room for all phases.
    unsafe fn spread<T: Real>(&self, conv: &Conv, x: *const T, to: &mut [T]) {
        let stride = conv.stride[2];
        for phase in 0..self.phases() {
            let to = &mut to[phase * self.size..(phase + 1) * self.size];
            let (good, first) = self.inside(conv, phase);
            self.for_rows(conv, phase, |cell, row| {
                let Some(row) = row else { return };
                let to = &mut to[cell..cell + self.cells[2]][good.clone()];
                // SAFETY: `inside` keeps reads in the row.
                unsafe {
                    let from = x.add(row + first);
                    match stride {
                        1 => copy_row(from, to.as_mut_ptr(), to.len()),
                        2 => take_every(from, 2, to),
                        _ => take_every(from, stride, to),
                    }
                }
            });
        }
    }

    /// Writes the cells of a phase to the elements of a plane where they lie.
    fn gather<T: Real>(&self, conv: &Conv, phase: usize, from: &[T], x: &mut [T]) {
        let (good, first) = self.inside(conv, phase);
        self.for_rows(conv, phase, |cell, row| {
            let Some(row) = row.filter(|_| !good.is_empty()) else { return };
            let from = &from[cell + good.start..cell + good.end];
            let to = &mut x[row + first..];
            if conv.stride[2] == 1 {
                // SAFETY: `inside` keeps the cells in the row.
                unsafe { copy_row(from.as_ptr(), to.as_mut_ptr(), from.len()) };
            } else {
                for (to, &v) in to.iter_mut().step_by(conv.stride[2]).zip(from) {
                    *to = v;
                }
            }
        });
    }

    /// Copies a plane of the output's gradient to its cells.
    ///
    /// # Safety
    /// `dy` is a plane of the output.
    unsafe fn collect<T: Real>(&self, conv: &Conv, dy: *const T, to: &mut [T]) {
        self.for_output(conv, |cell, at| {
            let row = &mut to[cell..cell + conv.output[2]];
            // SAFETY: promised by the caller.
            unsafe { copy_row(dy.add(at), row.as_mut_ptr(), row.len()) };
        });
    }
}

/// Copies the elements at `from` and every `stride` after it.
///
/// # Safety
/// There is one for each of `to`.
#[inline(always)]
unsafe fn take_every<T: Copy>(from: *const T, stride: usize, to: &mut [T]) {
    for (i, to) in to.iter_mut().enumerate() {
        // SAFETY: promised by the caller. Wraps by name: a check would keep the loop from being
        // vectorised.
        *to = unsafe { *from.add(i.wrapping_mul(stride)) };
    }
}

crate::simd! {
    /// `y[p] = first + sum over (at, w) in taps of w x[p + at]` for `p` in `0..n`.
    ///
    /// # Safety
    /// `n` is a multiple of `LANES`, `y` holds as many, `x` holds those after every tap's offset.
    unsafe fn correlate[T: Real][T](
        x: *const T, taps: &[(usize, T)], first: T, y: *mut T, n: usize,
    ) -> () {
        for p in (0..n).step_by(LANES) {
            let mut sums = [first; LANES];
            for &(at, w) in taps {
                // SAFETY: promised by the caller.
                let x = unsafe { &*x.add(p + at).cast::<[T; LANES]>() };
                for i in 0..LANES {
                    sums[i] += w * x[i];
                }
            }
            // SAFETY: as above.
            unsafe { y.add(p).copy_from_nonoverlapping(sums.as_ptr(), LANES) };
        }
    }

    /// `sums[t] += sum over p in 0..n of dy[p] x[p + offsets[t]]`. Stretches of `LEAF` products a
    /// lane are added in `T`, all else in f64, so that the error does not grow with `n`.
    ///
    /// # Safety
    /// As [`correlate`]; `sums` has an element for every offset.
    unsafe fn add_products[T: Real][T](
        x: *const T, offsets: &[usize], dy: *const T, n: usize, sums: &mut [f64],
    ) -> () {
        const TOGETHER: usize = 3;
        const WIDTH: usize = 32;
        const STRETCH: usize = LEAF * WIDTH;
        for (group, taps) in offsets.chunks(TOGETHER).enumerate() {
            // A last, smaller group calculates its last tap several times.
            let mut at = [taps[taps.len() - 1]; TOGETHER];
            at[..taps.len()].copy_from_slice(taps);
            for from in (0..n).step_by(STRETCH) {
                let mut lanes = [[T::zero(); WIDTH]; TOGETHER];
                for p in (from..n.min(from + STRETCH)).step_by(WIDTH) {
                    // SAFETY: promised by the caller; `WIDTH` divides `LANES`.
                    let dy = unsafe { &*dy.add(p).cast::<[T; WIDTH]>() };
                    for k in 0..TOGETHER {
                        // SAFETY: as above.
                        let x = unsafe { &*x.add(p + at[k]).cast::<[T; WIDTH]>() };
                        for i in 0..WIDTH {
                            lanes[k][i] += dy[i] * x[i];
                        }
                    }
                }
                for (k, lanes) in lanes.iter().take(taps.len()).enumerate() {
                    let total: f64 = lanes.iter().map(|&lane| Element::to_f64(lane)).sum();
                    sums[group * TOGETHER + k] += total;
                }
            }
        }
    }
}
