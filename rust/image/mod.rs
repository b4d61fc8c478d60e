//! Images from files: decoding, encoding, record files, augmentation, and batches of them.

pub mod augment;
pub mod colour;
pub mod decode;
pub mod detect;
pub mod encode;
pub mod loader;
pub mod normalise;
pub mod params;
pub mod plan;
pub mod random;
pub mod records;
pub mod source;
#[cfg(test)]
mod testing;
