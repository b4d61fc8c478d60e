//! Views: what kernels read and write.
//!
//! A view is a pointer with shape, strides and dtype. It owns nothing: its creator (the
//! executor layer) keeps the memory alive and orders access to it. Several views may overlap,
//! because an in-place output *is* its input; therefore kernels work on raw pointers and never hold
//! two Rust slices over the same bytes of which one is mutable.

use crate::dtype::{DType, Element};
use crate::shape::{Dims, Shape};
use std::ops::Range;

/// A tensor in borrowed memory.
#[derive(Clone, Debug)]
pub struct View {
    ptr: *mut u8,
    shape: Shape,
    /// In elements, one per axis; 0 repeats an element along the axis.
    strides: Dims,
    dtype: DType,
}

// SAFETY: a view is only an address with its description; the maker of the view promises that the
// bytes outlive its use and that conflicting accesses are ordered (by the engine's variables).
unsafe impl Send for View {}
// SAFETY: as above; a shared view hands out raw pointers only.
unsafe impl Sync for View {}

impl View {
    /// A row-major view.
    ///
    /// # Safety
    /// `ptr` must be aligned for `dtype` and valid for the whole shape (reads, and writes if a
    /// kernel is given it as an output) for as long as the view or a view made from it is used. It
    /// may dangle only when the shape has no elements.
    pub unsafe fn new(ptr: *mut u8, shape: Shape, dtype: DType) -> Self {
        let strides = shape.strides();
        View { ptr, shape, strides, dtype }
    }

    /// A view of `size` elements on one axis, which is all that an element-wise kernel needs.
    ///
    /// # Safety
    /// As [`View::new`].
    #[inline]
    pub unsafe fn flat(ptr: *mut u8, size: usize, dtype: DType) -> Self {
        let strides = Dims::from_buf_and_len([1; 5], 1);
        View { ptr, shape: Shape::flat(size), strides, dtype }
    }

    /// A view with explicit strides (in elements).
    ///
    /// # Safety
    /// As [`View::new`], for every element that shape and strides address.
    pub unsafe fn with_strides(ptr: *mut u8, shape: Shape, strides: Dims, dtype: DType) -> Self {
        View { ptr, shape, strides, dtype }
    }

    /// The description of a tensor that has no memory, because its elements are neither read nor
    /// written.
    pub fn absent(shape: Shape, dtype: DType) -> Self {
        let strides = shape.strides();
        View { ptr: std::ptr::dangling_mut::<u64>().cast(), shape, strides, dtype }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn dims(&self) -> &[i64] {
        self.shape.dims()
    }

    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn ndim(&self) -> usize {
        self.shape.ndim()
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.shape.size()
    }

    /// Bytes of all elements (of a row-major view).
    pub fn size_bytes(&self) -> usize {
        self.size() * self.dtype.size()
    }

    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The address as a pointer to `T`; the dtypes must agree.
    pub fn as_ptr<T: Element>(&self) -> *mut T {
        debug_assert_eq!(self.dtype, T::DTYPE);
        self.ptr.cast()
    }

    /// Returns true if the elements are one row-major block.
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1i64;
        for (&d, &s) in self.dims().iter().zip(self.strides.iter()).rev() {
            if d > 1 && s != step {
                return false;
            }
            step *= d.max(1);
        }
        true
    }

    /// The same bytes in another row-major shape of equal size; the view must be contiguous.
    pub fn reshaped(&self, shape: Shape) -> View {
        debug_assert!(self.is_contiguous() && shape.size() == self.size());
        let strides = shape.strides();
        View { ptr: self.ptr, shape, strides, dtype: self.dtype }
    }

    /// A range of the elements on one axis; the view must be contiguous.
    #[inline]
    pub fn elements(&self, range: Range<usize>) -> View {
        debug_assert!(self.is_contiguous());
        assert!(range.start <= range.end && range.end <= self.size(), "elements of the view");
        // SAFETY: a part of what the maker of the view promised.
        unsafe {
            let ptr = self.ptr.wrapping_add(range.start * self.dtype.size());
            View::flat(ptr, range.len(), self.dtype)
        }
    }

    /// Returns true if any byte of `self` lies in the span of `other`. Meant for contiguous views.
    pub fn overlaps(&self, other: &View) -> bool {
        let (a, b) = (self.ptr as usize, other.ptr as usize);
        a < b + other.size_bytes() && b < a + self.size_bytes()
    }

    /// The elements as a slice.
    ///
    /// # Safety
    /// The view must be contiguous, of dtype `T`, and nothing may write these bytes while the slice
    /// lives.
    pub unsafe fn slice<T: Element>(&self) -> &[T] {
        debug_assert!(self.is_contiguous());
        if self.size() == 0 {
            return &[];
        }
        // SAFETY: the caller promises exclusive reading; the maker of the view promised validity.
        unsafe { std::slice::from_raw_parts(self.as_ptr::<T>(), self.size()) }
    }

    /// The elements as a mutable slice.
    ///
    /// # Safety
    /// As [`View::slice`], and nothing else may read or write these bytes while the slice lives: no
    /// input of the running kernel may overlap this view.
    // A view is an address, not an owner: the promise above is the guard.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut<T: Element>(&self) -> &mut [T] {
        debug_assert!(self.is_contiguous());
        if self.size() == 0 {
            return &mut [];
        }
        // SAFETY: the caller promises exclusive access; the maker of the view promised validity.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr::<T>(), self.size()) }
    }
}
