//! Brightness, contrast, saturation and hue of RGB pixels.

/// Weights of red, green and blue in perceived lightness (ITU-R BT.601).
pub const LUMA: [f64; 3] = [0.299, 0.587, 0.114];

/// Principal directions of the colours of ImageNet's pixels, times their standard deviations; red,
/// green and blue (A. Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural
/// Networks, 2012).
pub const LIGHTING: [[f64; 3]; 3] = [
    [55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009],
    [55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140],
    [55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203],
];

/// The lightness of a pixel.
#[inline(always)]
pub fn luma([r, g, b]: [f64; 3]) -> f64 {
    LUMA[0] * r + LUMA[1] * g + LUMA[2] * b
}

/// The pixel with its hue turned by `turns` of the circle, its lightness and saturation (of the
/// colour model HLS) kept.
#[inline]
pub fn turn_hue([r, g, b]: [f64; 3], turns: f64) -> [f64; 3] {
    let (low, high) = (r.min(g).min(b), r.max(g).max(b));
    let span = high - low;
    if !(span > 0.0) {
        return [r, g, b];
    }
    let hue = hue_of([r, g, b], high, span);
    from_hue((hue + 6.0 * turns).rem_euclid(6.0), low, span)
}

/// The hue of a pixel in sixths of the circle from red, -1 to 5. `high` is its largest component,
/// `span` the distance to its smallest, which is not 0.
#[inline(always)]
fn hue_of([r, g, b]: [f64; 3], high: f64, span: f64) -> f64 {
    if high == r {
        (g - b) / span
    } else if high == g {
        2.0 + (b - r) / span
    } else {
        4.0 + (r - g) / span
    }
}

/// The pixel of a hue, in sixths of the circle, whose smallest component is `low` and largest `low
/// + span`.
fn from_hue(hue: f64, low: f64, span: f64) -> [f64; 3] {
    let part = |offset: f64| {
        // 1 within a sixth of the circle, down to 0 within the next one.
        let distance = ((hue - offset + 3.0).rem_euclid(6.0) - 3.0).abs();
        low + span * (2.0 - distance).clamp(0.0, 1.0)
    };
    [part(0.0), part(2.0), part(4.0)]
}

/// Hue (0 to 360), lightness and saturation (0 to 1) of a pixel with components from 0 to 1.
pub fn to_hls([r, g, b]: [f64; 3]) -> [f64; 3] {
    let (low, high) = (r.min(g).min(b), r.max(g).max(b));
    let (span, l) = (high - low, (high + low) / 2.0);
    if !(span > 0.0) {
        return [0.0, l, 0.0];
    }
    let s = if l < 0.5 { span / (high + low) } else { span / (2.0 - high - low) };
    [60.0 * hue_of([r, g, b], high, span).rem_euclid(6.0), l, s]
}

/// The inverse of [`to_hls`].
pub fn from_hls([h, l, s]: [f64; 3]) -> [f64; 3] {
    let span = s * (1.0 - (2.0 * l - 1.0).abs());
    from_hue((h / 60.0).rem_euclid(6.0), l - span / 2.0, span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_whole_turn_changes_nothing(r in 0f64..255.0, g in 0f64..255.0, b in 0f64..255.0) {
            for turns in [0.0, 1.0, -2.0] {
                let back = turn_hue([r, g, b], turns);
                prop_assert!((0..3).all(|i| (back[i] - [r, g, b][i]).abs() < 1e-9));
            }
            let hls = to_hls([r, g, b].map(|x| x / 255.0));
            let back = from_hls(hls).map(|x| x * 255.0);
            prop_assert!((0..3).all(|i| (back[i] - [r, g, b][i]).abs() < 1e-9));
        }
    }

    #[test]
    fn a_third_of_a_turn_moves_the_parts_on() {
        let near = |a: [f64; 3], b: [f64; 3]| (0..3).all(|i| (a[i] - b[i]).abs() < 1e-9);
        assert!(near(turn_hue([10.0, 20.0, 50.0], 1.0 / 3.0), [50.0, 10.0, 20.0]));
        // Read off MXNet 1.9.1: `nd.image.random_hue` with 0.3.
        assert!(near(turn_hue([0.0, 1.0, 2.0], 0.3), [2.0, 0.0, 1.4]));
    }
}
