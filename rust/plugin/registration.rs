//! What a library registers while it is loaded. Nothing is in force until all of it is.

#![expect(clippy::missing_safety_doc, reason = "the contract of each is that of plugin.h")]

use super::abi::{self, Status};
use super::decl::{GradDecl, KernelDecl, OpDecl};
use super::library::Library;
use crate::error::{Error, Result};
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The target of an `rsnet_registry` pointer.
pub struct Registration {
    pub library: Arc<Library>,
    pub ops: Vec<Arc<OpDecl>>,
    pub kernels: Vec<Arc<KernelDecl>>,
    pub gradients: Vec<Arc<GradDecl>>,
    /// The first failure, which counts whatever the library returns.
    pub failure: Option<Error>,
}

impl Registration {
    pub fn new(library: Arc<Library>) -> Self {
        Registration {
            library,
            ops: Vec::new(),
            kernels: Vec::new(),
            gradients: Vec::new(),
            failure: None,
        }
    }
}

/// Calls `f` with what is registered; a failure is kept.
///
/// # Safety
/// `registry` is null or what `rsnet_plugin_register` was given, which has not returned.
unsafe fn with(
    registry: *mut abi::Registry,
    f: impl FnOnce(&mut Registration) -> Result<()>,
) -> Status {
    // SAFETY: the caller's promise.
    let Some(registration) = (unsafe { registry.cast::<Registration>().as_mut() }) else {
        return abi::INTERNAL;
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(registration)))
        .unwrap_or_else(|panic| Err(Error::from_panic(panic)));
    match result {
        Ok(()) => abi::OK,
        Err(error) => {
            registration.failure.get_or_insert(error);
            abi::INVALID
        }
    }
}

fn twice(op: &str, what: &str) -> Error {
    Error::value(format!("the library registers {what} twice: expected once")).in_operator(op)
}

// In the functions below, pointers are as `plugin.h` says: that is their contract.

pub unsafe extern "C" fn register_op(registry: *mut abi::Registry, op: *const abi::Op) -> Status {
    // SAFETY: the contract.
    unsafe {
        with(registry, |r| {
            let decl = OpDecl::read(op, &r.library)?;
            if r.ops.iter().any(|known| known.name == decl.name) {
                return Err(twice(&decl.name, "the operator"));
            }
            r.ops.push(Arc::new(decl));
            Ok(())
        })
    }
}

pub unsafe extern "C" fn register_kernel(
    registry: *mut abi::Registry,
    kernel: *const abi::Kernel,
) -> Status {
    // SAFETY: the contract.
    unsafe {
        with(registry, |r| {
            r.kernels.push(Arc::new(KernelDecl::read(kernel, &r.library)?));
            Ok(())
        })
    }
}

pub unsafe extern "C" fn register_grad(
    registry: *mut abi::Registry,
    grad: *const abi::Grad,
) -> Status {
    // SAFETY: the contract.
    unsafe {
        with(registry, |r| {
            let decl = GradDecl::read(grad, &r.library)?;
            if r.gradients.iter().any(|known| known.op == decl.op) {
                return Err(twice(&decl.op, "a gradient"));
            }
            r.gradients.push(Arc::new(decl));
            Ok(())
        })
    }
}

pub unsafe extern "C" fn refuse(registry: *mut abi::Registry, text: *const c_char) {
    // SAFETY: the contract.
    unsafe {
        let text = abi::text(text).unwrap_or_default();
        with(registry, |_| Err(Error::value(text)));
    }
}
