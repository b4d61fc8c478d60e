//! The attributes of a call as C reads them.

use super::abi::{self, Payload, kind};
use super::decl::AttrDecl;
use super::dtypes::dtype_code;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::Value;
use std::ffi::{CString, c_char};

/// Attributes in the order of declaration.
pub struct Values {
    pub all: Vec<abi::Value>,
    /// The targets of the pointers in `all`.
    _kept: Vec<Backing>,
}

// SAFETY: pointers into memory of its own that nothing changes.
unsafe impl Send for Values {}
// SAFETY: as above.
unsafe impl Sync for Values {}

#[expect(dead_code, reason = "owns what pointers point to")]
enum Backing {
    Text(CString),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    DTypes(Vec<abi::DTypeCode>),
    Shapes(Vec<Vec<i64>>, Vec<abi::Extents>),
    Texts(Vec<CString>, Vec<*const c_char>),
}

impl Values {
    /// From values in normal form.
    pub fn new(attrs: &[AttrDecl], values: &[Value]) -> Result<Values> {
        let mut made = Values { all: Vec::with_capacity(attrs.len()), _kept: Vec::new() };
        for (attr, value) in attrs.iter().zip(values) {
            let exact = attr.field.ty.in_its_precision(value);
            let c = made.convert(attr.kind, &exact).ok_or_else(|| {
                Error::invalid(&attr.field.name, value, "a value that a library can read")
            })?;
            made.all.push(c);
        }
        Ok(made)
    }

    fn convert(&mut self, kind: i32, value: &Value) -> Option<abi::Value> {
        let plain = |v| Some(abi::Value { kind, n: 1, v });
        match value {
            Value::None => Some(abi::Value { kind: kind::NONE, n: 0, v: Payload { i: 0 } }),
            Value::Bool(b) => plain(Payload { i: i64::from(*b) }),
            Value::Int(i) => plain(Payload { i: *i }),
            Value::UInt(u) => plain(Payload { u: *u }),
            Value::Float(f) => plain(Payload { f: *f }),
            Value::Str(name) if kind == kind::DTYPE => {
                plain(Payload { t: dtype_code(DType::from_name(name).ok()?) })
            }
            Value::Str(text) => {
                let text = CString::new(text.as_bytes()).ok()?;
                let (s, n) = (text.as_ptr(), text.as_bytes().len());
                self._kept.push(Backing::Text(text));
                Some(abi::Value { kind, n: i32::try_from(n).ok()?, v: Payload { s } })
            }
            Value::List(items) => self.list(kind, items),
        }
    }

    fn list(&mut self, kind: i32, items: &[Value]) -> Option<abi::Value> {
        let n = i32::try_from(items.len()).ok()?;
        let (v, kept) = match kind {
            kind::SHAPE | kind::LIST_I32 | kind::LIST_I64 | kind::LIST_MAYBE_I64 => {
                let ints = ints(items)?;
                (Payload { is: ints.as_ptr() }, Backing::Ints(ints))
            }
            kind::LIST_F32 | kind::LIST_F64 => {
                let number = |v: &Value| match v {
                    Value::Float(x) => Some(*x),
                    _ => None,
                };
                let floats: Vec<f64> = items.iter().map(number).collect::<Option<_>>()?;
                (Payload { fs: floats.as_ptr() }, Backing::Floats(floats))
            }
            kind::LIST_DTYPE => {
                let code = |v: &Value| DType::from_name(&v.to_string()).ok().map(dtype_code);
                let codes: Vec<_> = items.iter().map(code).collect::<Option<_>>()?;
                (Payload { ts: codes.as_ptr() }, Backing::DTypes(codes))
            }
            kind::LIST_SHAPE => {
                let shape = |v: &Value| match v {
                    Value::List(dims) => ints(dims),
                    _ => None,
                };
                let shapes: Vec<Vec<i64>> = items.iter().map(shape).collect::<Option<_>>()?;
                let extents: Vec<_> = shapes
                    .iter()
                    .map(|s| abi::Extents { n: s.len() as i32, dims: s.as_ptr() })
                    .collect();
                (Payload { es: extents.as_ptr() }, Backing::Shapes(shapes, extents))
            }
            kind::LIST_STR => {
                let text = |v: &Value| CString::new(v.to_string()).ok();
                let texts: Vec<CString> = items.iter().map(text).collect::<Option<_>>()?;
                let pointers: Vec<_> = texts.iter().map(|t| t.as_ptr()).collect();
                (Payload { ss: pointers.as_ptr() }, Backing::Texts(texts, pointers))
            }
            _ => return None,
        };
        self._kept.push(kept);
        Some(abi::Value { kind, n, v })
    }
}

fn ints(items: &[Value]) -> Option<Vec<i64>> {
    let int = |v: &Value| match v {
        Value::Int(i) => Some(*i),
        Value::None => Some(abi::NO_NUMBER),
        _ => None,
    };
    items.iter().map(int).collect()
}
