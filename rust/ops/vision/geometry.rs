//! Rectangles as the detection operators use them: two corners, areas, overlaps.

use crate::kernels::real::Real;
use crate::param_enum;

param_enum! {
    /// How four numbers describe a rectangle.
    pub enum BoxFormat { Center = "center", Corner = "corner" }
}

/// A rectangle by its corners; with `x2 < x1` or `y2 < y1` it is empty.
#[derive(Clone, Copy, Debug)]
pub struct Rect<T> {
    pub x1: T,
    pub y1: T,
    pub x2: T,
    pub y2: T,
}

impl<T: Real> Rect<T> {
    /// From the first four numbers of `v`: corners, or center and extents.
    pub fn read(v: &[T], format: BoxFormat) -> Self {
        let (a, b, c, d) = (v[0], v[1], v[2], v[3]);
        match format {
            BoxFormat::Corner => Rect { x1: a, y1: b, x2: c, y2: d },
            BoxFormat::Center => Rect::around(a, b, c, d),
        }
    }

    /// Around a center, with these extents.
    pub fn around(x: T, y: T, width: T, height: T) -> Self {
        let half = T::of(0.5);
        let (w, h) = (width * half, height * half);
        Rect { x1: x - w, y1: y - h, x2: x + w, y2: y + h }
    }

    /// Center and extents.
    pub fn centered(self) -> [T; 4] {
        let half = T::of(0.5);
        let (w, h) = (self.x2 - self.x1, self.y2 - self.y1);
        [(self.x1 + self.x2) * half, (self.y1 + self.y2) * half, w, h]
    }

    pub fn corners(self) -> [T; 4] {
        [self.x1, self.y1, self.x2, self.y2]
    }

    pub fn write(self, format: BoxFormat) -> [T; 4] {
        match format {
            BoxFormat::Corner => self.corners(),
            BoxFormat::Center => self.centered(),
        }
    }

    pub fn area(self) -> T {
        (self.x2 - self.x1).max(T::zero()) * (self.y2 - self.y1).max(T::zero())
    }

    fn is_nan(self) -> bool {
        self.x1.is_nan() || self.y1.is_nan() || self.x2.is_nan() || self.y2.is_nan()
    }

    /// Intersection over union; 0 if both are empty, or if a side of either is NaN.
    pub fn iou(self, other: Self) -> T {
        if self.is_nan() || other.is_nan() {
            return T::zero();
        }
        let common = Rect {
            x1: self.x1.max(other.x1),
            y1: self.y1.max(other.y1),
            x2: self.x2.min(other.x2),
            y2: self.y2.min(other.y2),
        };
        let shared = common.area();
        let union = self.area() + other.area() - shared;
        if union > T::zero() { shared / union } else { T::zero() }
    }
}

/// The places of `scores`, greatest first; equal ones keep their order, NaN comes last.
pub fn descending<T: Real>(scores: &[T]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let key = |i: &usize| scores[*i];
    order.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    });
    order
}
