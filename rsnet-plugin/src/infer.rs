//! Inference, and other callbacks that know shapes and dtypes but no elements.

use crate::abi::{self, Ctx, Host};
use crate::{Attrs, DType, Result, index, said};
use std::ffi::CStr;
use std::marker::PhantomData;

/// What is known of an array.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    tensor: abi::Tensor,
    lives: PhantomData<&'a [i64]>,
}

impl<'a> Known<'a> {
    /// The extents, -1 for one that is not known; `None` if not even their number is.
    pub fn shape(&self) -> Option<&'a [i64]> {
        let n = usize::try_from(self.tensor.ndim).ok()?;
        if n == 0 {
            return Some(&[]);
        }
        // SAFETY: rsnet keeps so many extents until the callback returns, unchanged.
        Some(unsafe { std::slice::from_raw_parts(self.tensor.shape, n) })
    }

    pub fn dtype(&self) -> Option<DType> {
        Some(self.tensor.dtype).filter(|t| t.bits != 0)
    }
}

/// What [`Operator::infer`](crate::Operator::infer) is asked.
pub struct Infer<'a> {
    host: &'a Host,
    ctx: *mut Ctx,
}

impl<'a> Infer<'a> {
    /// # Safety
    /// `ctx` is that of a callback that does not return while `'a` lasts.
    pub(crate) unsafe fn new(host: &'a Host, ctx: *mut Ctx) -> Self {
        Infer { host, ctx }
    }

    pub fn attrs(&self) -> Attrs<'a> {
        // SAFETY: the promise of `new`, here and below.
        unsafe { Attrs::new(self.host, self.ctx) }
    }

    /// The number that attribute `i` has.
    pub fn number(&self, i: usize) -> Result<f64> {
        self.attrs().number(i)
    }

    fn arrays(&self, side: i32) -> usize {
        // SAFETY: as above.
        usize::try_from(unsafe { (self.host.n_arrays)(self.ctx, side) }).unwrap_or(0)
    }

    /// Arrays of all input arguments.
    pub fn n_inputs(&self) -> usize {
        self.arrays(abi::INPUT)
    }

    /// Arrays of all output arguments.
    pub fn n_outputs(&self) -> usize {
        self.arrays(abi::OUTPUT)
    }

    /// How many arrays an input argument has: none if it is absent.
    pub fn count(&self, arg: &CStr) -> usize {
        // SAFETY: as above.
        let n = unsafe { (self.host.count)(self.ctx, abi::INPUT, arg.as_ptr()) };
        usize::try_from(n).unwrap_or(0)
    }

    /// The number of array `i` of an input argument among all inputs.
    pub fn find(&self, arg: &CStr, i: usize) -> Option<usize> {
        // SAFETY: as above.
        let at = unsafe { (self.host.find)(self.ctx, abi::INPUT, arg.as_ptr(), index(i)) };
        usize::try_from(at).ok()
    }

    /// What is known of input `i`.
    pub fn input(&self, i: usize) -> Result<Known<'a>> {
        // SAFETY: as above. The copy is not changed by what this callback sets.
        let found = unsafe { (self.host.tensor)(self.ctx, abi::INPUT, index(i)).as_ref().copied() };
        let tensor = found.ok_or_else(|| format!("there is no input {i}"))?;
        Ok(Known { tensor, lives: PhantomData })
    }

    /// Output `output` has shape and dtype of input `input`, as far as they are known.
    pub fn set_like(&self, output: usize, input: usize) -> Result {
        let like = self.input(input)?;
        if let Some(shape) = like.shape() {
            self.set_shape(output, shape)?;
        }
        like.dtype().map_or(Ok(()), |dtype| self.set_dtype(output, dtype))
    }

    /// Sets the shape of an output.
    pub fn set_shape(&self, output: usize, dims: &[i64]) -> Result {
        let (output, n) = (index(output), index(dims.len()));
        // SAFETY: as above; rsnet copies the extents.
        said(unsafe { (self.host.set_shape)(self.ctx, abi::OUTPUT, output, n, dims.as_ptr()) })
    }

    /// Sets the dtype of an output.
    pub fn set_dtype(&self, output: usize, dtype: DType) -> Result {
        // SAFETY: as above.
        said(unsafe { (self.host.set_dtype)(self.ctx, abi::OUTPUT, index(output), dtype) })
    }

    /// Demands a dtype of an input.
    pub fn demand_dtype(&self, input: usize, dtype: DType) -> Result {
        // SAFETY: as above.
        said(unsafe { (self.host.set_dtype)(self.ctx, abi::INPUT, index(input), dtype) })
    }
}
