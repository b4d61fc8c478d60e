//! Shared by the operators on tensors: inference and small helpers on views.

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape, same_type};
use crate::operator::{Call, OpDef, OpReq, Tuple};
use crate::shape::{Numbers, Shape};
use crate::tensor::View;

/// One shape and one dtype for all inputs and outputs.
pub fn elementwise(def: OpDef) -> OpDef {
    def.infer_shape(elementwise_shape).infer_type(same_type)
}

/// Returns true if all shapes are known.
pub fn all_known(inputs: &[Shape], outputs: &[Shape]) -> bool {
    inputs.iter().chain(outputs).all(Shape::is_known)
}

/// A rule `input shape -> output shape` for an operator of one output, without inference
/// backwards.
pub fn from_first(
    inputs: &[Shape],
    outputs: &mut [Shape],
    rule: impl FnOnce(&Shape) -> Result<Shape>,
) -> Result<bool> {
    if !inputs[0].is_known() {
        return Ok(false);
    }
    let out = rule(&inputs[0])?;
    assign_shape(&mut outputs[0], "output", &out)?;
    Ok(all_known(inputs, outputs))
}

/// The first input and all outputs share a dtype; other inputs may have any.
pub fn first_type(
    _: &crate::operator::Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let known = inputs[0].or(outputs.first().copied().flatten());
    let Some(dtype) = known else { return Ok(false) };
    assign_type(&mut inputs[0], "data", dtype)?;
    for out in outputs.iter_mut() {
        assign_type(out, "output", dtype)?;
    }
    for other in inputs.iter_mut().skip(1) {
        other.get_or_insert(DType::F32);
    }
    Ok(true)
}

/// The shape given by a parameter, whose extents must not be negative.
pub fn shape_of(dims: &[i64], what: &str) -> Result<Shape> {
    match dims.iter().find(|&&d| d < 0) {
        Some(d) => Err(Error::invalid(&format!("extent in {what}"), d, "at least 0")),
        None => Ok(Shape::new(dims)),
    }
}

/// The shape itself, or `(1,)` for `()`, which in legacy semantics is not the shape of an array.
pub fn at_least_1d(shape: Shape) -> Shape {
    if shape.rank_known() && shape.ndim() == 0 { Shape::new(&[1]) } else { shape }
}

/// The axes of `shape` named by a tuple parameter, as flags.
pub fn axis_flags(axes: &Tuple, shape: &Shape) -> Result<Vec<bool>> {
    let mut flags = vec![false; shape.ndim()];
    for &a in axes {
        let at = shape.axis(a)?;
        if std::mem::replace(&mut flags[at], true) {
            return Err(Error::value(format!(
                "axis {a} is named twice in {}: expected different axes",
                Numbers(axes)
            )));
        }
    }
    Ok(flags)
}

/// Refuses a choice among no elements of `x`.
pub fn something_to_choose(x: &View, elements: usize) -> Result<()> {
    if elements > 0 {
        return Ok(());
    }
    let expected = "at least one element to choose from";
    Err(Error::argument("data", "shape", x.shape(), expected))
}

pub use crate::kernels::copy::copy as copy_view;

/// Sets every byte to 0.
pub fn zero_view(view: &View) {
    if view.size() > 0 {
        // SAFETY: a view holds its bytes, and all element types have 0 as all-zero bytes.
        unsafe { std::ptr::write_bytes(view.ptr(), 0, view.size_bytes()) };
    }
}

/// Returns true if output `i` is wanted.
pub fn wanted(call: &Call<'_>, i: usize) -> bool {
    call.req[i] != OpReq::Null
}

/// Element `i` of the array at `ptr`, as f64.
///
/// # Safety
/// `ptr` holds more than `i` elements of `dtype`.
#[inline]
pub unsafe fn read_f64(ptr: *const u8, dtype: DType, i: usize) -> f64 {
    // SAFETY: promised by the caller.
    crate::with_dtype!(dtype, T => unsafe { Element::to_f64(*ptr.cast::<T>().add(i)) })
}

/// Writes a number as element `i` of the array at `ptr`.
///
/// # Safety
/// As [`read_f64`].
#[inline]
pub unsafe fn write_f64(ptr: *mut u8, dtype: DType, i: usize, value: f64) {
    // SAFETY: promised by the caller.
    crate::with_dtype!(dtype, T => unsafe { *ptr.cast::<T>().add(i) = T::from_f64(value) })
}
