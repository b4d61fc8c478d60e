//! `Reshape`: the same elements in another shape, given by codes.

use super::same_bytes;
use crate::error::{Error, Result};
use crate::operator::{Attrs, OpDef, Tuple};
use crate::params;
use crate::shape::{Numbers, Shape};

params! {
    /// Parameters of `Reshape`.
    pub struct ReshapeParam {
        shape: Tuple, default(Tuple::new()), "The new shape; 0, -1, -2, -3 and -4 are codes, see \
                                              above.";
        reverse: bool, default(false), "Read the codes from the right.";
        target_shape: Tuple, default(Tuple::new()), "Old name of `shape`, in which 0 is inferred.";
        keep_highest: bool, default(false), "With `target_shape`: keep the first axis.";
    }
}

/// Codes read from the right: reversed, but a split keeps its code before its two numbers.
fn reversed(codes: &[i64]) -> Vec<i64> {
    let mut codes: Vec<i64> = codes.iter().rev().copied().collect();
    let mut i = 0;
    while i < codes.len() {
        if i + 2 < codes.len() && codes[i + 2] == -4 {
            codes[i..i + 3].rotate_right(1);
            i += 2;
        }
        i += 1;
    }
    codes
}

/// Codes being applied to the axes of an array, from left to right.
struct Reader<'a> {
    from: &'a Shape,
    codes: &'a [i64],
    dims: &'a [i64],
    /// The next axis of the input.
    at: usize,
    out: Vec<i64>,
    /// The output axis whose extent is inferred.
    unknown: Option<usize>,
}

impl Reader<'_> {
    fn refused(&self, why: impl std::fmt::Display) -> Error {
        let (from, codes) = (self.from, Numbers(self.codes));
        Error::value(format!("cannot reshape array of shape {from} into {codes}: {why}"))
    }

    fn axes_left(&self) -> usize {
        self.dims.len().saturating_sub(self.at)
    }

    /// Applies every code.
    fn read(&mut self) -> Result<()> {
        let mut i = 0;
        while i < self.codes.len() {
            i += match self.codes[i] {
                -4 => {
                    self.split(i)?;
                    3
                }
                code => {
                    self.apply(code)?;
                    1
                }
            };
        }
        Ok(())
    }

    /// Applies a code that stands alone.
    fn apply(&mut self, code: i64) -> Result<()> {
        let left = self.axes_left();
        match code {
            0 if left == 0 => return Err(self.refused("code 0 has no axis left to copy")),
            0 => self.out.push(self.dims[self.at]),
            -1 => {
                if self.unknown.replace(self.out.len()).is_some() {
                    return Err(Error::value("invalid shape: expected one extent of -1 at most"));
                }
                self.out.push(-1);
            }
            -2 => {
                self.out.extend(&self.dims[self.at.min(self.dims.len())..]);
                self.at = self.dims.len();
                return Ok(());
            }
            -3 if left < 2 => return Err(self.refused("code -3 needs two axes")),
            -3 => {
                let (a, b) = (self.dims[self.at], self.dims[self.at + 1]);
                self.out.push(if a >= 0 && b >= 0 { a.saturating_mul(b) } else { -1 });
                self.at += 1;
            }
            n if n > 0 => self.out.push(n),
            code => {
                return Err(self.refused(format!(
                    "{code} is no code, expected one of -4 to -1, or an extent"
                )));
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Splits the next axis into the two numbers after code `i`, one of which may be -1.
    fn split(&mut self, i: usize) -> Result<()> {
        let (Some(&a), Some(&b)) = (self.codes.get(i + 1), self.codes.get(i + 2)) else {
            return Err(self.refused("code -4 needs two numbers after it"));
        };
        if self.axes_left() == 0 {
            return Err(self.refused("code -4 has no axis left to split"));
        }
        let d = self.dims[self.at];
        let (a, b) = match (a, b) {
            (-1, b) if b > 0 && d >= 0 => (d / b, b),
            (a, -1) if a > 0 && d >= 0 => (a, d / a),
            pair => pair,
        };
        if d >= 0 && (a < 0 || a.saturating_mul(b) != d) {
            return Err(self.refused(format!(
                "an axis of {d} cannot be split into {a} and {b}, expected its factors"
            )));
        }
        self.out.extend([a, b]);
        self.at += 1;
        Ok(())
    }
}

/// Number of elements over the known extents; an error when the product does not fit.
fn known_size(dims: &[i64]) -> Result<i64> {
    let known: Vec<i64> = dims.iter().copied().filter(|d| *d >= 0).collect();
    Ok(Shape::new(&known).checked_size()? as i64)
}

/// The shape that the codes of `Reshape` make of `from`, as far as its extents are known.
pub fn reshape(from: &Shape, codes: &[i64], reverse: bool) -> Result<Shape> {
    let mut dims: Vec<i64> = from.dims().to_vec();
    let mut codes: Vec<i64> = codes.to_vec();
    if reverse {
        dims.reverse();
        codes = reversed(&codes);
    }
    let (codes, dims) = (&codes[..], &dims[..]);
    let mut reader = Reader { from, codes, dims, at: 0, out: Vec::new(), unknown: None };
    reader.read()?;
    let (mut out, unknown) = (reader.out, reader.unknown);
    let size = from.size() as i64;
    if let Some(at) = unknown
        && from.is_known()
    {
        let rest = known_size(&out)?;
        out[at] = if rest > 0 { size / rest } else { 0 };
    }
    if reverse {
        out.reverse();
    }
    let shape = Shape::new(&out);
    if !from.is_known() {
        return Ok(shape);
    }
    if shape.checked_size()? as i64 != size {
        return Err(Error::value(format!(
            "Cannot reshape array of size {size} into shape {shape}: expected as many elements"
        )));
    }
    Ok(shape)
}

fn reshape_shape(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let p = attrs.get::<ReshapeParam>();
    if !p.shape.is_empty() || p.target_shape.is_empty() {
        if p.shape.is_empty() && from.size() != 1 {
            return Err(Error::parameter("missing parameter 'shape': expected Shape(tuple)"));
        }
        return reshape(from, &p.shape, p.reverse);
    }
    let mut codes: Vec<i64> = p.target_shape.iter().map(|&d| if d == 0 { -1 } else { d }).collect();
    if p.keep_highest && !codes.is_empty() {
        codes[0] = if from.ndim() > 0 { 0 } else { 1 };
    }
    reshape(from, &codes, false)
}

/// Where a plain target shape and the output say more than the input: the same number of elements.
fn reshape_infer(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = attrs.get::<ReshapeParam>();
    let plain = !p.shape.is_empty() && p.shape.iter().all(|&d| d > 0 || d == -1);
    if inputs[0].rank_known() {
        let shape = reshape_shape(attrs, &inputs[0])?;
        outputs[0].merge(&shape)?;
    } else if plain {
        outputs[0].merge(&Shape::new(&p.shape))?;
    }
    if !inputs[0].is_known() && inputs[0].rank_known() && outputs[0].is_known() {
        // One unknown extent follows from the size.
        let unknown: Vec<usize> =
            (0..inputs[0].ndim()).filter(|&i| inputs[0].dims()[i] < 0).collect();
        let known = known_size(inputs[0].dims())?;
        if let [i] = unknown[..]
            && known > 0
            && outputs[0].size() as i64 % known == 0
        {
            inputs[0].dims_mut()[i] = outputs[0].size() as i64 / known;
        }
    }
    Ok(inputs[0].is_known() && outputs[0].is_known())
}

pub fn operator() -> OpDef {
    same_bytes::<ReshapeParam>("Reshape").aliases(&["reshape"]).infer_shape(reshape_infer).doc(
        "Returns the elements in another shape, in the same (row-major) order.\n\nCodes in \
         `shape`, read from left to right beside the input's axes: 0 copies an extent, -1 is \
         inferred from the size (once only), -2 copies all that are left, -3 joins two axes, -4 \
         splits one into the two numbers that follow (one of which may be -1). With `reverse` they \
         are read from the right. A shape of another size is an error. Any dtype.\n\nExamples\n\
         --------\n>>> nd.Reshape(nd.ones((2, 3, 4)), shape=(-3, 0)).shape\n(6, 4)\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(from: &[i64], codes: &[i64], reverse: bool) -> Option<Vec<i64>> {
        reshape(&Shape::new(from), codes, reverse).ok().map(|s| s.dims().to_vec())
    }

    #[test]
    fn reshape_codes() {
        let from = &[2, 3, 4];
        for (codes, want) in [
            (&[0, -1][..], &[2, 12][..]),
            (&[-3, 4], &[6, 4]),
            (&[0, -3], &[2, 12]),
            (&[-4, 1, 2, -2], &[1, 2, 3, 4]),
            (&[2, -4, -1, 3, -2], &[2, 1, 3, 4]),
            (&[4, 0, 2], &[4, 3, 2]),
        ] {
            assert_eq!(shape(from, codes, false).as_deref(), Some(want), "{codes:?}");
        }
        assert_eq!(shape(&[10, 5, 4], &[-1, 0], false), Some(vec![40, 5]));
        assert_eq!(shape(&[10, 5, 4], &[-1, 0], true), Some(vec![50, 4]));
        assert_eq!(shape(from, &[5], false), None);
        assert_eq!(shape(from, &[-1, -1], false), None);
        assert_eq!(shape(from, &[0, 0, 0, 0], false), None);
        assert_eq!(shape(&[0, 3], &[-1, 3], false), Some(vec![0, 3]));
    }
}
