//! Filters of a stride, applied to the windows of images that they see.
//!
//! Elements of a window are broadcast and filters stand side by side in registers, so that it does
//! not matter how far windows are apart, and no sum is calculated that is not an output. A task
//! lays out what its windows see, with padding, in scratch that stays in the second-level cache;
//! images without padding are read in place.

use super::pack::inside;
use super::{Conv, report};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, Kernels, Tile};
use crate::kernels::gemm::pack::Columns;
use crate::kernels::kept::{Keeper, with_made};
use crate::kernels::layout::{copy_matrix, copy_rows};
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Positions of the output in a chunk, about: sixteen tiles, over which a panel of filters is read.
const CHUNK: usize = 224;
/// Bytes of what the windows of a chunk see, at most, if it has more than one row: half of a
/// second-level cache.
const BOX_BYTES: usize = 512 << 10;
/// Terms whose panel of filters stays in the first-level cache.
const TERMS: usize = 256;
/// Windows of a row, at least: with fewer, sums wait for one another.
const LEAST: usize = 4;
/// Terms of a sum, at least: fewer do not outweigh what is done for every output.
const DEPTH: usize = 16;
/// Products for each element that is laid out, at least: laying it out would be most of the work.
const EACH: usize = 48;
/// Planes of outputs that are written at once.
const PLANES: usize = 8;
/// Minimum number of tasks.
const TASKS: usize = 8;

/// A convolution by windows.
pub struct Windows<'a, T: 'static> {
    conv: &'a Conv,
    kernels: &'static Kernels<T>,
    /// Extents of a chunk of outputs, which follow one another: an axis is cut only if those before
    /// it are cut to 1.
    chunk: [usize; 3],
    /// Extents of the planes that windows lie in: those of the image, or what a chunk sees of it.
    plane: [usize; 3],
    in_place: bool,
    /// How the micro-kernel reads the windows of a row.
    access: Access,
    /// Where the terms of a window are: channel by channel, tap by tap.
    terms: Vec<usize>,
}

/// The filters of a call: packed in panels of [`Kernels::columns`] filters, term after term, and
/// what is added to the sums of each (or null).
#[derive(Clone, Copy)]
struct PackedFilters<T> {
    packed: Shared<T>,
    bias: Shared<T>,
}

impl<T: Real> PackedFilters<T> {
    /// Those of a group, which has this many packed elements and filters.
    ///
    /// # Safety
    /// There are as many.
    unsafe fn group(self, group: usize, packed: usize, filters: usize) -> Self {
        // SAFETY: promised by the caller.
        unsafe {
            let bias =
                if self.has_bias() { self.bias.at(group * filters) } else { self.bias.ptr() };
            PackedFilters { packed: Shared(self.packed.at(group * packed)), bias: Shared(bias) }
        }
    }

    fn has_bias(self) -> bool {
        !self.bias.ptr().is_null()
    }
}

impl<'a, T: Real> Windows<'a, T> {
    /// The convolution by windows, if it is the faster way; by extents only.
    pub fn chosen(conv: &'a Conv) -> Option<Self> {
        let kernels = T::kernels();
        let access = match conv.stride[2] {
            2 => Access::EverySecond,
            4 => Access::EveryFourth,
            _ => return None,
        };
        let padded = conv.out_c.next_multiple_of(kernels.lanes);
        let pays = conv.out_c * 4 >= padded * 3 && conv.output[2] >= LEAST && conv.depth() >= DEPTH;
        let is_dense = conv.dilate == [1; 3];
        let is_empty = conv.batch * conv.groups * conv.out_size() * conv.depth() == 0;
        let made = (pays && is_dense && !is_empty).then(|| Self::new(conv, kernels, access));
        made.filter(|made| {
            let products = made.chunk.iter().product::<usize>() * conv.out_c * conv.depth();
            products >= EACH * made.room()
        })
    }

    /// Elements of scratch for what the windows of a chunk see.
    fn room(&self) -> usize {
        if self.in_place { 0 } else { self.conv.in_c * self.plane.iter().product::<usize>() }
    }

    fn new(conv: &'a Conv, kernels: &'static Kernels<T>, access: Access) -> Self {
        let chunk = chunk::<T>(conv);
        let all = conv.seen(conv.output);
        let in_place = conv.pad == [0; 3] && (0..3).all(|a| all[a] <= conv.input[a]);
        let plane = if in_place { conv.input } else { conv.seen(chunk) };
        let at = |[d, h, w]: [usize; 3]| (d * plane[1] + h) * plane[2] + w;
        let taps: Vec<usize> = positions(conv.kernel).map(at).collect(); // without dilation
        let size = plane.iter().product::<usize>();
        let terms = (0..conv.in_c).flat_map(|c| taps.iter().map(move |t| c * size + t));
        Windows { conv, kernels, chunk, plane, in_place, access, terms: terms.collect() }
    }

    /// From the first window to the one of an output that lies this far from the first.
    fn window(&self, at: [usize; 3]) -> usize {
        let [d, h, w] = [0, 1, 2].map(|a| at[a] * self.conv.stride[a]);
        (d * self.plane[1] + h) * self.plane[2] + w
    }

    /// Chunks along the axes.
    fn chunks(&self) -> [usize; 3] {
        [0, 1, 2].map(|a| self.conv.output[a].div_ceil(self.chunk[a]))
    }

    /// Panels of the filters of a group.
    fn panels(&self) -> usize {
        self.conv.out_c.div_ceil(self.kernels.columns())
    }

    /// Elements of a packed panel.
    fn panel(&self) -> usize {
        self.terms.len() * self.kernels.columns()
    }

    /// `y = conv(x, w) + b`, of which `done` is called with what is finished.
    ///
    /// # Safety
    /// As [`super::forward`].
    pub unsafe fn forward(
        &self,
        x: *const T,
        w: *const T,
        bias: Option<*const T>,
        (y, done): (*mut T, Option<OnElements<'_>>),
        keeper: Option<Keeper<'_>>,
    ) {
        let (conv, panels) = (self.conv, self.panels());
        let w = Shared(w.cast_mut());
        let pack = |room: &mut [T]| {
            let room = Shared(room.as_mut_ptr());
            parallel_for(conv.groups * panels, 1, |some| {
                for i in some {
                    let (group, first) = (i / panels, i % panels * self.kernels.columns());
                    let filters = first..(first + self.kernels.columns()).min(conv.out_c);
                    // SAFETY: promised by the caller; panels are apart.
                    unsafe {
                        let w = Mat::rows(w.at(group * conv.out_c * conv.depth()), conv.depth());
                        let to = room.at(i * self.panel());
                        w.t().pack(0..conv.depth(), filters, self.kernels.columns(), to);
                    }
                }
            });
        };
        with_made(keeper, conv.groups * panels * self.panel(), pack, |packed| {
            let bias = bias.unwrap_or(std::ptr::null());
            let filters = PackedFilters {
                packed: Shared(packed.as_ptr().cast_mut()),
                bias: Shared(bias.cast_mut()),
            };
            // SAFETY: promised by the caller.
            unsafe { self.apply(Shared(x.cast_mut()), filters, (Shared(y), done)) };
        });
    }

    /// The outputs of all images.
    ///
    /// # Safety
    /// As [`super::forward`].
    unsafe fn apply(
        &self,
        x: Shared<T>,
        all: PackedFilters<T>,
        (y, done): (Shared<T>, Option<OnElements<'_>>),
    ) {
        let (conv, panels, size) = (self.conv, self.panels(), self.conv.out_size());
        let images = conv.batch * conv.groups;
        let chunks = self.chunks().iter().product::<usize>();
        let parts = TASKS.div_ceil(images * chunks).min(panels);
        parallel_for(images * chunks * parts, 1, |tasks| {
            with_scratch(self.room(), |laid: &mut [T]| {
                let mut held = None;
                for task in tasks {
                    let (at, part) = (task / parts, task % parts);
                    let (image, chunk) = (at / chunks, self.block(at % chunks));
                    let some = panels * part / parts..panels * (part + 1) / parts;
                    let group = image % conv.groups;
                    // SAFETY: promised by the caller; chunks of outputs are apart.
                    let written = unsafe {
                        let x = x.at(image * conv.in_c * conv.in_size()).cast_const();
                        let source = if self.in_place {
                            x.add(self.window([0, 1, 2].map(|a| chunk[a].start)))
                        } else {
                            if held != Some(at) {
                                self.lay(x, &chunk, laid.as_mut_ptr());
                                held = Some(at);
                            }
                            laid.as_ptr()
                        };
                        let filters = all.group(group, panels * self.panel(), conv.out_c);
                        let y = y.at(image * conv.out_c * size);
                        self.sum_up(source, &chunk, (filters, some), y)
                    };
                    let planes = image * conv.out_c;
                    let columns = self.outputs(&chunk);
                    report(done, planes + written.start..planes + written.end, size, columns);
                }
            });
        });
    }

    /// A chunk of the outputs.
    fn block(&self, i: usize) -> [Range<usize>; 3] {
        let [_, down, across] = self.chunks();
        let at = [i / across / down, i / across % down, i % across];
        [0, 1, 2].map(|a| {
            let first = at[a] * self.chunk[a];
            first..(first + self.chunk[a]).min(self.conv.output[a])
        })
    }

    /// The elements of a plane of the output that a chunk has.
    fn outputs(&self, chunk: &[Range<usize>; 3]) -> Range<usize> {
        let [_, height, width] = self.conv.output;
        let first = (chunk[0].start * height + chunk[1].start) * width + chunk[2].start;
        first..first + chunk.iter().map(Range::len).product::<usize>()
    }

    /// Lays out what the windows of a chunk see of an image.
    ///
    /// # Safety
    /// `x` is an image, `to` has room for the planes of all channels.
    unsafe fn lay(&self, x: *const T, chunk: &[Range<usize>; 3], to: *mut T) {
        let (conv, [_, height, width]) = (self.conv, self.plane);
        let [depth, rows, columns] = conv.seen(chunk.clone().map(|range| range.len()));
        let offset = |a: usize| (chunk[a].start * conv.stride[a]) as isize - conv.pad[a] as isize;
        let good = |a: usize, seen: usize| inside(&(0..seen), 1, offset(a), conv.input[a]);
        let (slices, down, across) = (good(0, depth), good(1, rows), good(2, columns));
        let [_, in_h, in_w] = conv.input;
        for (c, d) in (0..conv.in_c).flat_map(|c| (0..depth).map(move |d| (c, d))) {
            // SAFETY: promised by the caller: what is inside are elements of the image.
            unsafe {
                let to = to.add((c * self.plane[0] + d) * height * width);
                let to = std::slice::from_raw_parts_mut(to, rows * width);
                if !slices.contains(&d) || down.is_empty() || across.is_empty() {
                    to.fill(T::zero());
                    continue;
                }
                to[..down.start * width].fill(T::zero());
                to[down.end * width..].fill(T::zero());
                let to = &mut to[down.start * width..down.end * width];
                let at = |a: usize, cell: usize| (cell as isize + offset(a)) as usize;
                let from = (c * conv.input[0] + at(0, d)) * in_h + at(1, down.start);
                let from = x.add(from * in_w + at(2, across.start));
                let first = to[across.start..].as_mut_ptr();
                copy_rows(from, in_w, first, width, down.len(), across.len());
                if across.len() < width {
                    for row in to.chunks_exact_mut(width) {
                        row[..across.start].fill(T::zero());
                        row[across.end..].fill(T::zero());
                    }
                }
            }
        }
    }

    /// The outputs of some panels of filters in a chunk. Returns these filters.
    ///
    /// # Safety
    /// `source` is the first window's, filters are those of the group, and these elements of `y`,
    /// the first plane of the image, are the caller's.
    unsafe fn sum_up(
        &self,
        source: *const T,
        chunk: &[Range<usize>; 3],
        (filters, panels): (PackedFilters<T>, Range<usize>),
        y: *mut T,
    ) -> Range<usize> {
        let (kernels, width, lanes) = (self.kernels, self.kernels.columns(), self.kernels.lanes);
        let (outputs, size, all) = (self.outputs(chunk), self.conv.out_size(), self.conv.out_c);
        let (row, slabs) = (chunk[2].len(), self.terms.len().div_ceil(TERMS));
        let tiles = row.div_ceil(kernels.rows);
        let cut = |n: usize, i: usize, parts: usize| n * i / parts..n * (i + 1) / parts;
        with_scratch(outputs.len() * width, |sums: &mut [T]| {
            for panel in panels.clone() {
                let some = panel * width..((panel + 1) * width).min(all);
                if filters.has_bias() {
                    for sums in sums.chunks_exact_mut(width) {
                        // SAFETY: there is a bias for each of these filters.
                        unsafe {
                            let bias = filters.bias.at(some.start).cast_const();
                            sums.as_mut_ptr().copy_from_nonoverlapping(bias, some.len());
                        }
                    }
                }
                for slab in (0..slabs).map(|i| cut(self.terms.len(), i, slabs)) {
                    for i in 0..outputs.len() / row * tiles {
                        let (line, windows) = (i / tiles, cut(row, i % tiles, tiles));
                        let (d, h) = (line / chunk[1].len(), line % chunk[1].len());
                        let registers = some.len().div_ceil(lanes);
                        let run = kernels.get(windows.len(), registers, self.access);
                        let first = (line * row + windows.start) * width;
                        // SAFETY: promised by the caller.
                        unsafe {
                            run(&Tile {
                                k: slab.len(),
                                a: source.add(self.window([d, h, windows.start])),
                                a_step: 0,
                                b: filters.packed.at(panel * self.panel() + slab.start * width),
                                b_step: width,
                                b_next: lanes,
                                offsets: self.terms[slab.clone()].as_ptr(),
                                c: sums[first..].as_mut_ptr(),
                                c_step: width,
                                c_next: lanes,
                                add: slab.start > 0 || filters.has_bias(),
                                bias: std::ptr::null(),
                            });
                        }
                    }
                }
                // Planes may lie so that they share few lines of the first-level cache.
                for first in (0..some.len()).step_by(PLANES) {
                    // SAFETY: as above.
                    unsafe {
                        let from = sums.as_mut_ptr().add(first);
                        let from = Mat { ptr: from, row: 1, col: width as isize };
                        let to = y.add((some.start + first) * size + outputs.start);
                        let planes = PLANES.min(some.len() - first);
                        copy_matrix((planes, outputs.len()), from, Mat::rows(to, size));
                    }
                }
            }
        });
        panels.start * width..(panels.end * width).min(all)
    }
}

impl Conv {
    /// Extents of what the windows of outputs of these extents see.
    fn seen(&self, outputs: [usize; 3]) -> [usize; 3] {
        [0, 1, 2].map(|a| {
            let reach = (self.kernel[a].max(1) - 1) * self.dilate[a];
            (outputs[a].max(1) - 1) * self.stride[a] + reach + 1
        })
    }
}

/// All positions in a box.
fn positions([depth, height, width]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..depth * height * width).map(move |i| [i / width / height, i / width % height, i % width])
}

/// Extents of a chunk: about [`CHUNK`] outputs in nearly equal parts.
fn chunk<T>(conv: &Conv) -> [usize; 3] {
    let mut chunk = conv.output;
    for axis in 0..3 {
        let bytes = |chunk| conv.in_c * conv.seen(chunk).iter().product::<usize>() * size_of::<T>();
        let fits = |chunk: [usize; 3]| {
            chunk.iter().product::<usize>() <= CHUNK && (axis == 2 || bytes(chunk) <= BOX_BYTES)
        };
        let parts = (1..chunk[axis]).find(|parts| {
            let mut chunk = chunk;
            chunk[axis] = chunk[axis].div_ceil(*parts);
            fits(chunk)
        });
        chunk[axis] = parts.map_or(1, |parts| chunk[axis].div_ceil(parts));
        if parts.is_some() {
            break;
        }
    }
    chunk
}
