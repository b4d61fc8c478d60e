//! The functions of rsnet that a library calls: the table `rsnet_host`.
//!
//! Each checks what it is given. None panics into the library: what would panic is a failure.

#![expect(clippy::missing_safety_doc, reason = "the contract of each is that of plugin.h")]

use super::abi::{self, Ctx, DTypeCode, Host, RangeFn, Status, Tensor, Value};
use super::frame::{Asks, Frame};
use super::reading::MOST_ARRAYS;
use super::registration::{refuse, register_grad, register_kernel, register_op};
use super::rule::{self, Rule};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, try_parallel_for};
use crate::kernels::random::Draws;
use crate::operator::{Dep, InplacePair, RandomKey};
use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The table.
pub static HOST: Host = Host {
    struct_size: size_of::<Host>() as u32,
    abi: abi::ABI,
    register_op,
    register_kernel,
    register_grad,
    refuse,
    fail,
    log,
    attr,
    attr_by_name,
    parsed,
    n_arrays,
    count,
    find,
    tensor,
    set_shape,
    set_dtype,
    add_name,
    add_inplace,
    add_temp,
    add_random,
    add_sbp,
    temp,
    random,
    parallel_for,
    node_name,
    wants_grad,
    has_out_grad,
    entry,
    node,
    node_input,
    node_attr,
    node_output,
    bind_grad,
    add_dep,
};

/// Calls `f` with the frame of a context; `otherwise` is the answer without one, or of a panic.
///
/// # Safety
/// `ctx` is null or what a callback that has not returned was given.
unsafe fn with<R>(ctx: *mut Ctx, otherwise: R, f: impl FnOnce(&Frame<'_>) -> R) -> R {
    // SAFETY: the caller's promise.
    let Some(frame) = (unsafe { ctx.cast::<Frame<'_>>().cast_const().as_ref() }) else {
        return otherwise;
    };
    catch_unwind(AssertUnwindSafe(|| f(frame))).unwrap_or_else(|panic| {
        frame.fail(Error::from_panic(panic).message());
        otherwise
    })
}

/// As [`with`], for functions that return a status.
///
/// # Safety
/// As [`with`].
unsafe fn status(ctx: *mut Ctx, f: impl FnOnce(&Frame<'_>) -> Result<()>) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        with(ctx, abi::INTERNAL, |frame| match f(frame) {
            Ok(()) => abi::OK,
            Err(error) => frame.refuse(&error),
        })
    }
}

/// A text argument, which must be there.
///
/// # Safety
/// `text` is null or ends with 0.
unsafe fn given(text: *const c_char, what: &str) -> Result<String> {
    // SAFETY: the caller's promise.
    unsafe { abi::text(text) }
        .ok_or_else(|| Error::value(format!("{what} is null: expected a text")))
}

// In all functions below, pointers are as `plugin.h` says: that is their contract.

unsafe extern "C" fn fail(ctx: *mut Ctx, text: *const c_char) {
    // SAFETY: the contract.
    unsafe {
        if let Some(text) = abi::text(text) {
            with(ctx, (), |frame| frame.fail(text));
        }
    }
}

unsafe extern "C" fn log(ctx: *mut Ctx, text: *const c_char) {
    // SAFETY: the contract.
    unsafe {
        let text = abi::text(text).unwrap_or_default();
        with(ctx, (), |frame| eprintln!("[rsnet] {}: {text}", frame.op.name));
    }
}

unsafe extern "C" fn attr(ctx: *mut Ctx, number: i32) -> *const Value {
    // SAFETY: the contract.
    unsafe {
        with(ctx, std::ptr::null(), |frame| {
            let all = &frame.parsed.values.all;
            match usize::try_from(number).ok().and_then(|i| all.get(i)) {
                Some(value) => value,
                None => {
                    let most = all.len() as i64 - 1;
                    frame.fail(format!("invalid attribute {number}: expected 0 to {most}"));
                    std::ptr::null()
                }
            }
        })
    }
}

unsafe extern "C" fn attr_by_name(ctx: *mut Ctx, name: *const c_char) -> *const Value {
    // SAFETY: the contract.
    unsafe {
        with(ctx, std::ptr::null(), |frame| {
            let attrs = &frame.op.attrs;
            let wanted = (!name.is_null()).then(|| std::ffi::CStr::from_ptr(name).to_bytes());
            let at = attrs.iter().position(|a| Some(a.field.name.as_bytes()) == wanted);
            match at.and_then(|i| frame.parsed.values.all.get(i)) {
                Some(value) => value,
                None => {
                    let known: Vec<_> = attrs.iter().map(|a| a.field.name.as_str()).collect();
                    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                    let name = String::from_utf8_lossy(wanted.unwrap_or_default());
                    frame.fail(format!("invalid attribute '{name}': expected one of: {known}"));
                    std::ptr::null()
                }
            }
        })
    }
}

unsafe extern "C" fn parsed(ctx: *mut Ctx) -> *mut c_void {
    // SAFETY: the contract.
    unsafe { with(ctx, std::ptr::null_mut(), |frame| frame.parsed.made()) }
}

/// A text that is compared with names: empty for what is none.
///
/// # Safety
/// `text` is null or ends with 0, and lives as long as the caller needs.
unsafe fn name<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

fn is_side(side: i32) -> bool {
    matches!(side, abi::INPUT | abi::OUTPUT)
}

unsafe extern "C" fn n_arrays(ctx: *mut Ctx, side: i32) -> i32 {
    // SAFETY: the contract.
    unsafe {
        with(ctx, -1, |frame| {
            if is_side(side) { frame.parsed.names[side as usize].len() as i32 } else { -1 }
        })
    }
}

unsafe extern "C" fn count(ctx: *mut Ctx, side: i32, arg: *const c_char) -> i32 {
    // SAFETY: the contract.
    unsafe {
        let arg = name(arg);
        with(ctx, 0, |frame| if is_side(side) { frame.parsed.count(side, arg) as i32 } else { 0 })
    }
}

unsafe extern "C" fn find(ctx: *mut Ctx, side: i32, arg: *const c_char, i: i32) -> i32 {
    // SAFETY: the contract.
    unsafe {
        let arg = name(arg);
        with(ctx, -1, |frame| {
            let i = usize::try_from(i).ok().filter(|_| is_side(side));
            i.and_then(|i| frame.parsed.find(side, arg, i)).map_or(-1, |at| at as i32)
        })
    }
}

unsafe extern "C" fn tensor(ctx: *mut Ctx, side: i32, number: i32) -> *const Tensor {
    // SAFETY: the contract.
    unsafe {
        with(ctx, std::ptr::null(), |frame| match frame.index(side, number) {
            Ok((side, at)) => &raw const frame.scene().said().tensors[side][at].tensor,
            Err(error) => {
                frame.refuse(&error);
                std::ptr::null()
            }
        })
    }
}

unsafe extern "C" fn set_shape(
    ctx: *mut Ctx,
    side: i32,
    number: i32,
    ndim: i32,
    dims: *const i64,
) -> Status {
    // SAFETY: the contract.
    unsafe { status(ctx, |frame| frame.set_shape(side, number, ndim, dims)) }
}

unsafe extern "C" fn set_dtype(ctx: *mut Ctx, side: i32, number: i32, dtype: DTypeCode) -> Status {
    // SAFETY: the contract.
    unsafe { status(ctx, |frame| frame.set_dtype(side, number, dtype)) }
}

unsafe extern "C" fn add_name(ctx: *mut Ctx, side: i32, name: *const c_char, flags: u32) -> Status {
    // SAFETY: the contract.
    unsafe {
        status(ctx, |frame| {
            frame.check_asks(Asks::Names, "add_name")?;
            let name = given(name, "the name of an array")?;
            if !is_side(side) {
                return Err(Error::index(format!("invalid side {side}: expected 0 or 1")));
            }
            let mut scene = frame.scene();
            let names = &mut scene.said().names[side as usize];
            if names.len() >= MOST_ARRAYS as usize {
                return Err(Error::value(format!(
                    "'names' listed too many arrays: expected at most {MOST_ARRAYS}"
                )));
            }
            names.push((name, flags));
            Ok(())
        })
    }
}

unsafe extern "C" fn add_inplace(ctx: *mut Ctx, input: i32, output: i32, same: i32) -> Status {
    // SAFETY: the contract.
    unsafe {
        status(ctx, |frame| {
            frame.check_asks(Asks::InplacePairs, "add_inplace")?;
            let names = &frame.parsed.names;
            let known =
                |side: usize, i: i32| usize::try_from(i).ok().filter(|i| *i < names[side].len());
            let (Some(input), Some(output)) = (known(0, input), known(1, output)) else {
                return Err(Error::index(format!(
                    "invalid in-place pair ({input}, {output}): expected one of {} inputs and one \
                     of {} outputs",
                    names[0].len(),
                    names[1].len()
                )));
            };
            let pair = InplacePair { input, output, identity: same != 0 };
            frame.scene().said().pairs.push(pair);
            Ok(())
        })
    }
}

unsafe extern "C" fn add_temp(ctx: *mut Ctx, bytes: u64) -> Status {
    // SAFETY: the contract.
    unsafe {
        status(ctx, |frame| {
            frame.check_asks(Asks::Resources, "add_temp")?;
            let mut scene = frame.scene();
            let said = scene.said();
            said.temp_bytes = said.temp_bytes.saturating_add(bytes);
            Ok(())
        })
    }
}

unsafe extern "C" fn add_random(ctx: *mut Ctx) -> Status {
    // SAFETY: the contract.
    unsafe {
        status(ctx, |frame| {
            frame.check_asks(Asks::Resources, "add_random")?;
            frame.scene().said().random = true;
            Ok(())
        })
    }
}

unsafe extern "C" fn add_sbp(ctx: *mut Ctx, signature: *const c_char) -> Status {
    // SAFETY: the contract.
    unsafe {
        status(ctx, |frame| {
            frame.check_asks(Asks::Signatures, "add_sbp")?;
            let signature = given(signature, "a signature")?;
            frame.scene().said().signatures.push(signature);
            Ok(())
        })
    }
}

unsafe extern "C" fn temp(ctx: *mut Ctx, bytes: u64) -> *mut c_void {
    // SAFETY: the contract.
    unsafe {
        with(ctx, std::ptr::null_mut(), |frame| frame.temp(bytes).unwrap_or(std::ptr::null_mut()))
    }
}

unsafe extern "C" fn random(ctx: *mut Ctx, first: u64, n: u64, words: *mut u64) -> Status {
    // SAFETY: the contract.
    unsafe {
        status(ctx, |frame| {
            if frame.random == RandomKey::NONE {
                return Err(Error::value(
                    "random numbers were not requested: register the operator with RSNET_RANDOM, \
                     or ask for them by add_random",
                ));
            }
            if words.is_null() && n > 0 {
                return Err(Error::value(format!(
                    "the place of {n} random words is null, expected an address"
                )));
            }
            let key = frame.random;
            for i in 0..n as usize {
                let word = Draws::new(key.seed, key.stream, first as usize + i).bits();
                words.add(i).write(word);
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn parallel_for(
    ctx: *mut Ctx,
    n: i64,
    grain: i64,
    f: RangeFn,
    data: *mut c_void,
) -> Status {
    // SAFETY: the contract.
    unsafe {
        with(ctx, abi::INTERNAL, |frame| {
            let (Ok(n), Some(f)) = (usize::try_from(n), f) else {
                frame.fail(format!(
                    "invalid parallel_for of {n} items: expected 0 or more, and a function"
                ));
                return abi::INVALID;
            };
            let grain = usize::try_from(grain).unwrap_or(1);
            let data = Shared(data.cast::<u8>());
            let run = |part: Range<usize>| {
                let run = || f(data.ptr().cast(), part.start as i64, part.end as i64);
                let ended = frame.library.run(run).unwrap_or_else(|error| {
                    frame.fail(error.message());
                    abi::INTERNAL
                });
                if ended == abi::OK { Ok(()) } else { Err(ended) }
            };
            try_parallel_for(n, grain, run).map_or_else(|status| status, |()| abi::OK)
        })
    }
}

/// Calls `f` with the gradient that is being written.
///
/// # Safety
/// As [`with`].
unsafe fn rule<R>(ctx: *mut Ctx, otherwise: R, f: impl FnOnce(&mut Rule) -> Result<R>) -> R {
    // SAFETY: the caller's promise.
    unsafe {
        with(ctx, None, |frame| {
            let result = match &mut frame.scene().said().rule {
                Some(rule) => f(rule),
                None => Err(Error::value("this function is for the rule of a gradient only")),
            };
            result.map_err(|error| frame.refuse(&error)).ok()
        })
        .unwrap_or(otherwise)
    }
}

/// As [`rule`], with what makes a node or an entry and returns its handle.
///
/// # Safety
/// As [`with`].
unsafe fn making(ctx: *mut Ctx, f: impl FnOnce(&mut Rule) -> Result<u64>) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        rule(ctx, 0, |p| {
            let made = f(p);
            p.made(made)
        })
    }
}

unsafe extern "C" fn node_name(ctx: *mut Ctx) -> *const c_char {
    // SAFETY: the contract.
    unsafe { rule(ctx, c"".as_ptr(), |p| Ok(p.name.as_ptr())) }
}

unsafe extern "C" fn wants_grad(ctx: *mut Ctx, input: i32) -> i32 {
    // SAFETY: the contract.
    unsafe { rule(ctx, 0, |p| Ok(i32::from(p.wants(input)?))) }
}

unsafe extern "C" fn has_out_grad(ctx: *mut Ctx, output: i32) -> i32 {
    // SAFETY: the contract.
    unsafe { rule(ctx, 0, |p| Ok(i32::from(p.arrives(output)?))) }
}

unsafe extern "C" fn entry(ctx: *mut Ctx, source: i32, number: i32) -> u64 {
    // SAFETY: the contract.
    unsafe { making(ctx, |p| p.value(source, number)) }
}

unsafe extern "C" fn node(ctx: *mut Ctx, op: *const c_char, name: *const c_char) -> u64 {
    // SAFETY: the contract.
    unsafe {
        making(ctx, |p| {
            let op = given(op, "the operator of a node")?;
            p.node(op, abi::text(name).unwrap_or_default())
        })
    }
}

unsafe extern "C" fn node_input(
    ctx: *mut Ctx,
    node: u64,
    arg: *const c_char,
    value: u64,
) -> Status {
    // SAFETY: the contract.
    unsafe { rule(ctx, abi::INVALID, |p| p.input(node, abi::text(arg), value).map(|()| abi::OK)) }
}

unsafe extern "C" fn node_attr(
    ctx: *mut Ctx,
    node: u64,
    name: *const c_char,
    text: *const c_char,
) -> Status {
    // SAFETY: the contract.
    unsafe {
        rule(ctx, abi::INVALID, |p| {
            let name = given(name, "the name of an attribute")?;
            p.attr(node, name, given(text, "the value of an attribute")?).map(|()| abi::OK)
        })
    }
}

unsafe extern "C" fn node_output(ctx: *mut Ctx, node: u64, arg: *const c_char, i: i32) -> u64 {
    // SAFETY: the contract.
    unsafe { making(ctx, |p| p.output(node, abi::text(arg), i)) }
}

unsafe extern "C" fn bind_grad(ctx: *mut Ctx, input: i32, value: u64) -> Status {
    // SAFETY: the contract.
    unsafe { rule(ctx, abi::INVALID, |p| p.bind(input, value).map(|()| abi::OK)) }
}

unsafe extern "C" fn add_dep(ctx: *mut Ctx, source: i32, number: i32) -> Status {
    // SAFETY: the contract.
    unsafe {
        status(ctx, |frame| {
            frame.check_asks(Asks::Deps, "add_dep")?;
            let names = &frame.parsed.names;
            let dep: Dep = rule::dep(source, number, names[0].len(), names[1].len())?;
            frame.scene().said().deps.push(dep);
            Ok(())
        })
    }
}
