//! Shapes, complete or with unknown parts.
//!
//! Inside the core an unknown rank is [`Shape::unknown`] and an unknown extent is `-1`; an extent
//! of 0 is a real, empty axis and rank 0 a scalar. The convention of old programs, in which `()`
//! and 0 mean "unknown", is converted at the face by [`Shape::from_legacy`] and
//! [`Shape::to_legacy`]; which of the two a thread is in, [`is_np_shape`] says.

use crate::error::{Error, Result, shown};
use smallvec::SmallVec;
use std::cell::Cell;
use std::fmt;

thread_local! {
    static NP_SHAPE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if 0 means an empty axis and `()` a scalar in this thread.
pub fn is_np_shape() -> bool {
    NP_SHAPE.get()
}

/// Switches the convention in this thread; returns the former setting.
pub fn set_np_shape(active: bool) -> bool {
    NP_SHAPE.replace(active)
}

/// Extents, held inline for up to five axes.
pub type Dims = SmallVec<[i64; 5]>;

/// As wide as an extent, so that a shape has no holes; see [`DType`](crate::dtype::DType).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
enum Rank {
    Unknown,
    Known,
}

/// Extents of an array, some or all of which may be unknown.
#[derive(PartialEq, Eq, Hash)]
pub struct Shape {
    dims: Dims,
    rank: Rank,
}

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Self {
        if self.dims.spilled() {
            return Shape { dims: Dims::from_slice(&self.dims), rank: self.rank };
        }
        // SAFETY: plain numbers held inline: a copy of the bytes shares nothing with the original.
        unsafe { std::ptr::read(self) }
    }
}

impl Shape {
    /// A shape of which nothing is known, not even its rank.
    pub fn unknown() -> Self {
        Shape { dims: Dims::new(), rank: Rank::Unknown }
    }

    /// `ndim` axes of unknown extent.
    pub fn of_rank(ndim: usize) -> Self {
        Shape { dims: SmallVec::from_elem(-1, ndim), rank: Rank::Known }
    }

    pub fn new(dims: &[i64]) -> Self {
        Shape { dims: SmallVec::from_slice(dims), rank: Rank::Known }
    }

    /// One axis.
    #[inline]
    pub fn flat(size: usize) -> Self {
        Shape { dims: Dims::from_buf_and_len([size as i64; 5], 1), rank: Rank::Known }
    }

    pub fn scalar() -> Self {
        Shape { dims: Dims::new(), rank: Rank::Known }
    }

    /// From a shape in which `()` means unknown and 0 an unknown extent.
    pub fn from_legacy(dims: &[i64]) -> Self {
        if dims.is_empty() {
            return Shape::unknown();
        }
        dims.iter().map(|&d| if d == 0 { -1 } else { d }).collect()
    }

    /// From the value of a parameter, in the convention of the thread.
    pub fn from_parameter(dims: &[i64]) -> Self {
        if is_np_shape() { Shape::new(dims) } else { Shape::from_legacy(dims) }
    }

    /// The extents with 0 for unknown ones, empty when the rank is unknown.
    pub fn to_legacy(&self) -> Dims {
        self.dims.iter().map(|&d| d.max(0)).collect()
    }

    pub fn rank_known(&self) -> bool {
        self.rank == Rank::Known
    }

    /// Returns true if rank and all extents are known.
    pub fn is_known(&self) -> bool {
        self.rank_known() && self.dims.iter().all(|&d| d >= 0)
    }

    /// Number of axes; 0 when the rank is unknown (ask [`Shape::rank_known`]).
    pub fn ndim(&self) -> usize {
        self.dims.len()
    }

    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    pub fn dims_mut(&mut self) -> &mut Dims {
        &mut self.dims
    }

    /// Number of elements. Unknown extents count as 0; overflow saturates.
    pub fn size(&self) -> usize {
        self.dims.iter().fold(1usize, |n, &d| n.saturating_mul(d.max(0) as usize))
    }

    /// No array has 2 to this many elements.
    pub const LOG_LIMIT: u32 = 60;

    /// Returns true if no array has the known extents. Those of an empty shape count, too: sizes of
    /// its parts must not overflow.
    pub fn is_too_large(&self) -> bool {
        let times = |n: usize, d: &i64| n.checked_mul((*d).max(1) as usize);
        self.dims.iter().try_fold(1, times).is_none_or(|n| n >> Self::LOG_LIMIT != 0)
    }

    /// Number of elements as a checked figure: an error when the product does not fit.
    pub fn checked_size(&self) -> Result<usize> {
        if self.dims.iter().any(|&d| d < 0) {
            return Err(Error::invalid("shape", self, "known extents"));
        }
        match self.is_too_large() {
            false => Ok(self.size()),
            true => Err(Error::value(format!(
                "shape {} has too many elements: expected less than 2^{}",
                shown(self),
                Self::LOG_LIMIT
            ))),
        }
    }

    /// Product of the extents of `axes`.
    pub fn product(&self, axes: std::ops::Range<usize>) -> usize {
        self.dims[axes].iter().map(|&d| d.max(0) as usize).product()
    }

    /// `axis` counted from the front, negative ones from the end; an error when it is out of range.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        let n = self.ndim() as i64;
        let at = if axis < 0 { axis + n } else { axis };
        if (0..n).contains(&at) {
            Ok(at as usize)
        } else {
            Err(Error::value(format!(
                "axis {axis} is out of range for shape {self}: expected {} to {}",
                -n,
                n - 1
            )))
        }
    }

    /// Fills in unknown parts from `other`. `Err` if both are known and differ, with nothing
    /// changed; `Ok(true)` if anything was filled in.
    pub fn merge(&mut self, other: &Shape) -> Result<bool> {
        if !other.rank_known() {
            return Ok(false);
        }
        if !self.rank_known() {
            *self = other.clone();
            return Ok(true);
        }
        let agree = self.ndim() == other.ndim()
            && self.dims.iter().zip(&other.dims).all(|(&a, &b)| a == b || a < 0 || b < 0);
        if !agree {
            return Err(Error::invalid("shape", other, self));
        }
        let mut learnt = false;
        for (a, &b) in self.dims.iter_mut().zip(&other.dims) {
            if *a < 0 && b >= 0 {
                *a = b;
                learnt = true;
            }
        }
        Ok(learnt)
    }

    /// Row-major strides in elements.
    #[inline]
    pub fn strides(&self) -> Dims {
        let mut strides = Dims::from_slice(&self.dims);
        let mut step = 1i64;
        for s in strides.iter_mut().rev() {
            let extent = std::mem::replace(s, step);
            step = step.saturating_mul(extent.max(1));
        }
        strides
    }
}

impl FromIterator<i64> for Shape {
    fn from_iter<I: IntoIterator<Item = i64>>(dims: I) -> Self {
        Shape { dims: dims.into_iter().collect(), rank: Rank::Known }
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        dims.into_iter().map(|d| d as i64).collect()
    }
}

impl From<&[i64]> for Shape {
    fn from(dims: &[i64]) -> Self {
        Shape::new(dims)
    }
}

impl<const N: usize> From<[i64; N]> for Shape {
    fn from(dims: [i64; N]) -> Self {
        Shape::new(&dims)
    }
}

/// The numbers of a list that messages show, at most.
const MOST_SHOWN: usize = 16;

/// Writes numbers as a tuple of Python, of a long one the beginning.
fn write_tuple(
    f: &mut fmt::Formatter<'_>,
    numbers: &[i64],
    write: impl Fn(&mut fmt::Formatter<'_>, i64) -> fmt::Result,
) -> fmt::Result {
    f.write_str("(")?;
    for (i, &number) in numbers.iter().take(MOST_SHOWN).enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write(f, number)?;
    }
    f.write_str(match numbers.len() {
        1 => ",)",
        ..=MOST_SHOWN => ")",
        _ => ", ...)",
    })
}

/// `(2, 3)`, `(2,)`, `()`; unknown extents print as `?`, an unknown rank as `unknown`. It is for
/// messages: of a long shape it is the beginning.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rank_known() {
            return f.write_str("unknown");
        }
        write_tuple(f, &self.dims, |f, d| if d < 0 { f.write_str("?") } else { write!(f, "{d}") })
    }
}

/// A list of numbers given as a parameter, negative ones as they are: `(1, -2)`, `(3,)`. It is for
/// messages, as a shape's text.
pub struct Numbers<'a>(pub &'a [i64]);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tuple(f, self.0, |f, number| write!(f, "{number}"))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_fills_unknown_parts_and_refuses_contradictions() {
        let mut a = Shape::new(&[2, -1]);
        assert!(a.merge(&Shape::new(&[-1, 3])).unwrap());
        assert_eq!(a, Shape::new(&[2, 3]));
        assert!(!a.merge(&Shape::unknown()).unwrap());
        assert!(a.merge(&Shape::new(&[2, 4])).is_err());
        assert!(a.merge(&Shape::new(&[2, 3, 1])).is_err());
        assert_eq!(a, Shape::new(&[2, 3]));
    }

    #[test]
    fn messages_show_the_beginning_of_a_long_list() {
        let text = |n: i64| Shape::new(&(0..n).collect::<Vec<_>>()).to_string();
        assert_eq!(text(2), "(0, 1)");
        assert!(text(16).ends_with("14, 15)"));
        assert!(text(17).ends_with("14, 15, ...)"));
        assert_eq!(text(100_000), text(17));
        assert_eq!(Shape::new(&[-1]).to_string(), "(?,)");
        assert_eq!(Numbers(&[-1]).to_string(), "(-1,)");
        assert_eq!(Numbers(&[0; 17]).to_string(), Numbers(&[0; 1000]).to_string());
    }

    #[test]
    fn legacy_shapes_round_trip() {
        assert_eq!(Shape::from_legacy(&[]), Shape::unknown());
        assert_eq!(Shape::from_legacy(&[2, 0]).dims(), &[2, -1]);
        assert_eq!(Shape::from_legacy(&[2, 0]).to_legacy().as_slice(), &[2, 0]);
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(Shape::new(&[0, 1 << 40, 4]).checked_size().unwrap(), 0);
        assert!(Shape::new(&[0, i64::MAX, 4]).checked_size().is_err());
        assert!(Shape::new(&[i64::MAX, 4]).checked_size().is_err());
        assert!(Shape::new(&[-1]).checked_size().is_err());
        assert_eq!(Shape::new(&[2, 3, 4]).strides().as_slice(), &[12, 4, 1]);
    }
}
