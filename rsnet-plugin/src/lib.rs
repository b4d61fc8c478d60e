//! Operators for rsnet in Rust: implement [`Operator`] for a type and name it in [`plugin!`], in a
//! crate of type `cdylib`. `examples/cube.rs` is one with its gradient; `docs/plugins.md` is the
//! guide to what a library is and does.
//!
//! The layouts are those of `rsnet/plugin.h`. A panic inside of a callback becomes an error of the
//! call.

#[path = "../../rust/plugin/abi.rs"]
pub mod abi;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function of an operator returns; the text of an error reaches the user.
pub type Result<T = ()> = std::result::Result<T, String>;

/// An attribute: its kind is one of [`abi::kind`], its default is written as in Python.
pub struct Attr {
    pub name: &'static CStr,
    pub kind: i32,
    pub default: &'static CStr,
    pub doc: &'static CStr,
}

/// An operator of fixed inputs and outputs.
pub trait Operator {
    const NAME: &'static CStr;
    const DOC: &'static CStr = c"";
    const INPUTS: &'static [&'static CStr];
    const OUTPUTS: &'static [&'static CStr];
    const ATTRS: &'static [Attr] = &[];
    /// Has it a [`Operator::gradient`]?
    const DIFFERENTIABLE: bool = false;

    /// Sets shape and dtype of every output. By default they are those of the first input.
    fn infer(ctx: &Infer) -> Result {
        for i in 0..Self::OUTPUTS.len() {
            ctx.set_like(i, 0)?;
        }
        Ok(())
    }

    /// Computes the outputs of one call.
    fn compute(call: &Call) -> Result;

    /// Binds a gradient to every input that wants one.
    fn gradient(_: &Gradient) -> Result {
        Err("the operator has no gradient".into())
    }
}

/// What [`Operator::infer`] is asked.
pub struct Infer {
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
}

impl Infer {
    /// What is known of input `i`: `ndim` is -1 and `dtype.bits` 0 for what is not known.
    pub fn input(&self, i: usize) -> Result<&abi::Tensor> {
        // SAFETY: the context is that of the running callback, which outlives `self`.
        let found = unsafe { ((*self.host).tensor)(self.ctx, abi::INPUT, i as i32).as_ref() };
        found.ok_or_else(|| format!("there is no input {i}"))
    }

    /// Output `output` has shape and dtype of input `input`.
    pub fn set_like(&self, output: usize, input: usize) -> Result {
        let like = self.input(input)?;
        // SAFETY: `ndim` extents are there; rsnet copies them.
        let dims = unsafe { std::slice::from_raw_parts(like.shape, like.ndim.max(0) as usize) };
        if like.ndim >= 0 {
            self.set_shape(output, dims)?;
        }
        self.set_dtype(output, like.dtype)
    }

    /// The number that attribute `i` has.
    pub fn number(&self, i: usize) -> Result<f64> {
        // SAFETY: as in `input`.
        let value = unsafe { ((*self.host).attr)(self.ctx, i as i32) };
        number(value, i32::from(!value.is_null()), 0)
    }

    /// Sets the shape of an output.
    pub fn set_shape(&self, output: usize, dims: &[i64]) -> Result {
        let n = dims.len() as i32;
        // SAFETY: as in `input`; rsnet copies the extents.
        let status = unsafe {
            ((*self.host).set_shape)(self.ctx, abi::OUTPUT, output as i32, n, dims.as_ptr())
        };
        said(status)
    }

    /// Sets the dtype of an output.
    pub fn set_dtype(&self, output: usize, dtype: abi::DTypeCode) -> Result {
        // SAFETY: as in `input`.
        said(unsafe { ((*self.host).set_dtype)(self.ctx, abi::OUTPUT, output as i32, dtype) })
    }
}

/// An empty text stands for a failure of which rsnet knows the reason.
fn said(status: abi::Status) -> Result {
    if status == abi::OK { Ok(()) } else { Err(String::new()) }
}

/// A type of elements.
pub trait Element: Copy + 'static {
    const DTYPE: abi::DTypeCode;
}
macro_rules! element {
    ($($t:ty => $code:expr, $bits:expr;)*) => {$(
        impl Element for $t {
            const DTYPE: abi::DTypeCode = abi::DTypeCode { code: $code, bits: $bits, lanes: 1 };
        }
    )*};
}
element! { f32 => 2, 32; f64 => 2, 64; u8 => 1, 8; i8 => 0, 8; i32 => 0, 32; i64 => 0, 64; }

/// One call of a kernel.
pub struct Call<'a> {
    args: &'a abi::Args,
    /// Outputs that were handed out: there is one `&mut` to each.
    taken: RefCell<Vec<usize>>,
}

impl Call<'_> {
    #[allow(clippy::mut_from_ref)] // an array of the call, not of `self`
    fn slice<T: Element>(&self, tensors: *const abi::Tensor, n: i32, i: usize) -> Result<&mut [T]> {
        if i >= n as usize {
            return Err(format!("there is no array {i}, only {n}"));
        }
        // SAFETY: rsnet passes `n` row-major tensors, which live as long as the call.
        unsafe {
            let t = &*tensors.add(i);
            if t.dtype != T::DTYPE {
                return Err(format!("array {i} has another dtype than the kernel reads"));
            }
            let n: i64 = std::slice::from_raw_parts(t.shape, t.ndim as usize).iter().product();
            if n == 0 {
                return Ok(&mut []);
            }
            let data = t.data.cast::<u8>().add(t.byte_offset as usize).cast::<T>();
            Ok(std::slice::from_raw_parts_mut(data, n as usize))
        }
    }

    /// The elements of input `i`.
    pub fn input<T: Element>(&self, i: usize) -> Result<&[T]> {
        self.slice(self.args.inputs, self.args.n_in, i).map(|s| &*s)
    }

    /// The elements of output `i`, once in a call.
    #[allow(clippy::mut_from_ref)] // outputs overlap nothing, as no in-place pair is proposed
    pub fn output<T: Element>(&self, i: usize) -> Result<&mut [T]> {
        let mut taken = self.taken.borrow_mut();
        if taken.contains(&i) {
            return Err(format!("output {i} was taken before"));
        }
        taken.push(i);
        self.slice(self.args.outputs, self.args.n_out, i)
    }

    /// The number that attribute `i` has.
    pub fn number(&self, i: usize) -> Result<f64> {
        number(self.args.attrs, self.args.n_attrs, i)
    }
}

fn number(attrs: *const abi::Value, n: i32, i: usize) -> Result<f64> {
    if i >= n as usize {
        return Err(format!("there is no attribute {i}"));
    }
    // SAFETY: rsnet passes `n` values.
    let value = unsafe { *attrs.add(i) };
    match value.kind {
        // SAFETY: the kind says which member holds the value.
        abi::kind::F32 | abi::kind::F64 => Ok(unsafe { value.v.f }),
        abi::kind::I32 | abi::kind::I64 | abi::kind::BOOL | abi::kind::U32 | abi::kind::U64 => {
            // SAFETY: as above.
            Ok(unsafe { value.v.i } as f64)
        }
        _ => Err(format!("attribute {i} is no number")),
    }
}

/// A value in a gradient.
#[derive(Clone, Copy)]
pub struct Entry(u64);

/// A gradient while it is written.
pub struct Gradient {
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
}

impl Gradient {
    fn entry(&self, source: i32, i: usize) -> Result<Entry> {
        // SAFETY: the context is that of the running callback.
        match unsafe { ((*self.host).entry)(self.ctx, source, i as i32) } {
            0 => Err(String::new()),
            handle => Ok(Entry(handle)),
        }
    }

    /// Input `i` of the node.
    pub fn input(&self, i: usize) -> Result<Entry> {
        self.entry(abi::IN_DATA, i)
    }

    /// Output `i` of the node.
    pub fn output(&self, i: usize) -> Result<Entry> {
        self.entry(abi::OUT_DATA, i)
    }

    /// The gradient that arrives at output `i`.
    pub fn out_grad(&self, i: usize) -> Result<Entry> {
        self.entry(abi::OUT_GRAD, i)
    }

    /// Does input `i` want a gradient?
    pub fn wants(&self, i: usize) -> bool {
        // SAFETY: as above.
        unsafe { ((*self.host).wants_grad)(self.ctx, i as i32) != 0 }
    }

    /// The number that attribute `i` has.
    pub fn number(&self, i: usize) -> Result<f64> {
        // SAFETY: as above; the value lives as long as the callback.
        let value = unsafe { ((*self.host).attr)(self.ctx, i as i32) };
        if value.is_null() { Err(String::new()) } else { number(value, 1, 0) }
    }

    /// An operator of rsnet, or of a library, on these inputs; its first output.
    pub fn op(&self, op: &CStr, inputs: &[Entry], attrs: &[(&CStr, &str)]) -> Result<Entry> {
        // SAFETY: as above; rsnet copies the texts.
        unsafe {
            let host = &*self.host;
            let node = (host.node)(self.ctx, op.as_ptr(), c"".as_ptr());
            for input in inputs {
                said((host.node_input)(self.ctx, node, std::ptr::null(), input.0))?;
            }
            for (name, text) in attrs {
                let text = CString::new(*text).map_err(|e| e.to_string())?;
                said((host.node_attr)(self.ctx, node, name.as_ptr(), text.as_ptr()))?;
            }
            match (host.node_output)(self.ctx, node, std::ptr::null(), 0) {
                0 => Err(String::new()),
                handle => Ok(Entry(handle)),
            }
        }
    }

    /// `value` is the gradient of input `i`.
    pub fn bind(&self, i: usize, value: Entry) -> Result {
        // SAFETY: as above.
        said(unsafe { ((*self.host).bind_grad)(self.ctx, i as i32, value.0) })
    }
}

/// Runs a callback: an error or a panic becomes a status and a text.
fn answer(host: *const abi::Host, ctx: *mut abi::Ctx, f: impl FnOnce() -> Result) -> abi::Status {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("panic: {}", text.unwrap_or_else(|| "of no text".into())))
    });
    let Err(text) = result else { return abi::OK };
    if !text.is_empty() {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the context is that of the running callback.
        unsafe { ((*host).fail)(ctx, text.as_ptr()) };
    }
    abi::INTERNAL
}

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn infer<O: Operator>(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    _: *mut c_void,
) -> abi::Status {
    answer(host, ctx, || O::infer(&Infer { host, ctx }))
}

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn compute<O: Operator>(args: *const abi::Args) -> abi::Status {
    // SAFETY: rsnet passes the arguments of a call.
    let args = unsafe { &*args };
    answer(args.host, args.ctx, || O::compute(&Call { args, taken: RefCell::default() }))
}

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn rule<O: Operator>(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    _: *mut c_void,
) -> abi::Status {
    answer(host, ctx, || O::gradient(&Gradient { host, ctx }))
}

/// Registers an operator; [`plugin!`] calls it.
///
/// # Safety
/// `host` and `registry` are those that `rsnet_plugin_register` was given.
pub unsafe fn register<O: Operator>(
    host: *const abi::Host,
    registry: *mut abi::Registry,
) -> abi::Status {
    let args = |names: &[&'static CStr]| -> Vec<abi::Arg> {
        let arg = |name: &&'static CStr| abi::Arg {
            struct_size: size_of::<abi::Arg>() as u32,
            flags: 0,
            name: name.as_ptr(),
            doc: c"".as_ptr(),
            count: 1,
        };
        names.iter().map(arg).collect()
    };
    let attr = |a: &Attr| abi::Attr {
        struct_size: size_of::<abi::Attr>() as u32,
        kind: a.kind,
        name: a.name.as_ptr(),
        doc: a.doc.as_ptr(),
        dflt: a.default.as_ptr(),
        choices: std::ptr::null(),
        n_choices: 0,
        flags: 0,
        low: 0.0,
        high: 0.0,
    };
    let (inputs, outputs) = (args(O::INPUTS), args(O::OUTPUTS));
    let attrs: Vec<abi::Attr> = O::ATTRS.iter().map(attr).collect();
    // SAFETY: all bytes 0 are a value of each of these structs, see `abi::Sized32`.
    let (mut op, mut kernel, mut grad) = unsafe {
        let zeroed = std::mem::zeroed::<(abi::Op, abi::Kernel, abi::Grad)>();
        (zeroed.0, zeroed.1, zeroed.2)
    };
    op.struct_size = size_of::<abi::Op>() as u32;
    op.name = O::NAME.as_ptr();
    op.doc = O::DOC.as_ptr();
    (op.inputs, op.n_inputs) = (inputs.as_ptr(), inputs.len() as i32);
    (op.outputs, op.n_outputs) = (outputs.as_ptr(), outputs.len() as i32);
    (op.attrs, op.n_attrs) = (attrs.as_ptr(), attrs.len() as i32);
    op.infer = Some(infer::<O>);
    kernel.struct_size = size_of::<abi::Kernel>() as u32;
    kernel.op = O::NAME.as_ptr();
    kernel.compute = Some(compute::<O>);
    grad.struct_size = size_of::<abi::Grad>() as u32;
    grad.op = O::NAME.as_ptr();
    grad.rule = Some(rule::<O>);
    // SAFETY: the caller's promise; rsnet copies the descriptions.
    unsafe {
        let status = ((*host).register_op)(registry, &op);
        if status != abi::OK {
            return status;
        }
        let status = ((*host).register_kernel)(registry, &kernel);
        if status != abi::OK || !O::DIFFERENTIABLE {
            return status;
        }
        ((*host).register_grad)(registry, &grad)
    }
}

/// Exports what rsnet looks for, and registers these operators.
#[macro_export]
macro_rules! plugin {
    ($($operator:ty),+ $(,)?) => {
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)] // the name that plugin.h gives
        pub static rsnet_plugin_abi: u32 = $crate::abi::ABI;

        /// # Safety
        /// Called by rsnet.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn rsnet_plugin_register(
            host: *const $crate::abi::Host,
            registry: *mut $crate::abi::Registry,
        ) -> $crate::abi::Status {
            $(
                // SAFETY: rsnet passes both.
                let status = unsafe { $crate::register::<$operator>(host, registry) };
                if status != $crate::abi::OK {
                    return status;
                }
            )+
            $crate::abi::OK
        }
    };
}
