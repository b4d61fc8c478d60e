//! The attributes of a call.

use crate::abi::{self, kind};
use crate::{DType, Result, index};
use std::ffi::{CStr, c_char};
use std::slice::from_raw_parts;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// Of kinds `U32` and `U64`.
    UInt(u64),
    Float(f64),
    /// Of kinds `STR` and `ENUM`.
    Text(&'a str),
    DType(DType),
    /// A shape, or a list of integers.
    Ints(&'a [i64]),
    Floats(&'a [f64]),
    DTypes(&'a [DType]),
    Shapes(Vec<&'a [i64]>),
    Texts(Vec<&'a str>),
}

/// The attributes of a call, in the order of declaration.
#[derive(Clone, Copy)]
pub struct Attrs<'a> {
    host: &'a abi::Host,
    ctx: *mut abi::Ctx,
}

macro_rules! getter {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $t:ty, $what:literal) => {
        $(#[$doc])*
        pub fn $name(&self, i: usize) -> Result<$t> {
            match self.get(i)? {
                Datum::$variant(value) => Ok(value),
                other => Err(format!("attribute {i} is {other:?}, expected {}", $what)),
            }
        }
    };
}

impl<'a> Attrs<'a> {
    /// # Safety
    /// `ctx` is that of a callback that does not return while `'a` lasts.
    pub(crate) unsafe fn new(host: &'a abi::Host, ctx: *mut abi::Ctx) -> Self {
        Attrs { host, ctx }
    }

    /// The value of attribute `i`.
    pub fn get(&self, i: usize) -> Result<Datum<'a>> {
        // SAFETY: the context is that of a running callback, until whose end values live.
        unsafe { datum((self.host.attr)(self.ctx, index(i))) }
    }

    /// The value of an attribute.
    pub fn named(&self, name: &CStr) -> Result<Datum<'a>> {
        // SAFETY: as in `get`.
        unsafe { datum((self.host.attr_by_name)(self.ctx, name.as_ptr())) }
    }

    /// The number that attribute `i` has, of whatever kind.
    pub fn number(&self, i: usize) -> Result<f64> {
        Ok(match self.get(i)? {
            Datum::Bool(b) => f64::from(u8::from(b)),
            Datum::Int(i) => i as f64,
            Datum::UInt(i) => i as f64,
            Datum::Float(x) => x,
            other => return Err(format!("attribute {i} is {other:?}, expected a number")),
        })
    }

    getter!(bool, Bool, bool, "a bool");
    getter!(int, Int, i64, "an integer");
    getter!(uint, UInt, u64, "an integer of a kind without a sign");
    getter!(text, Text, &'a str, "a text");
    getter!(dtype, DType, DType, "a dtype");
    getter!(
        /// A shape, or a list of integers.
        ints, Ints, &'a [i64], "a shape or integers"
    );
    getter!(floats, Floats, &'a [f64], "floats");
    getter!(dtypes, DTypes, &'a [DType], "dtypes");
    getter!(shapes, Shapes, Vec<&'a [i64]>, "shapes");
    getter!(texts, Texts, Vec<&'a str>, "texts");
}

/// # Safety
/// `items` is null, or `n` of them live as long as `'a`.
unsafe fn slice<'a, T>(items: *const T, n: i32) -> &'a [T] {
    match usize::try_from(n) {
        // SAFETY: the caller's promise.
        Ok(n) if n > 0 && !items.is_null() => unsafe { from_raw_parts(items, n) },
        _ => &[],
    }
}

/// # Safety
/// `text` ends with 0 and lives as long as `'a`.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|e| e.to_string())
}

/// # Safety
/// `value` is null or a value of rsnet that lives as long as `'a`.
unsafe fn datum<'a>(value: *const abi::Value) -> Result<Datum<'a>> {
    // SAFETY: the caller's promise; the kind says which member holds the value, and `n` how many
    // items there are.
    unsafe {
        let Some(value) = value.as_ref() else { return Err(String::new()) };
        let (n, v) = (value.n, &value.v);
        Ok(match value.kind {
            kind::NONE => Datum::None,
            kind::BOOL => Datum::Bool(v.i != 0),
            kind::I32 | kind::I64 => Datum::Int(v.i),
            kind::U32 | kind::U64 => Datum::UInt(v.u),
            kind::F32 | kind::F64 => Datum::Float(v.f),
            kind::STR | kind::ENUM => Datum::Text(text(v.s)?),
            kind::DTYPE => Datum::DType(v.t),
            kind::SHAPE | kind::LIST_I32 | kind::LIST_I64 | kind::LIST_MAYBE_I64 => {
                Datum::Ints(slice(v.is, n))
            }
            kind::LIST_F32 | kind::LIST_F64 => Datum::Floats(slice(v.fs, n)),
            kind::LIST_DTYPE => Datum::DTypes(slice(v.ts, n)),
            kind::LIST_SHAPE => {
                let one = |e: &abi::Extents| slice(e.dims, e.n);
                Datum::Shapes(slice(v.es, n).iter().map(one).collect())
            }
            kind::LIST_STR => {
                let texts = slice(v.ss, n).iter().map(|t| text(*t));
                Datum::Texts(texts.collect::<Result<_>>()?)
            }
            other => return Err(format!("an attribute of unknown kind {other}")),
        })
    }
}
