//! Gradients of filters: products of the stretches that a tap reads with the gradients of the
//! outputs, laid out in cells.

use super::super::pack::store_transposed;
use super::{Direct, TASKS};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, Tile, WIDE};
use crate::kernels::gemm::pack::RowPanels;
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Positions that are summed up at once.
const TERMS: usize = 256;

impl<T: Real> Direct<'_, T> {
    /// `dw` from the images and `dy`.
    ///
    /// # Safety
    /// As [`super::super::backward_weight`].
    pub unsafe fn backward_weight(&self, x: *const T, dy: *const T, dw: *mut T) {
        let (conv, depth, filters) = (self.conv, self.conv.depth(), self.conv.out_c);
        let lanes = filters.next_multiple_of(self.kernels.lanes);
        let (x, dy, dw) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(dw));
        let panels = RowPanels::new(depth, self.kernels);
        let each = (panels.count() * conv.groups).div_ceil(TASKS);
        let parts = panels.count().div_ceil(each);
        let grads_room = self.grid.span * lanes;
        let sums_room = conv.groups * depth * lanes;
        with_scratch(sums_room + self.round * (self.image + grads_room), |scratch: &mut [T]| {
            let (sums, rest) = scratch.split_at_mut(sums_room);
            let (images, grads) = rest.split_at_mut(self.round * self.image);
            let [sums, images, grads] = [sums, images, grads].map(|s| Shared(s.as_mut_ptr()));
            for round in self.rounds() {
                let is_first = round.start == 0;
                // SAFETY: promised by the caller.
                unsafe {
                    self.spread(x, round.clone(), images, is_first);
                    self.turn(dy, round.clone(), (grads, lanes), is_first);
                }
                parallel_for(conv.groups * parts, 1, |tasks| {
                    for task in tasks {
                        let (group, first) = (task / parts, task % parts * each);
                        let panels = (panels, first..(first + each).min(panels.count()));
                        for image in round.clone().filter(|i| i % conv.groups == group) {
                            let at = image - round.start;
                            // SAFETY: promised by the caller; panels of sums are apart.
                            unsafe {
                                let image_at = images.at(at * self.image).cast_const();
                                let grads = grads.at(at * grads_room).cast_const();
                                let sums = sums.at(group * depth * lanes);
                                let add = image >= conv.groups;
                                self.products(panels.clone(), image_at, (grads, lanes), sums, add);
                            }
                        }
                    }
                });
            }
            // SAFETY: promised by the caller; the sums are complete.
            unsafe { store_transposed(conv, sums, lanes, dw) };
        });
    }

    /// Lays the gradients of a round's outputs out in cells, filters side by side.
    ///
    /// # Safety
    /// `dy` is as in [`super::super::backward_weight`], `to` has room for a round.
    unsafe fn turn(
        &self,
        dy: Shared<T>,
        images: Range<usize>,
        (to, lanes): (Shared<T>, usize),
        is_first: bool,
    ) {
        let (conv, rows, width) = (self.conv, self.cell_rows(), self.grid.cells[2]);
        let out_w = conv.output[2];
        let grain = (1usize << 14).div_ceil(width * lanes);
        parallel_for(images.len() * rows, grain, |tasks| {
            for task in tasks {
                let (image, row) = (task / rows, task % rows);
                let count = if row + 1 < rows { width } else { out_w };
                // SAFETY: promised by the caller; rows are apart.
                unsafe {
                    let to = to.at((image * self.grid.span + row * width) * lanes);
                    if is_first {
                        to.write_bytes(0, count * lanes);
                    }
                    let Some(at) = self.output_row(row) else { continue };
                    let first = (images.start + image) * conv.out_c * conv.out_size() + at;
                    let from = Mat { ptr: dy.at(first), row: 1, col: conv.out_size() as isize };
                    copy_matrix((out_w, conv.out_c), from, Mat::rows(to, lanes));
                }
            }
        });
    }

    /// Adds the products of an image's stretches, those of some panels, and its gradients.
    ///
    /// # Safety
    /// Image and gradients are laid out; these panels of `sums` are the caller's.
    unsafe fn products(
        &self,
        (panels, some): (RowPanels, Range<usize>),
        image: *const T,
        (grads, lanes): (*const T, usize),
        sums: *mut T,
        add: bool,
    ) {
        let (kernels, span) = (self.kernels, self.grid.span);
        let registers = lanes / kernels.lanes;
        for first in (0..span).step_by(TERMS) {
            for register in (0..registers).step_by(WIDE) {
                let wide = WIDE.min(registers - register);
                for rows in some.clone().map(|i| panels.at(i)) {
                    let run = kernels.get(rows.len(), wide, Access::RowsByOffset);
                    // SAFETY: promised by the caller.
                    unsafe {
                        run(&Tile {
                            k: TERMS.min(span - first),
                            a: image.add(first),
                            a_step: 0,
                            b: grads.add(first * lanes + register * kernels.lanes),
                            b_step: lanes,
                            b_next: kernels.lanes,
                            offsets: self.offsets[rows.clone()].as_ptr(),
                            c: sums.add(rows.start * lanes + register * kernels.lanes),
                            c_step: lanes,
                            c_next: kernels.lanes,
                            add: add || first > 0,
                            bias: std::ptr::null(),
                        });
                    }
                }
            }
        }
    }
}
