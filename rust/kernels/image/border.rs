//! Borders: padding images with pixels.

use super::Extent;
use crate::error::{Error, Result};

/// What a border consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Border {
    Constant,
    /// `aaa|abcd|ddd`
    Replicate,
    /// `cba|abcd|dcb`
    Reflect,
    /// `bcd|abcd|abc`
    Wrap,
    /// `dcb|abcd|cba`
    Reflect101,
}

impl Border {
    const ALL: [Self; 5] =
        [Self::Constant, Self::Replicate, Self::Reflect, Self::Wrap, Self::Reflect101];

    /// The border of OpenCV's number.
    pub fn from_number(number: i64) -> Result<Self> {
        let known = usize::try_from(number).ok().and_then(|i| Self::ALL.get(i));
        known.copied().ok_or_else(|| {
            let expected =
                "0 (constant), 1 (replicate), 2 (reflect), 3 (wrap) or 4 (reflect without edge)";
            Error::argument("type", "value", number, expected)
        })
    }

    /// The sample of an axis of `n` that stands at `at`; `None` is the constant.
    pub fn sample(self, at: i64, n: i64) -> Option<usize> {
        if (0..n).contains(&at) {
            return Some(at as usize);
        }
        let inside = match self {
            Border::Constant => return None,
            Border::Replicate => at.clamp(0, n - 1),
            Border::Wrap => at.rem_euclid(n),
            Border::Reflect => {
                let at = at.rem_euclid(2 * n);
                if at < n { at } else { 2 * n - 1 - at }
            }
            Border::Reflect101 if n == 1 => 0,
            Border::Reflect101 => {
                let at = at.rem_euclid(2 * n - 2);
                if at < n { at } else { 2 * n - 2 - at }
            }
        };
        Some(inside as usize)
    }
}

/// Pixels before and after the rows and columns of an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Margins {
    pub top: usize,
    pub bottom: usize,
    pub left: usize,
    pub right: usize,
}

impl Margins {
    /// The extent of an image with these margins.
    pub fn around(&self, inner: Extent) -> Extent {
        Extent {
            height: inner.height + self.top + self.bottom,
            width: inner.width + self.left + self.right,
            channels: inner.channels,
        }
    }
}

/// Fills `new` with the image `old` and its border; `fill` is the pixel of a constant border.
pub fn surround<T: Copy>(
    inner: Extent,
    old: &[T],
    margins: Margins,
    border: Border,
    fill: &[T],
    new: &mut [T],
) {
    let outer = margins.around(inner);
    let c = inner.channels;
    let along = |n: usize, before: usize, all: usize| -> Vec<Option<usize>> {
        (0..all).map(|i| border.sample(i as i64 - before as i64, n as i64)).collect()
    };
    let columns = along(inner.width, margins.left, outer.width);
    let rows = along(inner.height, margins.top, outer.height);
    for (out, row) in new.chunks_exact_mut(outer.row().max(1)).zip(rows) {
        let row = row.map(|r| &old[r * inner.row()..][..inner.row()]);
        for (pixel, column) in out.chunks_exact_mut(c).zip(&columns) {
            let from = row.zip(*column).map_or(fill, |(row, x)| &row[x * c..][..c]);
            pixel.copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_continue_a_row() {
        let shown = |border: Border| -> String {
            let inner = Extent { height: 1, width: 4, channels: 1 };
            let margins = Margins { left: 5, right: 5, ..Margins::default() };
            let mut new = [b' '; 14];
            surround(inner, b"abcd", margins, border, b"-", &mut new);
            String::from_utf8_lossy(&new).into_owned()
        };
        assert_eq!(shown(Border::Constant), "-----abcd-----");
        assert_eq!(shown(Border::Replicate), "aaaaaabcdddddd");
        assert_eq!(shown(Border::Reflect), "ddcbaabcddcbaa");
        assert_eq!(shown(Border::Wrap), "dabcdabcdabcda");
        assert_eq!(shown(Border::Reflect101), "bcdcbabcdcbabc");
        assert_eq!(Border::Reflect101.sample(-3, 1), Some(0));
        assert!(Border::from_number(5).is_err() && Border::from_number(-1).is_err());
    }
}
