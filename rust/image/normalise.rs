//! From 8-bit pixels (H, W, C) to an image of a batch (C, H, W).

use super::decode::Picture;
use super::params::NormalizeParam;
use super::random::Draws;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::image::Extent;

/// The mean and scale of the pixels, and whether images are mirrored.
pub struct Normalise {
    param: NormalizeParam,
    mean: [f32; 4],
    std: [f32; 4],
    /// The mean image (C, H, W).
    image: Option<Vec<f32>>,
}

/// The choices for one image.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    mirrored: bool,
    contrast: f32,
    illumination: f32,
}

impl Normalise {
    pub fn new(param: NormalizeParam, image: Option<Vec<f32>>) -> Result<Self> {
        let mean = [param.mean_r, param.mean_g, param.mean_b, param.mean_a];
        let std = [param.std_r, param.std_g, param.std_b, param.std_a];
        for (name, value) in ["std_r", "std_g", "std_b", "std_a"].into_iter().zip(std) {
            if !(value.abs() > 0.0) {
                return Err(Error::argument(name, "value", value, "a number other than 0"));
            }
        }
        Ok(Normalise { param, mean, std, image })
    }

    /// Draws the choices for one image.
    pub fn choose(&self, draws: &mut Draws) -> Choice {
        let p = &self.param;
        let within = |draws: &mut Draws, limit: f32| {
            if limit > 0.0 { draws.uniform(-f64::from(limit), limit.into()) as f32 } else { 0.0 }
        };
        let mirrored = p.mirror || (p.rand_mirror && draws.chance(0.5));
        let contrast = 1.0 + within(draws, p.max_random_contrast);
        Choice { mirrored, contrast, illumination: within(draws, p.max_random_illumination) }
    }

    /// Writes the picture to the upper left of `out`, an image of extent `to` in the order (C, H,
    /// W), as `((x - mean) contrast + illumination) scale / std`; the rest is 0.
    pub fn write<T: Element>(&self, picture: &Picture, choice: Choice, to: Extent, out: &mut [T]) {
        let extent = picture.extent;
        let plane = to.height * to.width;
        if extent != to {
            out.fill(T::from_int(0));
        }
        for (k, out) in out.chunks_exact_mut(plane).enumerate() {
            let factor = self.param.scale / self.std[k.min(3)];
            let (gain, offset) = (choice.contrast * factor, choice.illumination * factor);
            let mean = if self.image.is_some() { 0.0 } else { self.mean[k.min(3)] };
            let number = |x: f32| T::saturating(f64::from((x - mean) * gain + offset));
            let rows = picture.samples.chunks_exact(extent.row());
            for (y, (out, row)) in out.chunks_exact_mut(to.width).zip(rows).enumerate() {
                let out = &mut out[..extent.width];
                let pixels = row.chunks_exact(extent.channels).map(|pixel| f32::from(pixel[k]));
                if let Some(image) = &self.image {
                    let means = &image[k * plane + y * to.width..][..extent.width];
                    for ((out, x), mean) in out.iter_mut().zip(pixels).zip(means) {
                        *out = number(x - mean);
                    }
                } else {
                    out.iter_mut().zip(pixels).for_each(|(out, x)| *out = number(x));
                }
                if choice.mirrored {
                    out.reverse();
                }
            }
        }
    }
}
