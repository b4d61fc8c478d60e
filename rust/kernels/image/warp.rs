//! Affine maps of 8-bit images, with linear interpolation.

use super::Extent;

/// The map `(x, y) -> (a x + b y + c, d x + e y + f)` of pixel coordinates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine(pub [f64; 6]);

impl Affine {
    /// The inverse map; `None` if the map is singular.
    pub fn inverse(&self) -> Option<Affine> {
        let [a, b, c, d, e, f] = self.0;
        let det = a * e - b * d;
        if det.abs() < 1e-12 || !det.is_finite() {
            return None;
        }
        let [a, b, d, e] = [e / det, -b / det, -d / det, a / det];
        Some(Affine([a, b, -(a * c + b * f), d, e, -(d * c + e * f)]))
    }

    fn apply(&self, x: f64, y: f64) -> (f64, f64) {
        let [a, b, c, d, e, f] = self.0;
        (a * x + b * y + c, d * x + e * y + f)
    }
}

/// Fills `new` of extent `to`, reading each pixel where `back` maps it to; beyond the border it is
/// `fill`. With `nearest` pixels are not interpolated.
pub fn warp(
    from: Extent,
    old: &[u8],
    to: Extent,
    new: &mut [u8],
    back: Affine,
    fill: u8,
    nearest: bool,
) {
    let c = from.channels;
    let sample = |x: i64, y: i64, i: usize| -> f64 {
        let inside = (0..from.width as i64).contains(&x) && (0..from.height as i64).contains(&y);
        if !inside {
            return f64::from(fill);
        }
        f64::from(old[(y as usize * from.width + x as usize) * c + i])
    };
    for (y, row) in new.chunks_exact_mut(to.row().max(1)).enumerate() {
        for (x, pixel) in row.chunks_exact_mut(c).enumerate() {
            let (sx, sy) = back.apply(x as f64, y as f64);
            // Positions in 32nds of a pixel, as OpenCV has them.
            let grid = |v: f64| (v * 32.0).round().clamp(-1e9, 1e9) / 32.0;
            let (sx, sy) = if nearest { (sx.round(), sy.round()) } else { (grid(sx), grid(sy)) };
            let (x0, y0) = (sx.floor(), sy.floor());
            let (fx, fy) = (sx - x0, sy - y0);
            let (x0, y0) = (x0 as i64, y0 as i64);
            for (i, out) in pixel.iter_mut().enumerate() {
                let above = sample(x0, y0, i) * (1.0 - fx) + sample(x0 + 1, y0, i) * fx;
                let below = sample(x0, y0 + 1, i) * (1.0 - fx) + sample(x0 + 1, y0 + 1, i) * fx;
                *out = (above * (1.0 - fy) + below * fy).round() as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_moves_pixels_and_fills() {
        let extent = Extent { height: 2, width: 3, channels: 1 };
        let mut new = [0; 6];
        let forth = Affine([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        let back = forth.inverse().unwrap();
        warp(extent, &[1, 2, 3, 4, 5, 6], extent, &mut new, back, 9, false);
        assert_eq!(new, [9, 1, 2, 9, 4, 5]);
        let half = Affine([1.0, 0.0, 0.5, 0.0, 1.0, 0.0]);
        warp(extent, &[0, 10, 20, 0, 10, 20], extent, &mut new, half, 0, false);
        assert_eq!(new, [5, 15, 10, 5, 15, 10]);
        assert!(Affine([1.0, 1.0, 0.0, 1.0, 1.0, 0.0]).inverse().is_none());
    }
}
