//! Computations on images, which are rows of pixels of interleaved channels (H, W, C).

pub mod border;
pub mod colour;
pub mod resize;
pub mod warp;

/// Extents of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl Extent {
    /// Samples of a row.
    pub fn row(&self) -> usize {
        self.width * self.channels
    }

    /// Samples of the image.
    pub fn size(&self) -> usize {
        self.height * self.row()
    }
}
