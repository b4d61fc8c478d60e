//! Inference, and other callbacks that know shapes and dtypes but no elements.

use crate::abi::{self, Ctx, Host};
use crate::{Callback, DType, Result, index, said};
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ops::Deref;

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
        // SAFETY: rsnet keeps `n` extents unchanged until the callback returns.
        Some(unsafe { std::slice::from_raw_parts(self.tensor.shape, n) })
    }

    pub fn dtype(&self) -> Option<DType> {
        Some(self.tensor.dtype).filter(|t| t.bits != 0)
    }
}

/// What [`Operator::infer`](crate::Operator::infer) is asked.
pub struct Infer<'a>(Callback<'a>);

impl<'a> Deref for Infer<'a> {
    type Target = Callback<'a>;

    fn deref(&self) -> &Callback<'a> {
        &self.0
    }
}

impl<'a> Infer<'a> {
    /// # Safety
    /// `ctx` is that of a callback that does not return while `'a` lasts.
    pub(crate) unsafe fn new(host: &'a Host, ctx: *mut Ctx) -> Self {
        // SAFETY: as the caller promises.
        Infer(unsafe { Callback::new(host, ctx) })
    }

    /// How many arrays an input argument has: none if it is absent.
    pub fn count(&self, arg: &CStr) -> usize {
        // SAFETY: the promise of `new`, here and below.
        let n = unsafe { (self.host.count)(self.ctx, abi::INPUT, arg.as_ptr()) };
        usize::try_from(n).unwrap_or(0)
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
