//! Operators for rsnet in Rust: implement [`Operator`] for a type and name it in [`plugin!`], in a
//! crate of type `cdylib`. `examples/cube.rs` is one with its gradient, `examples/forms.rs` has one
//! for everything else that an operator can say; `docs/plugins.md` is the guide to what a library
//! is and does.
//!
//! The layouts are those of `rsnet/plugin.h`. A panic inside of a callback becomes an error of the
//! call.

#[cfg(panic = "abort")]
compile_error!("rsnet-plugin needs panic = \"unwind\": a panic is to be an error of the call");

#[path = "../../rust/plugin/abi.rs"]
pub mod abi;

mod attrs;
mod call;
mod callback;
mod element;
mod gradient;
mod infer;
mod operator;
mod register;

pub use attrs::{Attrs, Datum};
pub use call::{Call, InPlace, Request};
pub use callback::Callback;
pub use element::{Bool, DType, Element};
pub use gradient::{Entry, Gradient, Node};
#[cfg(feature = "half")]
pub use half::f16;
pub use infer::{Infer, Known};
pub use operator::{Arg, Attr, Compare, Kernel, Operator, State, When};
pub use register::register;

/// What a function of an operator returns; the text of an error reaches the user.
pub type Result<T = ()> = std::result::Result<T, String>;

/// An empty text stands for a failure of which rsnet knows the reason.
fn said(status: abi::Status) -> Result {
    if status == abi::OK { Ok(()) } else { Err(String::new()) }
}

/// A number of an array as the interface has it; one that is too large is that of no array.
fn index(i: usize) -> i32 {
    i32::try_from(i).unwrap_or(i32::MAX)
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
