//! Pooling of regions: every element of the output is a weighted sum of elements of one channel of
//! one image. What region operators differ in is [`Binned::taps`].

use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::Call;
use crate::ops::tensor::common::{wanted, zero_view};
use crate::tensor::View;

/// Weights of elements of a plane, by place.
pub type Taps<T> = Vec<(usize, T)>;

/// An operator that pools regions.
pub trait Binned<T: Real>: Sync {
    /// Channels whose taps are the same; 0 if those of all channels are.
    fn channels_alike(&self) -> usize {
        0
    }

    /// The channel of data that channel `c` of the output reads in bin `(i, j)`.
    fn channel(&self, c: usize, bin: (usize, usize)) -> usize;

    /// What bin `(i, j)` of a region reads, for channel `c` of the output; pushed to empty taps.
    fn taps(&self, region: &[T], c: usize, bin: (usize, usize), taps: &mut Taps<T>);
}

/// Extents of data (N, C, H, W), regions (R, width) and output (R, channels, h, w).
struct Extents {
    images: usize,
    channels: usize,
    plane: usize,
    regions: usize,
    width: usize,
    out: [usize; 3],
}

impl Extents {
    fn new(data: &View, regions: &View, out: &View) -> Self {
        let at = |v: &View, i: usize| v.dims()[i] as usize;
        Extents {
            images: at(data, 0),
            channels: at(data, 1),
            plane: at(data, 2) * at(data, 3),
            regions: at(regions, 0),
            width: at(regions, 1),
            out: [at(out, 1), at(out, 2), at(out, 3)],
        }
    }

    /// The image that a region names; `None` for a negative number, which marks an absent region.
    fn image<T: Real>(&self, region: &[T]) -> Result<Option<usize>> {
        if region[0] < T::zero() {
            return Ok(None);
        }
        region[0].to_usize().filter(|&n| n < self.images).map(Some).ok_or_else(|| {
            let shown = num_traits::ToPrimitive::to_f64(&region[0]).unwrap_or(f64::NAN);
            let expected = format!("below {}, the number of images", self.images);
            Error::argument("rois", "image number", shown, expected)
        })
    }

    /// Calls `f(channel of the output, bin as one number, first element of data's plane, taps)` for
    /// the channels `range` of region `r`.
    fn walk<T: Real>(
        &self,
        binned: &impl Binned<T>,
        region: &[T],
        image: usize,
        channels: std::ops::Range<usize>,
        mut f: impl FnMut(usize, usize, usize, &Taps<T>),
    ) {
        let [_, h, w] = self.out;
        let alike = match binned.channels_alike() {
            0 => usize::MAX,
            n => n,
        };
        let mut taps = Taps::new();
        for bin in 0..h * w {
            let place = (bin / w, bin % w);
            for c in channels.clone() {
                if c == channels.start || c % alike == 0 {
                    taps.clear();
                    binned.taps(region, c, place, &mut taps);
                }
                let from = (image * self.channels + binned.channel(c, place)) * self.plane;
                f(c, bin, from, &taps);
            }
        }
    }

    fn check<T: Real>(&self, regions: &[T]) -> Result<()> {
        regions.chunks_exact(self.width).try_for_each(|r| self.image(r).map(|_| ()))
    }
}

/// The kernel of a pooling: data and rois to the output.
pub fn pool<T: Real>(call: &Call<'_>, binned: &impl Binned<T>) -> Result<()> {
    if !wanted(call, 0) {
        return Ok(());
    }
    let e = Extents::new(&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    // SAFETY: the output is ours to write and overlaps no input.
    unsafe {
        let (x, rois) = (call.inputs[0].slice::<T>(), call.inputs[1].slice::<T>());
        forward(binned, &e, x, rois, call.outputs[0].slice_mut::<T>())
    }
}

/// The kernel of its gradient: the output's gradient, and `rois`, to the gradients of data and of
/// rois, which is zero.
pub fn pool_grad<T: Real>(call: &Call<'_>, rois: &View, binned: &impl Binned<T>) -> Result<()> {
    if wanted(call, 1) {
        zero_view(&call.outputs[1]);
    }
    if !wanted(call, 0) {
        return Ok(());
    }
    let e = Extents::new(&call.outputs[0], rois, &call.inputs[0]);
    // SAFETY: as in `pool`.
    unsafe {
        let (dy, rois) = (call.inputs[0].slice::<T>(), rois.slice::<T>());
        backward(binned, &e, dy, rois, call.outputs[0].slice_mut::<T>())
    }
}

/// Channels of one region that a task handles.
const STRIP: usize = 32;

/// Pools regions.
fn forward<T: Real>(
    binned: &impl Binned<T>,
    e: &Extents,
    x: &[T],
    regions: &[T],
    y: &mut [T],
) -> Result<()> {
    e.check(regions)?;
    let [channels, h, w] = e.out;
    let strips = channels.div_ceil(STRIP);
    let out = Shared(y.as_mut_ptr());
    parallel_for(e.regions * strips, 1, |range| {
        for part in range {
            let (r, first) = (part / strips, part % strips * STRIP);
            let region = &regions[r * e.width..(r + 1) * e.width];
            let range = first..(first + STRIP).min(channels);
            let (from, to) = (r * channels * h * w, range.clone());
            // SAFETY: channels of a region belong to one task.
            let put = |at: usize, v: T| unsafe { *out.at(from + at) = v };
            let Ok(Some(image)) = e.image(region) else {
                to.flat_map(|c| (0..h * w).map(move |b| c * h * w + b))
                    .for_each(|at| put(at, T::zero()));
                continue;
            };
            e.walk(binned, region, image, range, |c, bin, from, taps| {
                let add = |sum, &(k, weight): &(usize, T)| sum + x[from + k] * weight;
                put(c * h * w + bin, taps.iter().fold(T::zero(), add));
            });
        }
    });
    Ok(())
}

/// The gradient of data. Regions may overlap, so that it is made image by image.
fn backward<T: Real>(
    binned: &impl Binned<T>,
    e: &Extents,
    dy: &[T],
    regions: &[T],
    dx: &mut [T],
) -> Result<()> {
    e.check(regions)?;
    dx.fill(T::zero());
    let [channels, h, w] = e.out;
    let out = Shared(dx.as_mut_ptr());
    parallel_for(e.images, 1, |range| {
        for (r, region) in regions.chunks_exact(e.width).enumerate() {
            let Ok(Some(image)) = e.image(region) else { continue };
            if range.contains(&image) {
                e.walk(binned, region, image, 0..channels, |c, bin, from, taps| {
                    let g = dy[(r * channels + c) * h * w + bin];
                    for &(k, weight) in taps {
                        // SAFETY: an image belongs to one task.
                        unsafe { *out.at(from + k) += g * weight };
                    }
                });
            }
        }
    });
    Ok(())
}

/// Adds the taps of one bilinear sample; `x` and `y` lie inside of the plane of `w` columns.
pub fn bilinear<T: Real>(x: T, y: T, (h, w): (usize, usize), weight: T, taps: &mut Taps<T>) {
    let low = |v: T, n: usize| v.to_usize().unwrap_or(0).min(n - 1);
    let (x0, y0) = (low(x, w), low(y, h));
    let (x1, y1) = ((x0 + 1).min(w - 1), (y0 + 1).min(h - 1));
    let part = |v: T, low: usize| (v - T::of(low as f64)).min(T::one());
    let (px, py) = (part(x, x0), part(y, y0));
    let (qx, qy) = (T::one() - px, T::one() - py);
    taps.extend([
        (y0 * w + x0, qy * qx * weight),
        (y0 * w + x1, qy * px * weight),
        (y1 * w + x0, py * qx * weight),
        (y1 * w + x1, py * px * weight),
    ]);
}
