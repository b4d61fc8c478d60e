//! The columns of deformable convolutions: the elements that filters meet, gathered by bilinear
//! samples, and their gradients.

use super::deformable::{Common, param};
use crate::error::Result;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::Attrs;
use crate::tensor::View;

/// Extents and steps of one call.
pub struct Sampling {
    pub p: Common,
    pub images: usize,
    pub channels: usize,
    from: (usize, usize),
    to: (usize, usize),
}

/// Where a sample reads: the four elements around it, with weights and the derivatives of the
/// weights along rows and columns.
struct Sample<T> {
    four: [Option<(usize, T, T, T)>; 4],
}

impl Sampling {
    pub fn new(attrs: &Attrs, data: &View, out: &View) -> Result<Self> {
        let at = |v: &View, i: usize| v.dims()[i] as usize;
        Ok(Sampling {
            p: param(attrs).complete()?,
            images: at(data, 0),
            channels: at(data, 1),
            from: (at(data, 2), at(data, 3)),
            to: (at(out, 2), at(out, 3)),
        })
    }

    pub fn taps(&self) -> usize {
        self.p.taps() as usize
    }

    pub fn positions(&self) -> usize {
        self.to.0 * self.to.1
    }

    pub fn plane(&self) -> usize {
        self.from.0 * self.from.1
    }

    /// Rows of the matrix of columns: an element for each channel and filter element.
    pub fn rows(&self) -> usize {
        self.channels * self.taps()
    }

    /// Elements of one image of offset.
    pub fn offsets(&self) -> usize {
        2 * self.p.offset_groups as usize * self.taps() * self.positions()
    }

    /// What filter element `tap` reads at position `at`, for the channels of offset group `group`.
    fn sample<T: Real>(&self, offset: &[T], group: usize, tap: usize, at: usize) -> Sample<T> {
        let map = (group * self.taps() + tap) * 2;
        let place = |axis: usize, k: usize, i: usize| {
            let base =
                i as i64 * self.p.stride[axis] + k as i64 * self.p.dilate[axis] - self.p.pad[axis];
            T::of(base as f64) + offset[(map + axis) * self.positions() + at]
        };
        let kw = self.p.kernel[1] as usize;
        let (y, x) = (place(0, tap / kw, at / self.to.1), place(1, tap % kw, at % self.to.1));
        if self.p.modulated {
            Sample::padded(y, x, self.from)
        } else {
            Sample::clamped(y, x, self.from)
        }
    }
}

impl<T: Real> Sample<T> {
    fn none() -> Self {
        Sample { four: [None; 4] }
    }

    /// Elements outside of the image are 0.
    fn padded(y: T, x: T, (h, w): (usize, usize)) -> Self {
        let near = |v: T, n: usize| v > -T::one() && v < T::of(n as f64);
        if !near(y, h) || !near(x, w) {
            return Self::none();
        }
        Self::around(
            [y.floor(), y.floor() + T::one()],
            [x.floor(), x.floor() + T::one()],
            (y, x),
            (h, w),
        )
    }

    /// A place in the image reads its last element where there is none beyond.
    fn clamped(y: T, x: T, (h, w): (usize, usize)) -> Self {
        let inside = |v: T, n: usize| v >= T::zero() && v < T::of(n as f64);
        if !inside(y, h) || !inside(x, w) {
            return Self::none();
        }
        // At the last element the other neighbour is itself, so that the slope is 0.
        let pair = |v: T, n: usize| {
            let last = T::of(n as f64 - 1.0);
            (v.min(last), [v.floor().min(last), (v.floor() + T::one()).min(last)])
        };
        let ((y, rows), (x, columns)) = (pair(y, h), pair(x, w));
        Self::around(rows, columns, (y, x), (h, w))
    }

    fn around(rows: [T; 2], columns: [T; 2], (y, x): (T, T), (h, w): (usize, usize)) -> Self {
        let one = T::one();
        let (py, px) = (y - y.floor(), x - x.floor());
        let corner = |i: usize, j: usize| {
            let (row, column) = (rows[i], columns[j]);
            let in_range = |v: T, n: usize| v >= T::zero() && v < T::of(n as f64);
            let (wy, sy) = if i == 1 { (py, one) } else { (one - py, -one) };
            let (wx, sx) = if j == 1 { (px, one) } else { (one - px, -one) };
            let at = row.to_usize()? * w + column.to_usize()?;
            (in_range(row, h) && in_range(column, w)).then_some((at, wy * wx, sy * wx, wy * sx))
        };
        Sample { four: [corner(0, 0), corner(0, 1), corner(1, 0), corner(1, 1)] }
    }

    fn known(&self) -> impl Iterator<Item = (usize, T, T, T)> + '_ {
        self.four.iter().flatten().copied()
    }
}

/// Gathers the columns `(rows, positions)` of one image.
pub fn gather<T: Real>(
    plan: &Sampling,
    x: &[T],
    offset: &[T],
    mask: Option<&[T]>,
    columns: &mut [T],
) {
    let (taps, positions, plane) = (plan.taps(), plan.positions(), plan.plane());
    let per_group = plan.channels / plan.p.offset_groups as usize;
    let out = Shared(columns.as_mut_ptr());
    parallel_for(plan.p.offset_groups as usize * taps, 1, |range| {
        for part in range {
            let (group, tap) = (part / taps, part % taps);
            for at in 0..positions {
                let sample = plan.sample(offset, group, tap, at);
                let factor = mask.map_or(T::one(), |m| m[part * positions + at]);
                for c in group * per_group..(group + 1) * per_group {
                    let image = &x[c * plane..(c + 1) * plane];
                    let add = |sum, (k, weight, ..): (usize, T, T, T)| sum + image[k] * weight;
                    let value = sample.known().fold(T::zero(), add);
                    // SAFETY: rows of the columns belong to one task.
                    unsafe { *out.at((c * taps + tap) * positions + at) = value * factor };
                }
            }
        }
    });
}

/// Adds the gradients of data, offset and mask of one image from that of its columns.
pub fn scatter<T: Real>(
    plan: &Sampling,
    (x, offset, mask): (&[T], &[T], Option<&[T]>),
    dcolumns: &[T],
    [dx, doffset, dmask]: [Option<&mut [T]>; 3],
) {
    let (taps, positions, plane) = (plan.taps(), plan.positions(), plan.plane());
    let groups = plan.p.offset_groups as usize;
    let per_group = plan.channels / groups;
    let share = |d: Option<&mut [T]>| d.map(|d| Shared(d.as_mut_ptr()));
    let (dx, doffset, dmask) = (share(dx), share(doffset), share(dmask));
    parallel_for(groups, 1, |range| {
        for (part, at) in range.flat_map(|g| {
            (g * taps..(g + 1) * taps).flat_map(|p| (0..positions).map(move |at| (p, at)))
        }) {
            let (group, tap) = (part / taps, part % taps);
            let sample = plan.sample(offset, group, tap, at);
            let factor = mask.map_or(T::one(), |m| m[part * positions + at]);
            let (mut value, mut slope) = (T::zero(), [T::zero(); 2]);
            for c in group * per_group..(group + 1) * per_group {
                let g = dcolumns[(c * taps + tap) * positions + at];
                for (k, weight, sy, sx) in sample.known() {
                    let v = x[c * plane + k];
                    value += g * v * weight;
                    slope[0] += g * v * sy;
                    slope[1] += g * v * sx;
                    if let Some(d) = dx {
                        // SAFETY: channels belong to the task of their group.
                        unsafe { *d.at(c * plane + k) += g * weight * factor };
                    }
                }
            }
            // SAFETY: as above, for the maps of a group.
            unsafe {
                if let Some(d) = doffset {
                    *d.at(2 * part * positions + at) = slope[0] * factor;
                    *d.at((2 * part + 1) * positions + at) = slope[1] * factor;
                }
                if let Some(d) = dmask {
                    *d.at(part * positions + at) = value;
                }
            }
        }
    });
}
