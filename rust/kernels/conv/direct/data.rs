//! Gradients of images: every phase of a grid gathers the contributions of its taps.
//!
//! The gradient of the output is padded with zeros; the gradient at a cell is then a sum over
//! filters and the taps of its phase, each again a stretch at one offset. (An infinite weight times
//! these zeros is NaN.)

use super::super::blocks::{Block, Blocks};
use super::{CHUNK, Direct};
use crate::kernels::gemm::micro::{Access, Tile, WIDE};
use crate::kernels::gemm::pack::RowPanels;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// The taps of a phase, and the distances by which they read before a cell.
struct Phase {
    taps: Vec<(usize, usize)>,
    /// Where the stretch of each filter and tap starts.
    offsets: Vec<usize>,
}

impl<T: Real> Direct<'_, T> {
    /// Whether there are enough channels to keep the micro-kernel busy, and few enough cells that
    /// are not positions of the image.
    pub fn suits_data(&self) -> bool {
        let cells = self.grid.phases() * self.grid.size.next_multiple_of(self.kernels.lanes);
        self.conv.in_c >= 4 && cells * 4 <= self.conv.in_size() * 7
    }

    /// Zeros before and after the gradient of an output plane.
    fn reach(&self) -> usize {
        self.grid.size - self.grid.span.min(self.grid.size)
    }

    /// Elements of a plane of gradients with its margins.
    fn stretch(&self) -> usize {
        self.reach() + self.grid.size
    }

    fn phases(&self) -> Vec<Phase> {
        let mut phases: Vec<Phase> = Vec::new();
        phases.resize_with(self.grid.phases(), || Phase { taps: Vec::new(), offsets: Vec::new() });
        for t in 0..self.conv.taps() {
            let at = self.grid.offset(self.conv, t);
            phases[at / self.grid.size].taps.push((t, at % self.grid.size));
        }
        for phase in &mut phases {
            for f in 0..self.conv.out_c {
                let first = f * self.stretch() + self.reach();
                phase.offsets.extend(phase.taps.iter().map(|(_, shift)| first - shift));
            }
        }
        phases
    }

    /// `dx` from `dy` and the filters.
    ///
    /// # Safety
    /// As [`super::super::backward_data`].
    pub unsafe fn backward_data(&self, dy: *const T, w: *const T, dx: *mut T) {
        let conv = self.conv;
        let (channels, weights) = (conv.in_c, conv.out_c * conv.depth());
        let panels = RowPanels::new(channels, self.kernels);
        let phases = self.phases();
        let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
        let image = conv.out_c * self.stretch() + self.kernels.columns();
        let count = conv.batch * conv.groups;
        let round = (super::ROUND_BYTES / size_of::<T>() / image).clamp(1, count);
        let cells = [self.grid.rows(), self.grid.cells[2]];
        let blocks = Blocks::of_cells(cells, CHUNK, WIDE * self.kernels.lanes);
        let parts = super::TASKS.div_ceil(round * blocks.count()).min(panels.count());
        let covered = self.grid.covers(conv) && phases.iter().all(|phase| !phase.taps.is_empty());
        with_scratch(conv.groups * weights + round * image, |scratch: &mut [T]| {
            let (packed, grads) = scratch.split_at_mut(conv.groups * weights);
            let (packed, grads) = (Shared(packed.as_mut_ptr()), Shared(grads.as_mut_ptr()));
            parallel_for(conv.groups * panels.count(), 1, |tasks| {
                for task in tasks {
                    let (group, panel) = (task / panels.count(), task % panels.count());
                    // SAFETY: promised by the caller; panels are apart.
                    unsafe {
                        let [from, to] = [w, packed].map(|of| of.at(group * weights));
                        self.pack_turned(&phases, panels.at(panel), from, to);
                    }
                }
            });
            for first in (0..count).step_by(round) {
                let images = first..(first + round).min(count);
                // SAFETY: promised by the caller.
                unsafe { self.lay_gradients(dy, images.clone(), (grads, image), first == 0) };
                if !covered {
                    parallel_for(images.len() * channels, 1, |planes| {
                        let (size, first) = (conv.in_size(), images.start * channels);
                        // SAFETY: promised by the caller; planes are apart.
                        unsafe {
                            let to = dx.at((first + planes.start) * size);
                            to.write_bytes(0, planes.len() * size);
                        }
                    });
                }
                parallel_for(images.len() * blocks.count() * parts, 1, |tasks| {
                    for task in tasks {
                        let (task, part) = (task / parts, task % parts);
                        let (i, block) = (task / blocks.count(), blocks.at(task % blocks.count()));
                        let at = images.start + i;
                        let some =
                            panels.count() * part / parts..panels.count() * (part + 1) / parts;
                        // SAFETY: promised by the caller; blocks and channels are apart.
                        unsafe {
                            let weights = packed.at(at % conv.groups * weights).cast_const();
                            let grads = grads.at(i * image).cast_const();
                            let to = dx.at(at * channels * conv.in_size());
                            let terms = (weights, grads);
                            self.gather_phases(&phases, (panels, some), terms, (to, &block));
                        }
                    }
                });
            }
        });
    }

    /// Packs the rows `channels` of the turned filters: phase after phase, panels of terms.
    ///
    /// # Safety
    /// `w` holds a group's filters, `to` has room for as many elements.
    unsafe fn pack_turned(
        &self,
        phases: &[Phase],
        channels: Range<usize>,
        w: *const T,
        to: *mut T,
    ) {
        let (conv, taps) = (self.conv, self.conv.taps());
        let mut before = 0;
        for phase in phases {
            let terms = conv.out_c * phase.taps.len();
            // SAFETY: promised by the caller.
            unsafe {
                let mut to = to.add(before * conv.in_c + channels.start * terms);
                for f in 0..conv.out_c {
                    for (t, _) in &phase.taps {
                        for c in channels.clone() {
                            *to = *w.add((f * conv.in_c + c) * taps + t);
                            to = to.add(1);
                        }
                    }
                }
            }
            before += terms;
        }
    }

    /// Lays gradients of a round out with their margins.
    ///
    /// # Safety
    /// `dy` is as in [`Direct::backward_data`], `to` has room for a round.
    unsafe fn lay_gradients(
        &self,
        dy: Shared<T>,
        images: Range<usize>,
        (to, image): (Shared<T>, usize),
        is_first: bool,
    ) {
        let (filters, stretch) = (self.conv.out_c, self.stretch());
        let grain = (1usize << 14).div_ceil(stretch.max(1));
        parallel_for(images.len() * filters, grain, |planes| {
            for plane in planes {
                let (i, f) = (plane / filters, plane % filters);
                let is_last = f + 1 == filters;
                let room = if is_last { stretch + self.kernels.columns() } else { stretch };
                // SAFETY: promised by the caller; planes are apart.
                unsafe {
                    let to = std::slice::from_raw_parts_mut(to.at(i * image + f * stretch), room);
                    if is_first {
                        to.fill(T::zero());
                    }
                    let dy = dy.at(((images.start + i) * filters + f) * self.conv.out_size());
                    self.grid.collect(self.conv, dy, to[self.reach()..].as_mut_ptr());
                }
            }
        });
    }

    /// The gradients of some channels of an image in a block of the cells of every phase.
    ///
    /// # Safety
    /// Weights are packed and gradients laid out; these elements of `dx` are the caller's.
    unsafe fn gather_phases(
        &self,
        phases: &[Phase],
        (panels, some): (RowPanels, Range<usize>),
        (weights, grads): (*const T, *const T),
        (dx, block): (*mut T, &Block),
    ) {
        let (conv, width) = (self.conv, self.grid.cells[2]);
        let (kernels, lanes) = (self.kernels, self.kernels.lanes);
        let registers = block.span(width).div_ceil(lanes);
        let room = registers * lanes;
        // SAFETY: promised by the caller.
        let grads = unsafe { grads.add(block.rows.start * width + block.columns.start) };
        for rows in some.map(|i| panels.at(i)) {
            with_scratch(rows.len() * room, |sums: &mut [T]| {
                let mut before = 0;
                for (p, phase) in phases.iter().enumerate().filter(|(_, p)| !p.taps.is_empty()) {
                    let terms = phase.offsets.len();
                    for register in (0..registers).step_by(WIDE) {
                        let wide = WIDE.min(registers - register);
                        // SAFETY: promised by the caller; a stretch ends in the room of the image.
                        unsafe {
                            kernels.get(rows.len(), wide, Access::TermsByOffset)(&Tile {
                                k: terms,
                                a: weights.add(before * conv.in_c + rows.start * terms),
                                a_step: rows.len(),
                                b: grads.add(register * lanes),
                                b_step: 0,
                                b_next: lanes,
                                offsets: phase.offsets.as_ptr(),
                                c: sums.as_mut_ptr().add(register * lanes),
                                c_step: room,
                                c_next: lanes,
                                add: false,
                                bias: std::ptr::null(),
                            });
                        }
                    }
                    for (sums, c) in sums.chunks_exact(room).zip(rows.clone()) {
                        // SAFETY: promised by the caller.
                        unsafe {
                            let plane = dx.add(c * conv.in_size());
                            self.grid.gather(conv, (p, block), sums.as_ptr(), plane);
                        }
                    }
                    before += terms;
                }
            });
        }
    }
}
