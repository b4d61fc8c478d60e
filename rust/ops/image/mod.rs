//! Operators on images (H, W, C), or batches of them (N, H, W, C).

mod border;
mod colour;
mod conversion;
mod placement;
mod resize;

use super::higher_order::complete;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::image::Extent;
use crate::operator::{OpDef, Registry};
use crate::shape::Shape;

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] = &[
        placement::operators,
        resize::operators,
        border::operators,
        conversion::operators,
        colour::operators,
    ];
    for def in families.iter().flat_map(|family| family()) {
        registry.add(complete(def)).expect("built-in operators have names of their own");
    }
}

/// An error unless the shape is that of an image, or of a batch of images.
fn expect_images(shape: &Shape) -> Result<()> {
    if !shape.rank_known() || matches!(shape.ndim(), 3 | 4) {
        return Ok(());
    }
    Err(Error::argument(
        "data",
        "shape",
        shape,
        "(height, width, channels) or (N, height, width, channels)",
    ))
}

/// An error unless the shape is that of one image.
fn expect_image(shape: &Shape) -> Result<()> {
    if !shape.rank_known() || shape.ndim() == 3 {
        return Ok(());
    }
    Err(Error::argument("data", "shape", shape, "(height, width, channels)"))
}

/// How many images a known shape holds, and their extent.
fn images_of(shape: &Shape) -> (usize, Extent) {
    let d = shape.dims();
    let [height, width, channels] = [3, 2, 1].map(|back| d[d.len() - back] as usize);
    (shape.product(0..d.len() - 3), Extent { height, width, channels })
}

/// A result as an element. Parameters have single precision, in which 50 * 1.3 is 65 and not a
/// little less, so that what is cut to a whole number is rounded to it before.
fn cut<T: Element>(value: f64) -> T {
    T::saturating(if is_single::<T>(value) { f64::from(value as f32) } else { value })
}

/// Is a number of an array of `T` calculated in single precision? Those that have more digits keep
/// them.
fn is_single<T: Element>(value: f64) -> bool {
    T::DTYPE != DType::F64 && value.abs() < f64::from(1 << f32::MANTISSA_DIGITS)
}
