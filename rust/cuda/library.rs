//! Libraries of CUDA that are opened while the program runs: tables of their functions, found by
//! name.

use std::ffi::{CStr, CString, c_void};

/// A handle of a library (context, stream, event), which is an address to us.
pub type Handle = *mut c_void;

/// A handle that any thread may use: those of the driver are thread-safe.
#[derive(Clone, Copy)]
pub struct Shared(pub Handle);

// SAFETY: see above.
unsafe impl Send for Shared {}
// SAFETY: see above.
unsafe impl Sync for Shared {}

/// Declares the table of a library's functions: a struct of function pointers and other fields.
/// All return a status, a number of which 0 is success.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $visibility:vis struct $Table:ident { $($field:ident: $Field:ty = $start:expr,)* }
        required { $($name:ident: $symbol:literal($($argument:ty),* $(,)?);)* }
        optional { $($newer:ident: $newer_symbol:literal($($newer_argument:ty),* $(,)?);)* }
    ) => {
        $(#[$doc])*
        $visibility struct $Table {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
            $(pub $newer: Option<unsafe extern "C" fn($($newer_argument),*) -> std::ffi::c_int>,)*
            $($field: $Field,)*
        }

        impl $Table {
            /// Finds every function in an open library, or says which is missing; older libraries
            /// lack the optional ones.
            fn find(
                library: $crate::cuda::Handle,
                path: &str,
            ) -> std::result::Result<Self, String> {
                use $crate::cuda::{Handle, library::symbol};
                $(
                    let address = symbol(library, $symbol);
                    if address.is_null() {
                        return Err(format!("{path} has no function {}", $symbol));
                    }
                    // SAFETY: the library's interface fixes the signature of the symbol.
                    let $name = unsafe {
                        std::mem::transmute::<
                            Handle,
                            unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,
                        >(address)
                    };
                )*
                $(
                    // SAFETY: as above; a null address is `None`.
                    let $newer = unsafe {
                        std::mem::transmute::<
                            Handle,
                            Option<unsafe extern "C" fn($($newer_argument),*) -> std::ffi::c_int>,
                        >(symbol(library, $newer_symbol))
                    };
                )*
                Ok($Table { $($name,)* $($newer,)* $($field: $start,)* })
            }
        }
    };
}
pub(super) use functions;

/// The address of a function of an open library, null if there is none.
pub fn symbol(library: Handle, name: &str) -> Handle {
    let Ok(name) = CString::new(name) else { return std::ptr::null_mut() };
    // SAFETY: the library is open, and is never closed.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Opens a library, which stays open until the process ends; an error is the reason.
pub fn open(path: &str) -> Result<Handle, String> {
    let name = CString::new(path).map_err(|_| "its name has a zero byte".to_owned())?;
    // SAFETY: the library's initialisers run, as for any program that uses it.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: the text of the failure above, which the next call of `dlerror` overwrites.
    let why = unsafe {
        let text = libc::dlerror();
        if text.is_null() { path.into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    Err(why.into_owned())
}
