//! The augmentations of `ImageRecordIter`, in MXNet's order: shorter edge, rotation and its kin,
//! padding, crop, colour.

use super::colour::{Hls, each_pixel, shift_hls};
use super::decode::{MAX_PIXELS, Picture};
use super::params::AugmentParam;
use super::random::Draws;
use crate::error::{Error, Result};
use crate::kernels::image::Extent;
use crate::kernels::image::border::{Border, Margins, surround};
use crate::kernels::image::colour::{LIGHTING, luma};
use crate::kernels::image::resize::{Interpolation, resize};
use crate::kernels::image::warp::{Affine, warp};

/// An error if an image of this extent is too large to be made.
fn check_size(extent: Extent) -> Result<()> {
    let (height, width) = (extent.height, extent.width);
    if height.checked_mul(width).is_some_and(|pixels| pixels <= MAX_PIXELS) {
        return Ok(());
    }
    let text =
        format!("an image becomes {width} by {height} pixels, expected at most {MAX_PIXELS}");
    Err(Error::value(text))
}

impl Picture {
    /// The picture in another size.
    pub fn resized(&self, height: usize, width: usize, how: Interpolation) -> Result<Picture> {
        let extent = Extent { height: height.max(1), width: width.max(1), ..self.extent };
        check_size(extent)?;
        let mut new = Picture::filled(extent, 0);
        resize(self.extent, &self.samples, extent, &mut new.samples, how);
        Ok(new)
    }

    /// A part of the picture, which holds it.
    pub fn cropped(&self, top: usize, left: usize, height: usize, width: usize) -> Picture {
        let old = self.extent;
        if (height, width) == (old.height, old.width) {
            return self.clone();
        }
        let extent = Extent { height, width, ..old };
        let mut samples = Vec::with_capacity(extent.size());
        for row in self.samples.chunks_exact(old.row()).skip(top).take(height) {
            samples.extend_from_slice(&row[left * old.channels..][..extent.row()]);
        }
        Picture { extent, samples }
    }

    /// The picture with pixels of one value around it.
    pub fn padded(&self, margins: Margins, value: u8) -> Result<Picture> {
        let extent = margins.around(self.extent);
        check_size(extent)?;
        let mut new = Picture::filled(extent, 0);
        let fill = vec![value; self.extent.channels];
        let (old, border) = (&self.samples, Border::Constant);
        surround(self.extent, old, margins, border, &fill, &mut new.samples);
        Ok(new)
    }
}

/// The interpolation of a number of `inter_method`: 9 chooses by the sizes, 10 at random.
pub fn interpolation(
    number: i32,
    from: Extent,
    to: (usize, usize),
    draws: &mut Draws,
) -> Interpolation {
    let (height, width) = to;
    match number {
        9 if height > from.height && width > from.width => Interpolation::Cubic,
        9 if height < from.height && width < from.width => Interpolation::Area,
        10 => Interpolation::ALL[draws.below(Interpolation::ALL.len())],
        _ => Interpolation::from_number(number.into()).unwrap_or(Interpolation::Linear),
    }
}

/// An error unless `inter_method` is known.
pub fn check_interpolation(number: i32) -> Result<()> {
    if matches!(number, 0..=4 | 9 | 10) {
        return Ok(());
    }
    let expected = "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 by size, 10 random";
    Err(Error::argument("inter_method", "value", number, expected))
}

/// The picture with its shorter edge of `size` pixels.
pub fn resize_shorter(
    picture: Picture,
    size: i32,
    inter: i32,
    draws: &mut Draws,
) -> Result<Picture> {
    let (size, Extent { height, width, .. }) = (size as usize, picture.extent);
    let to =
        if height > width { (height * size / width, size) } else { (size, width * size / height) };
    let how = interpolation(inter, picture.extent, to, draws);
    picture.resized(to.0, to.1, how)
}

impl AugmentParam {
    pub fn check(&self) -> Result<()> {
        check_interpolation(self.inter_method)?;
        let positive = [
            ("max_random_scale", self.max_random_scale),
            ("min_random_scale", self.min_random_scale),
            ("max_random_area", self.max_random_area),
            ("min_random_area", self.min_random_area),
            ("max_img_size", self.max_img_size),
        ];
        for (name, value) in positive {
            if !(value > 0.0) {
                return Err(Error::argument(name, "value", value, "a positive number"));
            }
        }
        if self.max_crop_size > 0 && self.min_crop_size > self.max_crop_size {
            let (got, limit) = (self.min_crop_size, self.max_crop_size);
            let expected = format!("at most max_crop_size, {limit}");
            return Err(Error::argument("min_crop_size", "value", got, expected));
        }
        Ok(())
    }

    /// The picture as a part of a batch: of `height` and `width`.
    pub fn apply(
        &self,
        picture: Picture,
        height: usize,
        width: usize,
        draws: &mut Draws,
    ) -> Result<Picture> {
        let mut picture = picture;
        if self.resize > 0 {
            picture = resize_shorter(picture, self.resize, self.inter_method, draws)?;
        }
        if self.turns() {
            picture = self.turned(&picture, draws)?;
        }
        if self.pad > 0 {
            let pad = self.pad as usize;
            let margins = Margins { top: pad, bottom: pad, left: pad, right: pad };
            picture = picture.padded(margins, self.fill_value as u8)?;
        }
        picture = if self.random_resized_crop {
            self.resized_crop(&picture, height, width, draws)?
        } else {
            self.crop(picture, height, width, draws)?
        };
        self.recolour(&mut picture, draws);
        Ok(picture)
    }

    fn turns(&self) -> bool {
        let scales = !self.random_resized_crop
            && (self.max_random_scale != 1.0
                || self.min_random_scale != 1.0
                || self.max_aspect_ratio != 0.0);
        self.max_rotate_angle > 0
            || self.max_shear_ratio > 0.0
            || self.rotate > 0
            || scales
            || self.max_img_size != 1e10
            || self.min_img_size != 0.0
    }

    /// A ratio of width and height.
    fn ratio(&self, draws: &mut Draws) -> f64 {
        let max = f64::from(self.max_aspect_ratio);
        match self.min_aspect_ratio {
            Some(min) => draws.uniform(min.into(), max),
            None => draws.uniform(1.0 - max, 1.0 + max).max(1e-3),
        }
    }

    /// Rotated, sheared and scaled about the middle.
    fn turned(&self, picture: &Picture, draws: &mut Draws) -> Result<Picture> {
        let within = |max: f32| (-f64::from(max), f64::from(max));
        let (low, high) = within(self.max_shear_ratio);
        let shear = draws.uniform(low, high);
        let (low, high) = within(self.max_rotate_angle as f32);
        let angle = if self.rotate > 0 { self.rotate.into() } else { draws.uniform(low, high) };
        let (sin, cos) = angle.to_radians().sin_cos();
        let (scale, ratio) = if self.random_resized_crop {
            (1.0, 1.0)
        } else {
            let range = (self.min_random_scale.into(), self.max_random_scale.into());
            (draws.uniform(range.0, range.1), self.ratio(draws))
        };
        let tall = 2.0 * scale / (1.0 + ratio);
        let wide = ratio * tall;
        let extent = picture.extent;
        // In single precision, as MXNet has it: 0.7 of 120 pixels are 84.
        let limit = |n: usize| {
            let size = (scale as f32 * n as f32).min(self.max_img_size).max(self.min_img_size);
            f64::from(size.max(1.0))
        };
        let (tall_to, wide_to) = (limit(extent.height), limit(extent.width));
        let new = Extent { height: tall_to as usize, width: wide_to as usize, ..extent };
        check_size(new)?;
        let (a, b) = (tall * cos - shear * sin * wide, tall * sin + shear * cos * wide);
        let (d, e) = (-sin * wide, cos * wide);
        let (w, h) = (extent.width as f64, extent.height as f64);
        let c = (wide_to - (a * w + b * h)) / 2.0;
        let f = (tall_to - (d * w + e * h)) / 2.0;
        let back = Affine([a, b, c, d, e, f]).inverse();
        let back = back.ok_or_else(|| {
            Error::value(
                "an image is scaled to nothing: expected min_random_scale and min_aspect_ratio \
                 greater than 0",
            )
        })?;
        let mut out = Picture::filled(new, 0);
        let nearest = self.inter_method == 0;
        let fill = self.fill_value as u8;
        warp(extent, &picture.samples, new, &mut out.samples, back, fill, nearest);
        Ok(out)
    }

    /// A part of random area and ratio, resized; as without if none of ten fits.
    fn resized_crop(
        &self,
        picture: &Picture,
        height: usize,
        width: usize,
        draws: &mut Draws,
    ) -> Result<Picture> {
        let extent = picture.extent;
        let all = (extent.height * extent.width) as f64;
        let (least, most) = (self.min_random_area.into(), self.max_random_area.into());
        for _ in 0..10 {
            let area = draws.uniform(least, most) * all;
            let ratio = self.ratio(draws);
            let w = (area * ratio).sqrt().round() as usize;
            let h = (area / ratio).sqrt().round() as usize;
            if (1..=extent.width).contains(&w) && (1..=extent.height).contains(&h) {
                let left = draws.below(extent.width - w + 1);
                let top = draws.below(extent.height - h + 1);
                return self.part(picture, [top, left, h, w], height, width, draws);
            }
        }
        self.crop(picture.clone(), height, width, draws)
    }

    fn part(
        &self,
        picture: &Picture,
        [top, left, h, w]: [usize; 4],
        height: usize,
        width: usize,
        draws: &mut Draws,
    ) -> Result<Picture> {
        let part = picture.cropped(top, left, h, w);
        let how = interpolation(self.inter_method, part.extent, (height, width), draws);
        if (h, w) == (height, width) { Ok(part) } else { part.resized(height, width, how) }
    }

    fn crop(
        &self,
        picture: Picture,
        height: usize,
        width: usize,
        draws: &mut Draws,
    ) -> Result<Picture> {
        if self.max_crop_size > 0 || self.min_crop_size > 0 {
            let least = self.min_crop_size.max(1) as usize;
            let most = if self.max_crop_size > 0 { self.max_crop_size as usize } else { least };
            let size = least + draws.below(most.max(least) - least + 1);
            let extent = picture.extent;
            if size > extent.height || size > extent.width {
                let got = format!("{} by {}", extent.width, extent.height);
                let text = format!(
                    "an image has {got} pixels, expected at least {size} by {size} for the crop"
                );
                return Err(Error::value(text));
            }
            let (top, left) = self.place(extent.height - size, extent.width - size, draws);
            return self.part(&picture, [top, left, size, size], height, width, draws);
        }
        let mut picture = picture;
        if picture.extent.height < height || picture.extent.width < width {
            // Too small: it grows until it covers the batch's size, its ratio kept.
            let extent = picture.extent;
            let (by_height, by_width) =
                (height as f64 / extent.height as f64, width as f64 / extent.width as f64);
            let (h, w) = if by_height > by_width {
                (height, (by_height * extent.width as f64) as usize)
            } else {
                ((by_width * extent.height as f64) as usize, width)
            };
            let how = interpolation(self.inter_method, extent, (h, w), draws);
            picture = picture.resized(h.max(height), w.max(width), how)?;
        }
        let extent = picture.extent;
        let (top, left) = self.place(extent.height - height, extent.width - width, draws);
        Ok(picture.cropped(top, left, height, width))
    }

    /// The first row and column of a crop, of those that are left over.
    fn place(&self, rows: usize, columns: usize, draws: &mut Draws) -> (usize, usize) {
        if self.rand_crop {
            (draws.below(rows + 1), draws.below(columns + 1))
        } else {
            (rows / 2, columns / 2)
        }
    }

    fn recolour(&self, picture: &mut Picture, draws: &mut Draws) {
        let mut changes = [(0, self.brightness), (1, self.contrast), (2, self.saturation)];
        for i in (1..changes.len()).rev() {
            changes.swap(i, draws.below(i + 1));
        }
        for (kind, range) in changes.into_iter().filter(|c| c.1 > 0.0) {
            let factor = 1.0 + draws.uniform(-f64::from(range), range.into());
            match kind {
                0 => mix_all(picture, factor, 0.0),
                1 => mix_all(picture, factor, mean_luma(picture)),
                _ => saturate(picture, factor),
            }
        }
        let shift = |range: i32, draws: &mut Draws| draws.uniform(-f64::from(range), range.into());
        if self.random_h > 0 || self.random_s > 0 || self.random_l > 0 {
            let hue = shift(self.random_h, draws);
            let lightness = shift(self.random_l, draws);
            let saturation = shift(self.random_s, draws);
            shift_hls(picture, Hls { hue, lightness, saturation });
        }
        if self.pca_noise > 0.0 {
            let alpha = [0, 1, 2].map(|_| draws.normal() * f64::from(self.pca_noise));
            let add = LIGHTING.map(|row| row.iter().zip(alpha).map(|(e, a)| e * a).sum::<f64>());
            each_pixel(picture, |pixel| [0, 1, 2].map(|i| pixel[i] + add[i]));
        }
    }
}

/// `factor * x + (1 - factor) * other` of all samples.
pub fn mix_all(picture: &mut Picture, factor: f64, other: f64) {
    for sample in &mut picture.samples {
        *sample = (factor * f64::from(*sample) + (1.0 - factor) * other).round() as u8;
    }
}

fn saturate(picture: &mut Picture, factor: f64) {
    each_pixel(picture, |pixel| {
        let grey = (1.0 - factor) * luma(pixel);
        pixel.map(|x| factor * x + grey)
    });
}

/// The mean lightness of the pixels.
pub fn mean_luma(picture: &Picture) -> f64 {
    let channels = picture.extent.channels;
    let lightness = |pixel: &[u8]| match pixel {
        [r, g, b, ..] => luma([r, g, b].map(|x| f64::from(*x))),
        _ => f64::from(pixel[0]),
    };
    let sum: f64 = picture.samples.chunks_exact(channels).map(lightness).sum();
    sum / (picture.extent.height * picture.extent.width).max(1) as f64
}
