//! The augmentations of `ImageDetRecordIter`: images together with the boxes of their objects.
//!
//! Labels are `[header width A, object width B, further header ..., objects of B numbers]`, the
//! first five of an object being class, left, top, right and bottom as parts of the image.

use super::augment::{check_interpolation, interpolation, mean_luma, mix_all, resize_shorter};
use super::colour::{Hls, shift_hls};
use super::decode::Picture;
use super::params::{DetectParam, Emit, Fit};
use super::random::Draws;
use crate::error::{Error, Result};
use crate::kernels::image::border::Margins;

/// Left, top, right and bottom, as parts of the image.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rect {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Rect {
    fn area(&self) -> f64 {
        (self.right - self.left).max(0.0) * (self.bottom - self.top).max(0.0)
    }

    fn overlap(&self, other: &Rect) -> f64 {
        let both = Rect {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.min(other.right),
            bottom: self.bottom.min(other.bottom),
        };
        if both.right > both.left && both.bottom > both.top { both.area() } else { 0.0 }
    }

    /// This rectangle in the coordinates of `frame`.
    fn within(&self, frame: &Rect) -> Rect {
        let (width, height) = (frame.right - frame.left, frame.bottom - frame.top);
        Rect {
            left: (self.left - frame.left) / width,
            top: (self.top - frame.top) / height,
            right: (self.right - frame.left) / width,
            bottom: (self.bottom - frame.top) / height,
        }
    }

    fn clipped(&self) -> Rect {
        let clip = |x: f64| x.clamp(0.0, 1.0);
        Rect {
            left: clip(self.left),
            top: clip(self.top),
            right: clip(self.right),
            bottom: clip(self.bottom),
        }
    }
}

/// The labels of an image.
#[derive(Clone, Debug)]
pub struct Objects {
    header: Vec<f32>,
    objects: Vec<Vec<f32>>,
}

impl Objects {
    pub fn new(labels: &[f32]) -> Result<Self> {
        let bad = |what: &str| {
            let begin = &labels[..labels.len().min(8)];
            Error::value(format!(
                "invalid label {begin:?}: expected [header width, object width, objects ...], \
                 {what}"
            ))
        };
        let &[first, second, ..] = labels else { return Err(bad("at least two numbers")) };
        if !(first >= 2.0 && second >= 5.0 && first as usize <= labels.len()) {
            return Err(bad("a header of at least 2 and objects of at least 5"));
        }
        let (header, width) = (first as usize, second as usize);
        if !(labels.len() - header).is_multiple_of(width) {
            return Err(bad("whole objects"));
        }
        let objects = labels[header..].chunks_exact(width).map(<[f32]>::to_vec).collect();
        Ok(Objects { header: labels[..header].to_vec(), objects })
    }

    /// The labels again.
    pub fn labels(&self) -> Vec<f32> {
        let mut labels = self.header.clone();
        labels.extend(self.objects.iter().flatten());
        labels
    }

    fn rects(&self) -> impl Iterator<Item = Rect> + '_ {
        self.objects.iter().map(|o| Self::rect(o))
    }

    fn rect(object: &[f32]) -> Rect {
        let at = |i: usize| f64::from(object[i]);
        Rect { left: at(1), top: at(2), right: at(3), bottom: at(4) }
    }

    fn set(object: &mut [f32], rect: Rect) {
        let parts = [rect.left, rect.top, rect.right, rect.bottom];
        for (number, part) in object[1..5].iter_mut().zip(parts) {
            *number = part as f32;
        }
    }

    fn map(&mut self, f: impl Fn(Rect) -> Rect) {
        for object in &mut self.objects {
            let new = f(Self::rect(object));
            Self::set(object, new);
        }
    }

    fn mirror(&mut self) {
        self.map(|r| Rect { left: 1.0 - r.right, right: 1.0 - r.left, ..r });
    }
}

impl DetectParam {
    pub fn check(&self) -> Result<()> {
        check_interpolation(self.inter_method)?;
        let lists = [
            ("min_crop_scales", &self.min_crop_scales),
            ("max_crop_scales", &self.max_crop_scales),
            ("min_crop_aspect_ratios", &self.min_crop_aspect_ratios),
            ("max_crop_aspect_ratios", &self.max_crop_aspect_ratios),
            ("min_crop_overlaps", &self.min_crop_overlaps),
            ("max_crop_overlaps", &self.max_crop_overlaps),
            ("min_crop_sample_coverages", &self.min_crop_sample_coverages),
            ("max_crop_sample_coverages", &self.max_crop_sample_coverages),
            ("min_crop_object_coverages", &self.min_crop_object_coverages),
            ("max_crop_object_coverages", &self.max_crop_object_coverages),
        ];
        let count = self.num_crop_sampler as usize;
        for (name, list) in lists {
            if list.len() != 1 && list.len() != count {
                let expected = format!("1, or num_crop_sampler, {count}");
                return Err(Error::argument(name, "number of elements", list.len(), expected));
            }
        }
        let trials = self.max_crop_trials.len();
        if trials != 1 && trials != count {
            let expected = format!("1, or num_crop_sampler, {count}");
            return Err(Error::argument("max_crop_trials", "number of elements", trials, expected));
        }
        Ok(())
    }

    /// The picture, at most as large as the batch's, and its labels.
    pub fn apply(
        &self,
        picture: Picture,
        labels: &[f32],
        [height, width]: [usize; 2],
        draws: &mut Draws,
    ) -> Result<(Picture, Vec<f32>)> {
        let mut objects = Objects::new(labels)?;
        let mut picture = picture;
        if self.resize > 0 {
            picture = resize_shorter(picture, self.resize, self.inter_method, draws)?;
        }
        self.recolour(&mut picture, draws);
        if draws.chance(self.rand_mirror_prob.into()) {
            let row = picture.extent.row().max(1);
            for row in picture.samples.chunks_exact_mut(row) {
                let pixels = row.len() / picture.extent.channels;
                for i in 0..pixels / 2 {
                    for k in 0..picture.extent.channels {
                        let (a, b) = (i, pixels - 1 - i);
                        row.swap(a * picture.extent.channels + k, b * picture.extent.channels + k);
                    }
                }
            }
            objects.mirror();
        }
        if draws.chance(self.rand_pad_prob.into()) && self.max_pad_scale > 1.0 {
            picture = self.pad(&picture, &mut objects, draws)?;
        }
        if draws.chance(self.rand_crop_prob.into()) {
            picture = self.crop(picture, &mut objects, draws);
        }
        let picture = self.fit(picture, height, width, draws)?;
        Ok((picture, objects.labels()))
    }

    fn recolour(&self, picture: &mut Picture, draws: &mut Draws) {
        let range = |limit: f64, p: f32, draws: &mut Draws| {
            if draws.chance(p.into()) { draws.uniform(-limit, limit) } else { 0.0 }
        };
        let hue = range(self.max_random_hue.into(), self.random_hue_prob, draws);
        let saturation =
            range(self.max_random_saturation.into(), self.random_saturation_prob, draws);
        let lightness =
            range(self.max_random_illumination.into(), self.random_illumination_prob, draws);
        let contrast = range(self.max_random_contrast.into(), self.random_contrast_prob, draws);
        if (hue, saturation, lightness) != (0.0, 0.0, 0.0) {
            shift_hls(picture, Hls { hue, lightness, saturation });
        }
        if contrast != 0.0 {
            mix_all(picture, 1.0 + contrast, mean_luma(picture));
        }
    }

    /// The image somewhere on a larger one.
    fn pad(&self, picture: &Picture, objects: &mut Objects, draws: &mut Draws) -> Result<Picture> {
        let scale = draws.uniform(1.0, self.max_pad_scale.into());
        let more = |n: usize| ((scale - 1.0) * n as f64) as usize;
        let (rows, columns) = (more(picture.extent.height), more(picture.extent.width));
        let (top, left) = (draws.below(rows + 1), draws.below(columns + 1));
        let margins = Margins { top, bottom: rows - top, left, right: columns - left };
        let new = picture.padded(margins, self.fill_value as u8)?;
        let part = |n: usize, all: usize| n as f64 / all.max(1) as f64;
        let (height, width) = (new.extent.height, new.extent.width);
        objects.map(|r| Rect {
            left: part(left, width) + r.left * part(picture.extent.width, width),
            right: part(left, width) + r.right * part(picture.extent.width, width),
            top: part(top, height) + r.top * part(picture.extent.height, height),
            bottom: part(top, height) + r.bottom * part(picture.extent.height, height),
        });
        Ok(new)
    }

    /// A part that satisfies one sampler's conditions, or the whole.
    fn crop(&self, picture: Picture, objects: &mut Objects, draws: &mut Draws) -> Picture {
        let sampler = draws.below(self.num_crop_sampler as usize);
        let trials = self.max_crop_trials.get(sampler).or(self.max_crop_trials.first());
        let extent = picture.extent;
        for _ in 0..trials.map_or(0, |t| (*t).max(0)) {
            let Some(rect) = self.propose(sampler, extent.height, extent.width, draws) else {
                continue;
            };
            if !self.accepts(sampler, &rect, objects) {
                continue;
            }
            let Some(kept) = self.emit(&rect, objects) else { continue };
            *objects = kept;
            let pixel = |x: f64, n: usize| ((x * n as f64).round() as usize).min(n);
            let (left, right) = (pixel(rect.left, extent.width), pixel(rect.right, extent.width));
            let (top, bottom) = (pixel(rect.top, extent.height), pixel(rect.bottom, extent.height));
            return picture.cropped(top, left, bottom - top, right - left);
        }
        picture
    }

    /// A rectangle of whole pixels, at random.
    fn propose(&self, i: usize, height: usize, width: usize, draws: &mut Draws) -> Option<Rect> {
        let between = |low: &[f32], high: &[f32], draws: &mut Draws| {
            draws.uniform(number(low, i), number(high, i))
        };
        let scale = between(&self.min_crop_scales, &self.max_crop_scales, draws);
        let ratio = between(&self.min_crop_aspect_ratios, &self.max_crop_aspect_ratios, draws);
        let wide = (scale * ratio.max(0.0).sqrt() * width as f64).round() as usize;
        let tall = (scale / ratio.max(1e-6).sqrt() * height as f64).round() as usize;
        if !(1..=width).contains(&wide) || !(1..=height).contains(&tall) {
            return None;
        }
        let (left, top) = (draws.below(width - wide + 1), draws.below(height - tall + 1));
        let part = |n: usize, all: usize| n as f64 / all as f64;
        Some(Rect {
            left: part(left, width),
            top: part(top, height),
            right: part(left + wide, width),
            bottom: part(top + tall, height),
        })
    }

    /// Returns true if one object satisfies the conditions, or if there are none.
    fn accepts(&self, i: usize, rect: &Rect, objects: &Objects) -> bool {
        let lower = [
            &self.min_crop_overlaps,
            &self.min_crop_sample_coverages,
            &self.min_crop_object_coverages,
        ]
        .map(|list| number(list, i));
        let upper = [
            &self.max_crop_overlaps,
            &self.max_crop_sample_coverages,
            &self.max_crop_object_coverages,
        ]
        .map(|list| number(list, i));
        if lower.iter().all(|l| *l <= 0.0) && upper.iter().all(|u| *u >= 1.0) {
            return true;
        }
        objects.rects().any(|object| {
            let both = rect.overlap(&object);
            let union = rect.area() + object.area() - both;
            let shares = [union, rect.area(), object.area()]
                .map(|whole| if whole > 0.0 { both / whole } else { 0.0 });
            (0..3).all(|k| (lower[k]..=upper[k]).contains(&shares[k]))
        })
    }

    /// The objects that remain in the crop; `None` if none does.
    fn emit(&self, rect: &Rect, objects: &Objects) -> Option<Objects> {
        let keeps = |object: &Rect| match self.crop_emit_mode {
            Emit::Center => {
                let (x, y) =
                    ((object.left + object.right) / 2.0, (object.top + object.bottom) / 2.0);
                (rect.left..=rect.right).contains(&x) && (rect.top..=rect.bottom).contains(&y)
            }
            Emit::Overlap => {
                let share = rect.overlap(object) / object.area().max(1e-12);
                share > f64::from(self.emit_overlap_thresh)
            }
        };
        let mut kept = objects.clone();
        kept.objects.retain(|o| keeps(&Objects::rect(o)));
        kept.map(|object| object.within(rect).clipped());
        (!kept.objects.is_empty()).then_some(kept)
    }

    /// The picture in the batch's size, or inside of it.
    fn fit(
        &self,
        picture: Picture,
        height: usize,
        width: usize,
        draws: &mut Draws,
    ) -> Result<Picture> {
        let extent = picture.extent;
        let (h, w) = (extent.height as f64, extent.width as f64);
        let ratio = (height as f64 / h).min(width as f64 / w);
        let to = match self.resize_mode {
            Fit::Force => (height, width),
            Fit::Shrink if ratio >= 1.0 => (extent.height, extent.width),
            // Rounding errors are less than a thousandth of a pixel.
            Fit::Shrink | Fit::Fit => ((h * ratio + 1e-3) as usize, (w * ratio + 1e-3) as usize),
        };
        let to = (to.0.clamp(1, height), to.1.clamp(1, width));
        if to == (extent.height, extent.width) {
            return Ok(picture);
        }
        picture.resized(to.0, to.1, interpolation(self.inter_method, extent, to, draws))
    }
}

/// Number `i` of a list that has one for all samplers or one for each.
fn number(list: &[f32], i: usize) -> f64 {
    list.get(i).or(list.first()).copied().unwrap_or(0.0).into()
}
