//! Types of elements.

use crate::abi::{self, DTypeCode};
use std::fmt;

/// A dtype as DLPack writes it: `DType::F32` and so on.
pub type DType = DTypeCode;

/// As Python writes it: `float32`.
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.code {
            abi::BOOLEAN => return f.write_str("bool"),
            abi::FLOAT => "float",
            abi::UINT => "uint",
            _ if self.bits == 0 => return f.write_str("unknown"),
            _ => "int",
        };
        write!(f, "{kind}{}", self.bits)
    }
}

/// A type of elements. Every pattern of its bits is a value, since kernels may read memory
/// before it is written.
///
/// # Safety
/// That is so, and the type has the layout of elements of this dtype.
pub unsafe trait Element: Copy + 'static {
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $dtype:ident;)*) => {$(
        // SAFETY: numbers of this layout, for which every pattern of bits is a value.
        unsafe impl Element for $t {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}
#[cfg(feature = "half")]
element! {
    half::f16 => F16;
}
element! {
    f32 => F32; f64 => F64; u8 => U8; i8 => I8; i32 => I32; i64 => I64; Bool => BOOL;
}

/// An element of dtype bool. Any byte but 0 is true.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bool(u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(value.into())
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> bool {
        value.0 != 0
    }
}
