//! What the callbacks of an operator may ask: attributes, and the number and names of arrays.

use crate::abi::{self, Ctx, Host};
use crate::{Attrs, Result, index};
use std::ffi::CStr;

/// A callback of rsnet while it runs. [`Infer`](crate::Infer) and [`Gradient`](crate::Gradient)
/// have its methods.
#[derive(Clone, Copy)]
pub struct Callback<'a> {
    pub(crate) host: &'a Host,
    pub(crate) ctx: *mut Ctx,
}

impl<'a> Callback<'a> {
    /// # Safety
    /// `ctx` is that of a callback that does not return while `'a` lasts.
    pub(crate) unsafe fn new(host: &'a Host, ctx: *mut Ctx) -> Self {
        Callback { host, ctx }
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

    /// The number of array `i` of an input argument among all inputs.
    pub fn find(&self, arg: &CStr, i: usize) -> Option<usize> {
        // SAFETY: as above.
        let at = unsafe { (self.host.find)(self.ctx, abi::INPUT, arg.as_ptr(), index(i)) };
        usize::try_from(at).ok()
    }
}
