//! Changes of colours, pixel by pixel; shifts of hue, lightness and saturation, in the units of
//! OpenCV's 8-bit HLS.

use super::decode::Picture;
use crate::kernels::image::colour::{from_hls, to_hls};

/// Changes the pixels of a picture of three or four channels; grey ones have no colour.
pub fn each_pixel(picture: &mut Picture, f: impl Fn([f64; 3]) -> [f64; 3]) {
    let channels = picture.extent.channels;
    if channels < 3 {
        return;
    }
    for pixel in picture.samples.chunks_exact_mut(channels) {
        let new = f([0, 1, 2].map(|i| f64::from(pixel[i])));
        for (sample, new) in pixel.iter_mut().zip(new) {
            *sample = new.round() as u8;
        }
    }
}

/// The amounts added to hue (180 are a full circle), lightness and saturation (0 to 255).
#[derive(Clone, Copy, Debug)]
pub struct Hls {
    pub hue: f64,
    pub lightness: f64,
    pub saturation: f64,
}

/// Adds to all pixels.
pub fn shift_hls(picture: &mut Picture, by: Hls) {
    each_pixel(picture, |pixel| {
        let [h, l, s] = to_hls(pixel.map(|x| x / 255.0));
        let l = (l + by.lightness / 255.0).clamp(0.0, 1.0);
        let s = (s + by.saturation / 255.0).clamp(0.0, 1.0);
        from_hls([h + 2.0 * by.hue, l, s]).map(|x| x * 255.0)
    });
}
