//! Images from files: decoding, encoding, record files, augmentation, and batches of them.

pub mod decode;
pub mod encode;
