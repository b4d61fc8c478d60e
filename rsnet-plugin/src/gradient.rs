//! Gradients that are composed of operators.

use crate::abi::{self, Ctx, Host};
use crate::{Callback, Result, index, said};
use std::ffi::{CStr, CString};
use std::ops::Deref;

/// A value in a gradient.
#[derive(Clone, Copy)]
pub struct Entry(u64);

impl Entry {
    fn new(handle: u64) -> Result<Entry> {
        if handle == 0 { Err(String::new()) } else { Ok(Entry(handle)) }
    }
}

/// A gradient while it is written.
pub struct Gradient<'a>(Callback<'a>);

impl<'a> Deref for Gradient<'a> {
    type Target = Callback<'a>;

    fn deref(&self) -> &Callback<'a> {
        &self.0
    }
}

/// A node of a gradient while it is made.
pub struct Node<'a> {
    host: &'a Host,
    ctx: *mut Ctx,
    handle: u64,
}

impl<'a> Gradient<'a> {
    /// # Safety
    /// `ctx` is that of a gradient rule that does not return while `'a` lasts.
    pub(crate) unsafe fn new(host: &'a Host, ctx: *mut Ctx) -> Self {
        // SAFETY: as the caller promises.
        Gradient(unsafe { Callback::new(host, ctx) })
    }

    fn entry(&self, source: i32, i: usize) -> Result<Entry> {
        // SAFETY: the promise of `new`, here and below.
        Entry::new(unsafe { (self.host.entry)(self.ctx, source, index(i)) })
    }

    /// Input `i` of the node.
    pub fn input(&self, i: usize) -> Result<Entry> {
        self.entry(abi::IN_DATA, i)
    }

    /// Output `i` of the node.
    pub fn output(&self, i: usize) -> Result<Entry> {
        self.entry(abi::OUT_DATA, i)
    }

    /// The gradient that arrives at output `i`; zeros if none does.
    pub fn out_grad(&self, i: usize) -> Result<Entry> {
        self.entry(abi::OUT_GRAD, i)
    }

    /// Does a gradient arrive at output `i`?
    pub fn arrives(&self, i: usize) -> bool {
        // SAFETY: as above.
        unsafe { (self.host.has_out_grad)(self.ctx, index(i)) != 0 }
    }

    /// Does input `i` want a gradient?
    pub fn wants(&self, i: usize) -> bool {
        // SAFETY: as above.
        unsafe { (self.host.wants_grad)(self.ctx, index(i)) != 0 }
    }

    /// A new node: an operator of rsnet, or of a library.
    pub fn node(&self, op: &CStr) -> Result<Node<'a>> {
        // SAFETY: as above; rsnet copies the texts.
        let handle = unsafe { (self.host.node)(self.ctx, op.as_ptr(), c"".as_ptr()) };
        Entry::new(handle).map(|_| Node { host: self.host, ctx: self.ctx, handle })
    }

    /// An operator on these inputs, in its order; its first output.
    pub fn op(&self, op: &CStr, inputs: &[Entry], attrs: &[(&CStr, &str)]) -> Result<Entry> {
        let mut node = self.node(op)?;
        for input in inputs {
            node = node.input(*input)?;
        }
        for (name, text) in attrs {
            node = node.attr(name, text)?;
        }
        node.output(0)
    }

    /// `value` is the gradient of input `i`.
    pub fn bind(&self, i: usize, value: Entry) -> Result {
        // SAFETY: as above.
        said(unsafe { (self.host.bind_grad)(self.ctx, index(i), value.0) })
    }
}

impl Node<'_> {
    fn add(self, arg: *const std::ffi::c_char, value: Entry) -> Result<Self> {
        // SAFETY: the promise of `Gradient::new`, here and below; rsnet copies the texts.
        said(unsafe { (self.host.node_input)(self.ctx, self.handle, arg, value.0) })?;
        Ok(self)
    }

    /// The next input in the operator's order.
    pub fn input(self, value: Entry) -> Result<Self> {
        self.add(std::ptr::null(), value)
    }

    /// The next array of an input argument.
    pub fn input_of(self, arg: &CStr, value: Entry) -> Result<Self> {
        self.add(arg.as_ptr(), value)
    }

    /// An attribute, written as in Python.
    pub fn attr(self, name: &CStr, text: &str) -> Result<Self> {
        let text = CString::new(text).map_err(|e| e.to_string())?;
        // SAFETY: as above.
        said(unsafe {
            (self.host.node_attr)(self.ctx, self.handle, name.as_ptr(), text.as_ptr())
        })?;
        Ok(self)
    }

    /// Output `i`.
    pub fn output(&self, i: usize) -> Result<Entry> {
        // SAFETY: as above.
        Entry::new(unsafe {
            (self.host.node_output)(self.ctx, self.handle, std::ptr::null(), index(i))
        })
    }

    /// Array `i` of an output argument.
    pub fn output_of(&self, arg: &CStr, i: usize) -> Result<Entry> {
        // SAFETY: as above.
        Entry::new(unsafe {
            (self.host.node_output)(self.ctx, self.handle, arg.as_ptr(), index(i))
        })
    }
}
