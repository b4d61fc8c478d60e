//! Registration, and the callbacks that rsnet calls.

use crate::abi::{self, matching};
use crate::operator::{Arg, Attr, Kernel, Operator, State, When};
use crate::{Call, Gradient, Infer, Result};
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback: an error becomes the status `refusal`, a panic that of a defect, with a text.
pub(crate) fn answer(
    host: &abi::Host,
    ctx: *mut abi::Ctx,
    refusal: abi::Status,
    f: impl FnOnce() -> Result,
) -> abi::Status {
    let mut status = refusal;
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        status = abi::INTERNAL;
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        // What the payload does when it is dropped stays here, too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        Err(format!("panic: {}", text.unwrap_or_else(|| "of no text".into())))
    });
    let Err(text) = result else { return abi::OK };
    if !text.is_empty() {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the context is that of the running callback.
        unsafe { (host.fail)(ctx, text.as_ptr()) };
    }
    status
}

/// A callback that stores what `make` made.
///
/// # Safety
/// rsnet calls it, with what `plugin.h` says.
unsafe fn made(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    place: *mut *mut c_void,
    make: impl FnOnce(&Infer<'_>) -> Result<*mut c_void>,
) -> abi::Status {
    // SAFETY: the caller's promise.
    unsafe {
        let host = &*host;
        answer(host, ctx, abi::INTERNAL, || {
            *place = make(&Infer::new(host, ctx))?;
            Ok(())
        })
    }
}

/// A callback without an answer of its own, whose error says that what it was asked is invalid.
macro_rules! callback {
    ($(#[$doc:meta])* $name:ident, |$ctx:ident| $does:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Called by rsnet, with what `plugin.h` says.
        unsafe extern "C-unwind" fn $name<O: Operator>(
            host: *const abi::Host,
            ctx: *mut abi::Ctx,
            _: *mut c_void,
        ) -> abi::Status {
            // SAFETY: rsnet's table, and the context of this callback.
            unsafe {
                let host = &*host;
                answer(host, ctx, abi::INVALID, || {
                    let $ctx = &Infer::new(host, ctx);
                    $does
                })
            }
        }
    };
}
callback!(
    /// Shapes and dtypes.
    infer, |ctx| O::infer(ctx)
);
callback!(
    /// Do the attributes go together?
    check, |ctx| O::CHECK.map_or(Ok(()), |check| check(ctx))
);

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn inplace<O: Operator>(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    _: *mut c_void,
) -> abi::Status {
    for (input, output) in O::INPLACE {
        // SAFETY: rsnet's table, and the context of this callback.
        let status = unsafe { ((*host).add_inplace)(ctx, *input, *output, 0) };
        if status != abi::OK {
            return status;
        }
    }
    abi::OK
}

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn signatures<O: Operator>(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    _: *mut c_void,
) -> abi::Status {
    // SAFETY: rsnet's table, and the context of this callback.
    unsafe {
        let host = &*host;
        answer(host, ctx, abi::INVALID, || {
            let Some(list) = O::SIGNATURES else { return Ok(()) };
            for text in list(&Infer::new(host, ctx))? {
                let text = CString::new(text).map_err(|e| e.to_string())?;
                crate::said((host.add_sbp)(ctx, text.as_ptr()))?;
            }
            Ok(())
        })
    }
}

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn create_state<O: Operator>(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    _: *mut c_void,
    place: *mut *mut c_void,
) -> abi::Status {
    // SAFETY: as above.
    unsafe {
        made(host, ctx, place, |ctx| match O::STATE {
            Some(make) => Ok(Box::into_raw(Box::new(make(ctx)?)).cast()),
            None => Ok(std::ptr::null_mut()),
        })
    }
}

/// # Safety
/// Called by rsnet once, with what `create_state` made.
unsafe extern "C-unwind" fn destroy_state(state: *mut c_void) {
    // SAFETY: the caller's promise. A panic cannot be reported here.
    let _ =
        catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(state.cast::<State>()) })));
}

/// # Safety
/// Called by rsnet, with the kernel that was registered.
unsafe extern "C-unwind" fn tmp_bytes(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    user: *mut c_void,
    place: *mut *mut c_void,
) -> abi::Status {
    // SAFETY: as above.
    unsafe {
        let kernel = &*user.cast::<Running>();
        made(host, ctx, place, |ctx| {
            let bytes = kernel.kernel.tmp_bytes.map_or(Ok(0), |ask| ask(ctx))?;
            Ok(usize::try_from(bytes).map_err(|e| e.to_string())? as *mut c_void)
        })
    }
}

/// What `user` of a kernel points to.
struct Running {
    kernel: Kernel,
    inputs: &'static [Arg],
}

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn compute(args: *const abi::Args) -> abi::Status {
    // SAFETY: rsnet passes the arguments of a call of a kernel that was registered.
    unsafe {
        let args = &*args;
        let running = &*args.user.cast::<Running>();
        let call = Call::new(args, running.inputs);
        answer(&*args.host, args.ctx, abi::INTERNAL, || (running.kernel.compute)(&call))
    }
}

/// # Safety
/// Called by rsnet, with what `plugin.h` says.
unsafe extern "C-unwind" fn rule<O: Operator>(
    host: *const abi::Host,
    ctx: *mut abi::Ctx,
    _: *mut c_void,
) -> abi::Status {
    // SAFETY: rsnet's table, and the context of this rule.
    unsafe {
        let host = &*host;
        answer(host, ctx, abi::INTERNAL, || O::gradient(&Gradient::new(host, ctx)))
    }
}

/// A struct of the interface with its size, and 0 in every other field.
macro_rules! blank {
    ($t:ty) => {{
        // SAFETY: all bytes 0 are a value of it, see `abi::Sized32`.
        let mut made: $t = unsafe { std::mem::zeroed() };
        made.struct_size = size_of::<$t>() as u32;
        made
    }};
}

fn pointers(texts: &[&'static CStr]) -> Vec<*const c_char> {
    texts.iter().map(|t| t.as_ptr()).collect()
}

fn args(args: &[Arg]) -> Vec<abi::Arg> {
    let one = |arg: &Arg| {
        let mut made = blank!(abi::Arg);
        (made.name, made.doc) = (arg.name.as_ptr(), arg.doc.as_ptr());
        (made.count, made.flags) = (arg.count, arg.flags);
        made
    };
    args.iter().map(one).collect()
}

/// An attribute, whose choices are `choices`.
fn attr(attr: &Attr, choices: &[*const c_char]) -> abi::Attr {
    let mut made = blank!(abi::Attr);
    (made.kind, made.name, made.doc) = (attr.kind, attr.name.as_ptr(), attr.doc.as_ptr());
    made.dflt = attr.default.map_or(std::ptr::null(), CStr::as_ptr);
    (made.choices, made.n_choices) = (choices.as_ptr(), choices.len() as i32);
    let flag = |is_on: bool, flag: u32| if is_on { flag } else { 0 };
    made.flags = flag(attr.may_be_none, abi::MAY_BE_NONE)
        | flag(attr.low.is_some(), abi::HAS_LOW)
        | flag(attr.high.is_some(), abi::HAS_HIGH);
    (made.low, made.high) = (attr.low.unwrap_or(0.0), attr.high.unwrap_or(0.0));
    made
}

/// Adds a condition to a program, in reverse Polish notation.
fn add_condition(when: &When, program: &mut Vec<abi::Match>) {
    // SAFETY: all bytes 0 are a value of it.
    let mut step: abi::Match = unsafe { std::mem::zeroed() };
    match *when {
        When::Always => step.op = matching::TRUE,
        When::Device(device) => (step.op, step.number) = (matching::DEVICE, device.into()),
        When::DType(arg, i, dtype) => {
            (step.op, step.name, step.index) = (matching::DTYPE, arg.as_ptr(), i);
            step.dtype = dtype;
        }
        When::Axes(arg, i, compare, n) => {
            (step.op, step.name, step.index) = (matching::NDIM, arg.as_ptr(), i);
            (step.compare, step.number) = (compare as i32, n);
        }
        When::Attr(name, compare, text) => {
            (step.op, step.name, step.text) = (matching::ATTR, name.as_ptr(), text.as_ptr());
            step.compare = compare as i32;
        }
        When::Not(inner) => {
            add_condition(inner, program);
            step.op = matching::NOT;
        }
        When::All(parts) | When::Any(parts) => {
            let all = matches!(when, When::All(_));
            // Of no conditions all hold, and not any.
            step.op = matching::TRUE;
            if let [first, rest @ ..] = parts {
                add_condition(first, program);
                for part in rest {
                    add_condition(part, program);
                    step.op = if all { matching::AND } else { matching::OR };
                    program.push(step);
                }
                return;
            }
            if !all {
                program.push(step);
                step.op = matching::NOT;
            }
        }
    }
    program.push(step);
}

/// Registers an operator; [`plugin!`](crate::plugin) calls it.
///
/// # Safety
/// `host` and `registry` are those that `rsnet_plugin_register` was given.
pub unsafe fn register<O: Operator>(
    host: *const abi::Host,
    registry: *mut abi::Registry,
) -> abi::Status {
    // SAFETY: the caller's promise.
    let host = unsafe { &*host };
    let kernels = || O::KERNELS.iter().map(|k| register_kernel::<O>(host, registry, k));
    let mut steps = std::iter::once(register_op::<O>(host, registry)).chain(kernels());
    let failed = steps.find(|status| *status != abi::OK);
    match failed {
        Some(status) => status,
        None if O::DIFFERENTIABLE => {
            let mut grad = blank!(abi::Grad);
            grad.op = O::NAME.as_ptr();
            grad.rule = Some(rule::<O>);
            // SAFETY: as above; rsnet copies the description.
            unsafe { (host.register_grad)(registry, &grad) }
        }
        None => abi::OK,
    }
}

fn register_op<O: Operator>(host: &abi::Host, registry: *mut abi::Registry) -> abi::Status {
    let (inputs, outputs) = (args(O::INPUTS), args(O::OUTPUTS));
    let choices: Vec<_> = O::ATTRS.iter().map(|a| pointers(a.choices)).collect();
    let attrs: Vec<_> = O::ATTRS.iter().zip(&choices).map(|(a, c)| attr(a, c)).collect();
    let aliases = pointers(O::ALIASES);
    let mut op = blank!(abi::Op);
    let flag = |is_on: bool, flag: u32| if is_on { flag } else { 0 };
    op.flags = flag(O::RANDOM, abi::RANDOM)
        | flag(!O::DETERMINISTIC, abi::NOT_DETERMINISTIC)
        | flag(O::LONG, abi::LONG);
    (op.name, op.doc) = (O::NAME.as_ptr(), O::DOC.as_ptr());
    (op.aliases, op.n_aliases) = (aliases.as_ptr(), aliases.len() as i32);
    (op.inputs, op.n_inputs) = (inputs.as_ptr(), inputs.len() as i32);
    (op.outputs, op.n_outputs) = (outputs.as_ptr(), outputs.len() as i32);
    (op.attrs, op.n_attrs) = (attrs.as_ptr(), attrs.len() as i32);
    op.infer = Some(infer::<O>);
    op.check = O::CHECK.map(|_| check::<O> as _);
    op.inplace = (!O::INPLACE.is_empty()).then_some(inplace::<O> as _);
    op.sbp = O::SIGNATURES.map(|_| signatures::<O> as _);
    if O::STATE.is_some() {
        op.create_state = Some(create_state::<O>);
        op.destroy_state = Some(destroy_state);
    }
    // SAFETY: the promise of `register`; rsnet copies the descriptions.
    unsafe { (host.register_op)(registry, &op) }
}

fn register_kernel<O: Operator>(
    host: &abi::Host,
    registry: *mut abi::Registry,
    kernel: &Kernel,
) -> abi::Status {
    let mut program = Vec::new();
    if !matches!(kernel.when, When::Always) {
        add_condition(&kernel.when, &mut program);
    }
    let mut made = blank!(abi::Kernel);
    (made.op, made.name) = (O::NAME.as_ptr(), kernel.name.as_ptr());
    (made.program, made.n_match) = (program.as_ptr(), program.len() as i32);
    (made.priority, made.flags) = (kernel.priority, kernel.flags);
    // A library is never unloaded.
    let running = Box::leak(Box::new(Running { kernel: *kernel, inputs: O::INPUTS }));
    made.user = std::ptr::from_mut(running).cast();
    made.compute = Some(compute);
    made.tmp_bytes = kernel.tmp_bytes.map(|_| tmp_bytes as _);
    // SAFETY: as above.
    unsafe { (host.register_kernel)(registry, &made) }
}
