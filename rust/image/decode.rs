//! From the bytes of a file to pixels: JPEG by `libjpeg-turbo-rs`, PNG, BMP, PNM, TIFF and WebP by
//! `image`.

use crate::error::{Error, Result, guarded};
use crate::kernels::image::Extent;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use libjpeg_turbo_rs::{ColorSpace, DecodeLimits, Decoder, PixelFormat};
use std::io::Cursor;

/// More pixels than these are a damaged or hostile file.
pub const MAX_PIXELS: usize = 1 << 28;

/// The channels to decode to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Grey,
    Rgb,
    Bgr,
    /// Red, green, blue and opacity, of files that have it.
    Rgba,
}

impl Colour {
    pub fn channels(self) -> usize {
        match self {
            Colour::Grey => 1,
            Colour::Rgb | Colour::Bgr => 3,
            Colour::Rgba => 4,
        }
    }
}

/// An image of 8-bit samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub extent: Extent,
    pub samples: Vec<u8>,
}

impl Picture {
    /// A picture whose samples all have one value.
    pub fn filled(extent: Extent, value: u8) -> Self {
        Picture { extent, samples: vec![value; extent.size()] }
    }
}

fn refused(what: impl std::fmt::Display) -> Error {
    Error::value(format!("invalid image: {what}"))
}

/// Decodes a file. Neither an orientation nor a colour profile that it has is applied.
///
/// # Errors
/// The bytes are not an image of a known format, are cut short, or hold an image of more than
/// [`MAX_PIXELS`].
pub fn decode(bytes: &[u8], colour: Colour) -> Result<Picture> {
    guarded(|| {
        let mut picture = match bytes {
            [] => return Err(refused("0 bytes, expected those of an image file")),
            [0xff, 0xd8, ..] if colour != Colour::Rgba => decode_jpeg(bytes, colour)?,
            _ => decode_other(bytes, colour)?,
        };
        if colour == Colour::Bgr {
            picture.samples.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
        }
        Ok(picture)
    })
}

/// Returns true if an image file has colours, false if lightness only. Damaged files may give
/// either: [`decode`] refuses them.
pub fn has_colour(bytes: &[u8]) -> bool {
    let answer = guarded(|| {
        if bytes.starts_with(&[0xff, 0xd8]) {
            let space = Decoder::new(bytes).map_err(refused)?.jpeg_color_space();
            return Ok(space != ColorSpace::Grayscale);
        }
        let format = image::guess_format(bytes).map_err(refused)?;
        let reader = ImageReader::with_format(Cursor::new(bytes), format);
        Ok(reader.into_decoder().map_err(refused)?.color_type().has_color())
    });
    answer.unwrap_or(true)
}

fn extent_of(width: usize, height: usize, colour: Colour) -> Result<Extent> {
    match width.checked_mul(height) {
        Some(pixels) if (1..=MAX_PIXELS).contains(&pixels) => {
            Ok(Extent { height, width, channels: colour.channels() })
        }
        _ => Err(refused(format!(
            "it has {width} by {height} pixels, expected at least 1 and at most {MAX_PIXELS}"
        ))),
    }
}

fn decode_jpeg(bytes: &[u8], colour: Colour) -> Result<Picture> {
    check_end(bytes)?;
    let limits = DecodeLimits {
        max_width: u16::MAX.into(),
        max_height: u16::MAX.into(),
        max_pixels: MAX_PIXELS as u64,
        ..DecodeLimits::default()
    };
    let mut decoder = Decoder::new_with_limits(bytes, limits).map_err(refused)?;
    let frame = decoder.header();
    let extent = extent_of(frame.width.into(), frame.height.into(), colour)?;
    let rates = frame.components.iter().map(|c| [c.horizontal_sampling, c.vertical_sampling]);
    let rates: Vec<[u8; 2]> = rates.collect();
    let (format, channels) = match decoder.jpeg_color_space() {
        ColorSpace::Cmyk | ColorSpace::Ycck => {
            check_rates(&rates)?;
            (PixelFormat::Cmyk, 4)
        }
        ColorSpace::Grayscale | ColorSpace::YCbCr if colour == Colour::Grey => {
            (PixelFormat::Grayscale, 1)
        }
        _ => (PixelFormat::Rgb, 3),
    };
    decoder.set_output_format(format);
    let mut samples = vec![0; Extent { channels, ..extent }.size()];
    decoder.decode_image_into(&mut samples).map_err(refused)?;
    if channels == 4 {
        samples = from_inks(&samples);
    }
    let picture = Picture { extent: Extent { channels: channels.min(3), ..extent }, samples };
    match colour {
        Colour::Grey if channels > 1 => Ok(to_grey(&picture, luma)),
        _ => Ok(picture),
    }
}

/// An error unless the first and the last component have all samples, and the others, in like
/// manner, all or a part: for others the decoder is not made.
fn check_rates(rates: &[[u8; 2]]) -> Result<()> {
    let [first, second, third, last] = rates else {
        return Err(refused(format!("a JPEG of inks with {} components, expected 4", rates.len())));
    };
    let divides = |part: &[u8; 2]| (0..2).all(|i| part[i] > 0 && first[i] % part[i] == 0);
    match first == last && second == third && divides(second) {
        true => Ok(()),
        false => Err(refused(format!("a JPEG of inks with the sampling factors {rates:?}"))),
    }
}

/// Red, green and blue of cyan, magenta, yellow and black, which files have inverted: 255 is no
/// ink. A product of two samples is divided by 256, as by OpenCV.
fn from_inks(samples: &[u8]) -> Vec<u8> {
    let mut rgb = Vec::with_capacity(samples.len() / 4 * 3);
    for inks in samples.chunks_exact(4) {
        let black = u32::from(inks[3]);
        rgb.extend(
            inks[..3].iter().map(|&ink| (black - (((255 - u32::from(ink)) * black) >> 8)) as u8),
        );
    }
    rgb
}

/// An error if a JPEG ends before its end marker: decoders would make up the rest.
fn check_end(bytes: &[u8]) -> Result<()> {
    let scan = first_scan(bytes).ok_or_else(|| refused("a JPEG without image data"))?;
    // In image data 0xff is followed by 0 or a restart marker, so that this is the end.
    match bytes[scan..].windows(2).rposition(|w| w == [0xff, 0xd9]) {
        Some(_) => Ok(()),
        None => Err(refused(format!("a JPEG that is cut short after {} bytes", bytes.len()))),
    }
}

/// The offset of the first scan of a JPEG.
fn first_scan(bytes: &[u8]) -> Option<usize> {
    let mut at = 2;
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)?) {
            (0xff, 0xff) => at += 1,
            (0xff, 0xda) => return Some(at),
            (0xff, 0x01 | 0xd0..=0xd8) => at += 2,
            (0xff, _) => {
                let length = u16::from_be_bytes([*bytes.get(at + 2)?, *bytes.get(at + 3)?]);
                at += 2 + usize::from(length);
            }
            _ => at += 1,
        }
    }
}

fn decode_other(bytes: &[u8], colour: Colour) -> Result<Picture> {
    let format = image::guess_format(bytes)
        .map_err(|_| refused("expected the bytes of a JPEG, PNG, BMP, PNM, TIFF or WebP file"))?;
    if format == ImageFormat::Jpeg {
        return Err(refused("a JPEG, which has no opacity; expected 4 channels"));
    }
    let reader = || ImageReader::with_format(Cursor::new(bytes), format);
    let (width, height) = reader().into_dimensions().map_err(refused)?;
    let extent = extent_of(width as usize, height as usize, colour)?;
    let mut limits = Limits::default();
    // 16-bit samples of four channels, and what a decoder needs beside.
    limits.max_alloc = Some(MAX_PIXELS as u64 * 12);
    let mut reader = reader();
    reader.limits(limits);
    let decoded = reader.decode().map_err(refused)?;
    let samples = match colour {
        Colour::Rgb | Colour::Bgr => decoded.into_rgb8().into_raw(),
        Colour::Rgba if decoded.color().has_alpha() => decoded.into_rgba8().into_raw(),
        Colour::Rgba => {
            let got = decoded.color().channel_count();
            return Err(refused(format!("it has {got} channels, expected 4")));
        }
        Colour::Grey => {
            let lightness = if format == ImageFormat::Png { luma_of_png } else { luma };
            return Ok(grey_of(decoded, lightness));
        }
    };
    Ok(Picture { extent, samples })
}

fn grey_of(decoded: DynamicImage, lightness: fn([u8; 3]) -> u8) -> Picture {
    let (height, width) = (decoded.height() as usize, decoded.width() as usize);
    if decoded.color().has_color() {
        let extent = Extent { height, width, channels: 3 };
        return to_grey(&Picture { extent, samples: decoded.into_rgb8().into_raw() }, lightness);
    }
    let extent = Extent { height, width, channels: 1 };
    Picture { extent, samples: decoded.into_luma8().into_raw() }
}

/// The lightness of an RGB picture, by that of a pixel.
fn to_grey(picture: &Picture, lightness: fn([u8; 3]) -> u8) -> Picture {
    let samples = picture.samples.chunks_exact(3).map(|p| lightness([p[0], p[1], p[2]])).collect();
    Picture { extent: Extent { channels: 1, ..picture.extent }, samples }
}

/// A pixel's lightness by OpenCV's weights of ITU-R BT.601, in 14 bits.
fn luma(pixel: [u8; 3]) -> u8 {
    let [r, g, b] = pixel.map(u32::from);
    ((4899 * r + 9617 * g + 1868 * b + 8192) >> 14) as u8
}

/// The same as libpng has it, through which OpenCV reads PNG: in 15 bits, cut off; grey stays.
fn luma_of_png(pixel: [u8; 3]) -> u8 {
    let [r, g, b] = pixel.map(u32::from);
    if r == g && g == b { r as u8 } else { ((9798 * r + 19235 * g + 3735 * b) >> 15) as u8 }
}
