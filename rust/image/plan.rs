//! The plan of a loader: the source of its images, their augmentation, and the layout of batches.

use super::decode::{Colour, Picture, decode};
use super::normalise::{Choice, Normalise};
use super::params::{AugmentParam, BatchParam, Damaged, DetectParam};
use super::random::Draws;
use super::source::RecordSource;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::image::Extent;
use crate::ndarray::Base;
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_dtype;
use std::sync::Arc;

/// The augmentation of images, and of boxes where there are some.
pub enum Augment {
    Image(AugmentParam),
    Detect(Box<DetectParam>),
}

/// The fixed description of what a loader makes.
pub struct LoadPlan {
    pub(super) source: RecordSource,
    augment: Augment,
    normalise: Normalise,
    colour: Colour,
    extent: Extent,
    pub(super) dtype: DType,
    pub(super) batch_size: usize,
    label_width: usize,
    label_fill: f32,
    pub(super) round_batch: bool,
    pub(super) skips: bool,
    seed: u64,
    pub(super) ahead: usize,
    pub(super) threads: usize,
    pub(super) base: Arc<Base>,
}

impl LoadPlan {
    /// # Errors
    /// A file cannot be read or has no records; parameters that do not fit together.
    pub fn new(
        param: &BatchParam,
        augment: Augment,
        normalise: Normalise,
        dtype: DType,
        base: &Arc<Base>,
    ) -> Result<Self> {
        let refused = |expected: &str| {
            let got = Shape::new(&param.data_shape);
            Err(Error::argument("data_shape", "value", got, expected))
        };
        let &[channels, height, width] = &param.data_shape[..] else {
            return refused("(channels, height, width)");
        };
        let colour = match channels {
            1 => Colour::Grey,
            3 => Colour::Rgb,
            4 => Colour::Rgba,
            _ => return refused("1, 3 or 4 channels"),
        };
        if !(1..=65535).contains(&height) || !(1..=65535).contains(&width) {
            return refused("a height and a width of 1 to 65535");
        }
        let (height, width) = (height as usize, width as usize);
        let source = RecordSource::new(param)?;
        let label_width = match &augment {
            Augment::Image(p) => {
                p.check()?;
                if param.label_width < 1 {
                    let got = param.label_width;
                    return Err(Error::argument("label_width", "value", got, "at least 1"));
                }
                param.label_width as usize
            }
            Augment::Detect(p) => {
                p.check()?;
                detect_width(param, source.longest_label())?
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(LoadPlan {
            source,
            augment,
            normalise,
            colour,
            extent: Extent { height, width, channels: channels as usize },
            dtype,
            batch_size: param.batch_size as usize,
            label_width,
            label_fill: param.label_pad_value,
            round_batch: param.round_batch,
            skips: param.damaged == Damaged::Skip,
            seed: param.seed_aug.unwrap_or(param.seed) as u32 as u64,
            ahead: param.prefetch_buffer.clamp(1, 1 << 16) as usize,
            threads: (param.preprocess_threads as usize).min(cores),
            base: base.clone(),
        })
    }

    /// Records of an epoch.
    pub fn records(&self) -> usize {
        self.source.count()
    }

    pub fn data_shape(&self) -> Shape {
        let Extent { height, width, channels } = self.extent;
        Shape::new(&[self.batch_size, channels, height, width].map(|d| d as i64))
    }

    pub fn label_shape(&self) -> Shape {
        let (n, width) = (self.batch_size as i64, self.label_width as i64);
        if width == 1 { Shape::new(&[n]) } else { Shape::new(&[n, width]) }
    }

    /// Reads, decodes and augments one record.
    pub(super) fn prepare(&self, place: RecordPosition) -> Result<Prepared, Failure> {
        let record = place.record;
        let entry = self.source.read(record).map_err(Failure::Damage)?;
        let labels = self.source.labels(&entry.header).map_err(|e| self.wrong(record, &e))?;
        let picture = decode(&entry.payload[entry.image..], self.colour);
        let picture = picture.map_err(|e| Failure::Damage(self.source.at(record, &e)))?;
        let mut draws = Draws::new(self.seed, place.epoch, place.index as u64);
        let result = self.augmented(picture, &labels, &mut draws);
        let (picture, labels) = result.map_err(|e| self.wrong(record, &e))?;
        let choice = self.normalise.choose(&mut draws);
        Ok(Prepared { picture, labels, choice, id: entry.header.id })
    }

    /// An error that skipping does not help against. It keeps its kind, which is never that of
    /// damage, `Io`.
    fn wrong(&self, record: usize, error: &Error) -> Failure {
        Failure::Wrong(Error::new(error.kind(), self.source.at(record, error).message()))
    }

    fn augmented(
        &self,
        picture: Picture,
        labels: &[f32],
        draws: &mut Draws,
    ) -> Result<(Picture, Vec<f32>)> {
        let Extent { height, width, .. } = self.extent;
        match &self.augment {
            Augment::Image(p) => Ok((p.apply(picture, height, width, draws)?, labels.to_vec())),
            Augment::Detect(p) => p.apply(picture, labels, [height, width], draws),
        }
    }

    /// Writes a picture and its labels to their place in a batch.
    ///
    /// # Safety
    /// The views are of a batch's arrays, and nothing else reads or writes this place meanwhile.
    pub(super) unsafe fn write(
        &self,
        prepared: &Prepared,
        position: usize,
        data: &View,
        label: &View,
    ) {
        let Prepared { picture, labels, choice, .. } = prepared;
        let size = self.extent.size();
        with_dtype!(self.dtype, T => {
            // SAFETY: promised by the caller.
            let out = unsafe {
                std::slice::from_raw_parts_mut(data.as_ptr::<T>().add(position * size), size)
            };
            self.normalise.write(picture, *choice, self.extent, out);
        });
        let width = self.label_width;
        let mut row = Vec::with_capacity(width);
        if matches!(self.augment, Augment::Detect(_)) {
            let Extent { height, width, channels } = picture.extent;
            row.extend([channels, height, width, labels.len()].map(|n| n as f32));
        }
        row.extend_from_slice(labels);
        row.resize(width, self.label_fill);
        // SAFETY: promised by the caller.
        let out = unsafe {
            std::slice::from_raw_parts_mut(label.as_ptr::<f32>().add(position * width), width)
        };
        out.copy_from_slice(&row);
    }
}

/// Numbers of a detection label in a batch: four for the image, and those of the longest label.
fn detect_width(param: &BatchParam, longest: usize) -> Result<usize> {
    match usize::try_from(param.label_pad_width) {
        Ok(width) if width > 0 && width < longest => {
            let expected = format!("at least {longest}, the longest label");
            Err(Error::argument("label_pad_width", "value", width, expected))
        }
        Ok(width) if width > 0 => Ok(4 + width),
        _ => Ok(4 + longest),
    }
}

/// A place in the sequence of records.
#[derive(Clone, Copy)]
pub(super) struct RecordPosition {
    pub epoch: u64,
    /// Position in the epoch's order.
    pub index: usize,
    pub record: usize,
}

/// A picture of the batch's size, or smaller, with the parameters by which it is written.
pub(super) struct Prepared {
    picture: Picture,
    labels: Vec<f32>,
    choice: Choice,
    pub id: u64,
}

/// Why there is no picture.
pub(super) enum Failure {
    /// The record is damaged, and could be skipped.
    Damage(Error),
    /// The parameters do not fit the record.
    Wrong(Error),
}
