//! From pixels to the bytes of a file: JPEG and PNG.

use super::decode::Picture;
use crate::error::{Error, Result, guarded};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use jpeg_encoder::{ChromaSubsamplingMethod, ColorType, Encoder, SamplingFactor};

/// Encodes a picture of 1 or 3 channels (PNG: also 4).
///
/// # Parameters
/// `format` is `.jpg`, `.jpeg` or `.png`; `quality` is 1 to 100 for JPEG, which halves the
/// resolution of colour, and the effort 0 to 9 for PNG.
pub fn encode(picture: &Picture, format: &str, quality: i64) -> Result<Vec<u8>> {
    guarded(|| match format.to_ascii_lowercase().as_str() {
        ".jpg" | ".jpeg" => encode_jpeg(picture, quality),
        ".png" => encode_png(picture, quality),
        other => Err(Error::argument(
            "img_fmt",
            "value",
            format!("'{other}'"),
            "'.jpg', '.jpeg' or '.png'",
        )),
    })
}

fn failed(what: impl std::fmt::Display) -> Error {
    Error::value(format!("cannot encode the image: {what}"))
}

fn channels_error(picture: &Picture, expected: &str) -> Error {
    Error::argument("img", "number of channels", picture.extent.channels, expected)
}

fn encode_jpeg(picture: &Picture, quality: i64) -> Result<Vec<u8>> {
    let refused = |_| Error::argument("quality", "value", quality, "1 to 100 for JPEG");
    let quality = u8::try_from(quality).ok().filter(|q| (1..=100).contains(q));
    let quality = quality.ok_or(()).map_err(refused)?;
    let colour = match picture.extent.channels {
        1 => ColorType::Luma,
        3 => ColorType::Rgb,
        _ => return Err(channels_error(picture, "1 or 3 for JPEG")),
    };
    let side = |n: usize| {
        u16::try_from(n).map_err(|_| failed(format!("{n} pixels a side, JPEG has at most 65535")))
    };
    let (width, height) = (side(picture.extent.width)?, side(picture.extent.height)?);
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    // The default takes the colour of one pixel of four.
    encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
    encoder.encode(&picture.samples, width, height, colour).map_err(failed)?;
    Ok(out)
}

fn encode_png(picture: &Picture, effort: i64) -> Result<Vec<u8>> {
    let refused = |_| Error::argument("quality", "value", effort, "0 to 9 for PNG");
    let effort = u8::try_from(effort).ok().filter(|e| *e <= 9).ok_or(()).map_err(refused)?;
    let colour = match picture.extent.channels {
        1 => ExtendedColorType::L8,
        3 => ExtendedColorType::Rgb8,
        4 => ExtendedColorType::Rgba8,
        _ => return Err(channels_error(picture, "1, 3 or 4 for PNG")),
    };
    let side = |n: usize| u32::try_from(n).map_err(failed);
    let (width, height) = (side(picture.extent.width)?, side(picture.extent.height)?);
    let mut out = Vec::new();
    PngEncoder::new_with_quality(&mut out, CompressionType::Level(effort), FilterType::Adaptive)
        .write_image(&picture.samples, width, height, colour)
        .map_err(failed)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::decode::{Colour, decode};
    use super::*;
    use crate::kernels::image::Extent;
    use proptest::prelude::*;

    fn picture(height: usize, width: usize, channels: usize) -> Picture {
        let extent = Extent { height, width, channels };
        let samples = (0..extent.size()).map(|i| (i * 5 % 251) as u8).collect();
        Picture { extent, samples }
    }

    #[test]
    fn what_is_encoded_decodes() {
        for (channels, colour) in [(1, Colour::Grey), (3, Colour::Rgb), (4, Colour::Rgba)] {
            let old = picture(9, 7, channels);
            let new = decode(&encode(&old, ".png", 3).unwrap(), colour).unwrap();
            assert_eq!(new, old);
        }
        let flat = Picture::filled(Extent { height: 17, width: 33, channels: 3 }, 100);
        let new = decode(&encode(&flat, ".jpg", 95).unwrap(), Colour::Rgb).unwrap();
        assert_eq!(new.extent, flat.extent);
        assert!(new.samples.iter().all(|s| s.abs_diff(100) <= 2));
        for (format, quality) in [(".jpg", 0), (".jpg", 101), (".png", 10), (".gif", 50)] {
            assert!(encode(&flat, format, quality).is_err());
        }
        assert!(encode(&picture(2, 2, 4), ".jpg", 90).is_err());
    }

    #[test]
    fn files_that_are_cut_short_are_refused() {
        for format in [".jpg", ".png"] {
            let whole = encode(&picture(40, 30, 3), format, 9).unwrap();
            // The last chunk of a PNG, of 12 bytes, holds nothing.
            let needed = whole.len() - if format == ".png" { 12 } else { 0 };
            for length in 0..needed {
                let error = decode(&whole[..length], Colour::Rgb);
                assert!(error.is_err(), "{format} of {} with {length} bytes", whole.len());
            }
        }
    }

    proptest! {
        #[test]
        fn images_from_strangers_do_no_harm(
            changes in proptest::collection::vec((0usize..10_000, any::<u8>()), 1..20),
            grey in any::<bool>(), png in any::<bool>(),
        ) {
            let format = if png { ".png" } else { ".jpg" };
            let mut bytes = encode(&picture(24, 18, 3), format, 9).unwrap();
            for (at, byte) in changes {
                let n = bytes.len();
                bytes[at % n] = byte;
            }
            let colour = if grey { Colour::Grey } else { Colour::Rgb };
            if let Ok(picture) = decode(&bytes, colour) {
                prop_assert_eq!(picture.samples.len(), picture.extent.size());
            }
        }

        #[test]
        fn any_bytes_from_strangers_do_no_harm(
            start in 0usize..6, rest in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let starts: [&[u8]; 6] =
                [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"P6\n", b"RIFF\0\0\0\0WEBP"];
            let bytes = [starts[start], &rest].concat();
            for colour in [Colour::Grey, Colour::Rgb, Colour::Bgr, Colour::Rgba] {
                let _ = decode(&bytes, colour);
            }
        }
    }
}
