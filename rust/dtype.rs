//! Element types: the flags of MXNet's files and the Rust types that they stand for.

use crate::error::{Error, Result, shown};
use crate::half_precision::{f32_to_half, f64_to_half, half_to_f32};
use half::f16;
use std::fmt;

/// The type of an array's elements. The discriminants are the flags used in `.params` files. As
/// wide as a word: arrays and views have no holes then, and are copied by whole registers without
/// stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum DType {
    F32 = 0,
    F64 = 1,
    F16 = 2,
    U8 = 3,
    I32 = 4,
    I8 = 5,
    I64 = 6,
    Bool = 7,
}

impl DType {
    pub const ALL: [DType; 8] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::U8,
        DType::I32,
        DType::I8,
        DType::I64,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 => 2,
            DType::U8 | DType::I8 | DType::Bool => 1,
        }
    }

    /// The number that files and old programs use.
    pub const fn flag(self) -> i32 {
        self as i32
    }

    /// The dtype of a file's number; an error names the number.
    pub fn from_flag(flag: i32) -> Result<DType> {
        DType::ALL.into_iter().find(|d| d.flag() == flag).ok_or_else(|| {
            let known = DType::ALL.map(|d| d.flag().to_string()).join(", ");
            Error::type_(format!("invalid dtype flag {flag}: expected one of: {known}"))
        })
    }

    /// NumPy's name.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::F16 => "float16",
            DType::U8 => "uint8",
            DType::I32 => "int32",
            DType::I8 => "int8",
            DType::I64 => "int64",
            DType::Bool => "bool",
        }
    }

    /// The dtype of NumPy's name.
    pub fn from_name(name: &str) -> Result<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name).ok_or_else(|| {
            let (name, known) = (shown(name), DType::known());
            Error::type_(format!("invalid dtype '{name}': expected {known}"))
        })
    }

    /// The names of all, for messages.
    pub fn known() -> String {
        format!("one of: {}", DType::ALL.map(DType::name).join(", "))
    }

    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is the element of some [`DType`].
pub trait Element:
    Copy + Send + Sync + PartialEq + PartialOrd + Default + fmt::Debug + 'static
{
    const DTYPE: DType;
    /// As C converts: floats truncate toward zero and saturate, integers wrap.
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// As [`Element::from_f64`], with less work where half precision is made of single precision.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Self::from_f64(value.into())
    }
    /// As [`Element::to_f64`], rounded.
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.to_f64() as f32
    }
    /// The nearest value of the type at or toward zero from `value`: a limit beyond the type's
    /// range is its end.
    fn saturating(value: f64) -> Self;
    /// As C converts: integers wrap.
    fn from_int(value: i64) -> Self;
    /// Exact for integers; floats truncate toward zero.
    fn to_int(self) -> i64;
}

/// One element as another type, as C converts; integers keep all their bits as far as the type has
/// them.
#[inline(always)]
pub fn convert<S: Element, D: Element>(x: S) -> D {
    if matches!(S::DTYPE, DType::F32 | DType::F16) {
        D::from_f32(x.to_f32())
    } else if S::DTYPE.is_float() {
        D::from_f64(x.to_f64())
    } else {
        D::from_int(x.to_int())
    }
}

macro_rules! element {
    ($($t:ty => $d:ident, $from:expr, $saturating:expr, $to:expr, $from_int:expr, $to_int:expr $(, $from32:expr, $to32:expr)?;)*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            #[inline(always)]
            fn from_f64(value: f64) -> Self { ($from)(value) }
            #[inline(always)]
            fn saturating(value: f64) -> Self { ($saturating)(value) }
            #[inline(always)]
            fn to_f64(self) -> f64 { ($to)(self) }
            #[inline(always)]
            fn from_int(value: i64) -> Self { ($from_int)(value) }
            #[inline(always)]
            fn to_int(self) -> i64 { ($to_int)(self) }
            $(
                #[inline(always)]
                fn from_f32(value: f32) -> Self { ($from32)(value) }
                #[inline(always)]
                fn to_f32(self) -> f32 { ($to32)(self) }
            )?
        }
    )*};
}

element! {
    f32 => F32, |v: f64| v as f32, |v: f64| v as f32, |x: f32| x as f64, |v: i64| v as f32, |x: f32| x as i64, |v: f32| v, |x: f32| x;
    f64 => F64, |v: f64| v, |v: f64| v, |x: f64| x, |v: i64| v as f64, |x: f64| x as i64;
    f16 => F16, f64_to_half, f64_to_half, |x: f16| f64::from(half_to_f32(x)), |v: i64| f64_to_half(v as f64), |x: f16| half_to_f32(x) as i64, f32_to_half, half_to_f32;
    u8 => U8, |v: f64| v as i64 as u8, |v: f64| v as u8, |x: u8| x as f64, |v: i64| v as u8, |x: u8| x as i64;
    i32 => I32, |v: f64| v as i64 as i32, |v: f64| v as i32, |x: i32| x as f64, |v: i64| v as i32, |x: i32| x as i64;
    i8 => I8, |v: f64| v as i64 as i8, |v: f64| v as i8, |x: i8| x as f64, |v: i64| v as i8, |x: i8| x as i64;
    i64 => I64, |v: f64| v as i64, |v: f64| v as i64, |x: i64| x as f64, |v: i64| v, |x: i64| x;
    bool => Bool, |v: f64| v != 0.0, |v: f64| v >= 1.0, |x: bool| x as u8 as f64, |v: i64| v != 0, |x: bool| x as i64;
}

/// Runs `$body` with the type alias `$T` set to the Rust type of `$dtype`.
///
/// ```
/// use rsnet::{dtype::DType, dtype::Element, with_dtype};
/// let size = with_dtype!(DType::F64, T => std::mem::size_of::<T>());
/// assert_eq!(size, 8);
/// ```
#[macro_export]
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::dtype::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::dtype::DType::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::dtype::DType::U8 => {
                type $T = u8;
                $body
            }
            $crate::dtype::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::dtype::DType::I8 => {
                type $T = i8;
                $body
            }
            $crate::dtype::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::dtype::DType::Bool => {
                type $T = bool;
                $body
            }
        }
    };
}
