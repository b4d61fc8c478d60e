//! Parameter values as they come from the faces, and the types that parameters may have.
//!
//! A face hands over a [`Value`]: text (from JSON and old programs, where every parameter is a
//! string) or the plain value a program wrote. [`FieldType::coerce`] turns it into the one normal
//! form of the field's type, or says what was expected. The rules are those of dmlc parameters, see
//! `coerce`.

use super::literal::{parse_list, quote};
use crate::dtype::DType;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// A parameter's value before or after [`FieldType::coerce`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A number above the greatest `Int`, and only such a one.
    UInt(u64),
    Float(f64),
    Str(String),
    List(Vec<Value>),
}

impl Value {
    /// The same in kind and bits: unlike `==`, NaN is identical to itself and 0.0 is not to -0.0.
    pub fn is_identical(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_identical(b))
            }
            _ => self == other,
        }
    }

    /// The number that a text writes: an integer exactly, anything else as a float.
    pub fn number(text: &str) -> Option<Value> {
        let integer = text.parse().ok().map(Value::Int);
        let integer = integer.or_else(|| text.parse().ok().map(Value::UInt));
        integer.or_else(|| text.parse().ok().map(Value::Float))
    }

    /// How two numbers compare, as exact as Python compares an integer with a float; `None` for a
    /// NaN and for values that are not numbers.
    pub fn order(&self, other: &Value) -> Option<Ordering> {
        match (self, other, self.whole(), other.whole()) {
            (_, _, Some(a), Some(b)) => Some(a.cmp(&b)),
            (Value::Float(a), Value::Float(b), ..) => a.partial_cmp(b),
            (_, Value::Float(b), Some(a), _) => integer_to_float(a, *b),
            (Value::Float(a), _, _, Some(b)) => integer_to_float(b, *a).map(Ordering::reverse),
            _ => None,
        }
    }

    fn whole(&self) -> Option<i128> {
        match self {
            Value::Int(i) => Some((*i).into()),
            Value::UInt(i) => Some((*i).into()),
            _ => None,
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Value::Int(_) | Value::UInt(_) | Value::Float(_))
    }

    /// Equal as in Python: numbers whatever their types, lists item by item.
    pub fn equals(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b))
            }
            (a, b) if a.is_number() && b.is_number() => a.order(b) == Some(Ordering::Equal),
            _ => self == other,
        }
    }
}

fn integer_to_float(i: i128, x: f64) -> Option<Ordering> {
    const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
    match x {
        x if x.is_nan() => None,
        x if x >= TWO_TO_64 => Some(Ordering::Less),
        x if x < -TWO_TO_64 => Some(Ordering::Greater),
        x => Some(i.cmp(&(x.trunc() as i128)).then(0.0.partial_cmp(&x.fract())?)),
    }
}

/// As Python's `str` writes it, which is how parameters stand in JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(i) => write!(f, "{i}"),
            Value::UInt(i) => write!(f, "{i}"),
            Value::Float(x) if x.is_finite() && x.fract() == 0.0 && x.abs() < 1e16 => {
                write!(f, "{x:.1}")
            }
            Value::Float(x) if x.is_nan() => f.write_str("nan"),
            Value::Float(x) if x.is_infinite() => {
                f.write_str(if *x > 0.0 { "inf" } else { "-inf" })
            }
            Value::Float(x) => write!(f, "{x:?}"),
            Value::Str(s) => f.write_str(s),
            Value::List(items) => {
                f.write_str("(")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    match item {
                        Value::Str(text) => quote(text, f)?,
                        item => write!(f, "{item}")?,
                    }
                }
                f.write_str(if items.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

macro_rules! value_from {
    ($($t:ty => $variant:ident as $as:ty),*) => {$(
        impl From<$t> for Value { fn from(v: $t) -> Value { Value::$variant(v as $as) } }
    )*};
}
value_from!(bool => Bool as bool, i32 => Int as i64, i64 => Int as i64, u32 => Int as i64,
            usize => Int as i64, f32 => Float as f64, f64 => Float as f64);

impl From<u64> for Value {
    fn from(v: u64) -> Value {
        i64::try_from(v).map_or(Value::UInt(v), Value::Int)
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::Str(v.to_owned())
    }
}

impl From<&[i64]> for Value {
    fn from(v: &[i64]) -> Value {
        Value::List(v.iter().map(|&d| Value::Int(d)).collect())
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldType {
    Bool,
    Int,
    UInt,
    Long,
    ULong,
    Float,
    Double,
    Str,
    /// A tuple of integers.
    Shape,
    /// A tuple of integers, any of which may be `None`.
    OptIntTuple,
    FloatTuple,
    /// A tuple of strings, shapes, integers or enums.
    List(Box<FieldType>),
    /// One of these texts.
    Enum(Vec<String>),
    /// `None` or the inner type.
    Optional(Box<FieldType>),
}

/// The text names of every dtype a parameter can name.
pub fn dtype_names() -> Vec<String> {
    DType::ALL.iter().map(|d| d.name().to_owned()).collect()
}

impl FieldType {
    /// Whether its values are the names of all dtypes.
    pub fn is_dtype(&self) -> bool {
        match self {
            FieldType::Enum(names) => *names == dtype_names(),
            FieldType::Optional(inner) => inner.is_dtype(),
            _ => false,
        }
    }

    /// Whether its values are texts.
    pub fn is_text(&self) -> bool {
        match self {
            FieldType::Str | FieldType::Enum(_) => true,
            FieldType::Optional(inner) => inner.is_text(),
            _ => false,
        }
    }

    /// The name shown in docs and errors: `int`, `int (non-negative)`, `Shape(tuple)`, `{'a', 'b'}`
    /// ...
    pub fn display(&self) -> String {
        match self {
            FieldType::Bool => "boolean".into(),
            FieldType::Int => "int".into(),
            FieldType::UInt => "int (non-negative)".into(),
            FieldType::Long => "long".into(),
            FieldType::ULong => "long (non-negative)".into(),
            FieldType::Float => "float".into(),
            FieldType::Double => "double".into(),
            FieldType::Str => "string".into(),
            FieldType::Shape | FieldType::OptIntTuple => "Shape(tuple)".into(),
            FieldType::FloatTuple => "tuple of <float>".into(),
            FieldType::List(inner) => format!("tuple of <{}>", inner.display()),
            FieldType::Enum(keys) => quoted(keys, false),
            FieldType::Optional(inner) => match &**inner {
                FieldType::Shape => "Shape or None".into(),
                FieldType::Enum(keys) => quoted(keys, true),
                other => format!("{} or None", other.display()),
            },
        }
    }

    /// `value` in the normal form of this type, or `None` when it does not fit.
    ///
    /// Text follows dmlc: booleans `true`/`false` in any case, `1`, `0`; decimal integers with
    /// optional sign and surrounding spaces; floats as C's `strtod` without hexadecimals, an
    /// optional trailing `f`; shapes `(1, 2)`, `[1,2]`, `(3L,)`, a bare `3`, `()`; `None` for
    /// optional types. Lists of strings and of shapes, which dmlc does not have, are Python
    /// literals; of numbers, a bare one is a list.
    pub fn coerce(&self, value: &Value) -> Option<Value> {
        match (self, value) {
            (FieldType::Optional(_), Value::None) => Some(Value::None),
            (FieldType::Optional(inner), Value::Str(s)) if is_none(s, inner) => Some(Value::None),
            (FieldType::Optional(inner), v) => inner.coerce(v),
            (FieldType::Bool, Value::Bool(_)) => Some(value.clone()),
            (FieldType::Bool, Value::Int(i @ (0 | 1))) => Some(Value::Bool(*i == 1)),
            (FieldType::Bool, Value::Str(s)) => parse_bool(s).map(Value::Bool),
            (FieldType::Int, v) => integer(v, i32::MIN as i64, i32::MAX as i64),
            (FieldType::UInt, v) => integer(v, 0, u32::MAX as i64),
            (FieldType::Long, v) => integer(v, i64::MIN, i64::MAX),
            (FieldType::ULong, v) => integer(v, 0, i64::MAX).or_else(|| large(v)),
            (FieldType::Double, v) => float(v),
            (FieldType::Float, v) => float(v).filter(fits_float),
            (FieldType::Str, Value::Str(_)) => Some(value.clone()),
            (FieldType::Str, Value::List(_)) => None,
            (FieldType::Str, v) => Some(Value::Str(v.to_string())),
            (FieldType::Shape, v) => list(v, &|v| integer(v, i64::MIN, i64::MAX)),
            (FieldType::OptIntTuple, v) => list(v, &|v| match v {
                Value::None => Some(Value::None),
                Value::Str(s) if s.trim() == "None" => Some(Value::None),
                v => integer(v, i64::MIN, i64::MAX),
            }),
            (FieldType::FloatTuple, v) => list(v, &|v| float(v).filter(fits_float)),
            (FieldType::List(inner), Value::List(items)) => {
                let item = |v| inner.item(v);
                items.iter().map(item).collect::<Option<_>>().map(Value::List)
            }
            (FieldType::List(inner), Value::Str(text)) => match parse_list(text) {
                Some(items) => self.coerce(&Value::List(items)),
                None if inner.is_number() => Some(Value::List(vec![inner.coerce(value)?])),
                None => None,
            },
            (FieldType::List(inner), Value::Int(_) | Value::Float(_)) => {
                Some(Value::List(vec![inner.item(value)?]))
            }
            (FieldType::Enum(keys), Value::Str(s)) => keys.contains(s).then(|| value.clone()),
            (FieldType::Enum(keys), Value::Int(i)) => {
                let text = i.to_string();
                keys.contains(&text).then_some(Value::Str(text))
            }
            _ => None,
        }
    }

    fn is_number(&self) -> bool {
        use FieldType::{Double, Float, Int, Long, UInt, ULong};
        matches!(self, Int | UInt | Long | ULong | Float | Double)
    }

    /// A value of this type as kernels in C read it: a `float` in single precision.
    pub fn in_its_precision<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        match (self, value) {
            (FieldType::Optional(inner), v) => inner.in_its_precision(v),
            (FieldType::Float | FieldType::FloatTuple, Value::List(items)) => {
                let rounded = items.iter().map(|v| self.in_its_precision(v).into_owned());
                Cow::Owned(Value::List(rounded.collect()))
            }
            (FieldType::Float | FieldType::FloatTuple, v) => match float(v) {
                Some(Value::Float(x)) => Cow::Owned(Value::Float(f64::from(x as f32))),
                _ => Cow::Borrowed(v),
            },
            _ => Cow::Borrowed(value),
        }
    }

    /// As [`FieldType::coerce`] for an item of a list, which must be of the item's kind as it
    /// stands.
    fn item(&self, value: &Value) -> Option<Value> {
        let fits = match self {
            FieldType::Str | FieldType::Enum(_) => matches!(value, Value::Str(_)),
            FieldType::Shape => matches!(value, Value::List(_)),
            _ => !matches!(value, Value::Str(_)),
        };
        if fits { self.coerce(value) } else { None }
    }
}

fn quoted(keys: &[String], none: bool) -> String {
    let mut keys: Vec<_> = keys.iter().map(|k| format!("'{k}'")).collect();
    keys.sort();
    if none {
        keys.insert(0, "None".into());
    }
    format!("{{{}}}", keys.join(", "))
}

fn is_none(text: &str, inner: &FieldType) -> bool {
    text == "None" || (*inner == FieldType::Bool && text.eq_ignore_ascii_case("none"))
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn integer(value: &Value, low: i64, high: i64) -> Option<Value> {
    let i = match value {
        Value::Int(i) => *i,
        Value::Str(s) => s.trim().parse().ok()?,
        _ => return None,
    };
    (low..=high).contains(&i).then_some(Value::Int(i))
}

/// An integer of 64 bits that an `i64` cannot hold.
fn large(value: &Value) -> Option<Value> {
    match value {
        Value::UInt(_) => Some(value.clone()),
        Value::Str(s) => s.trim().parse::<u64>().ok().map(Value::from),
        _ => None,
    }
}

fn float(value: &Value) -> Option<Value> {
    let x = match value {
        Value::Float(x) => *x,
        Value::Int(i) => *i as f64,
        Value::UInt(i) => *i as f64,
        Value::Str(s) => {
            let s = s.trim_start();
            let body = match s.strip_suffix(['f', 'F']) {
                Some(rest) if !rest.to_ascii_lowercase().ends_with("in") => rest,
                _ => s,
            };
            let x: f64 = body.parse().ok()?;
            let names_infinity = body.to_ascii_lowercase().contains("inf");
            if x.is_infinite() && !names_infinity {
                return None;
            }
            x
        }
        _ => return None,
    };
    Some(Value::Float(x))
}

/// Returns true if the number is finite in single precision too, or was infinite to begin with.
fn fits_float(value: &Value) -> bool {
    !matches!(value, Value::Float(x) if x.is_finite() && (*x as f32).is_infinite())
}

fn list(value: &Value, item: &dyn Fn(&Value) -> Option<Value>) -> Option<Value> {
    match value {
        Value::List(items) => items.iter().map(item).collect::<Option<_>>().map(Value::List),
        Value::Int(_) | Value::Float(_) => Some(Value::List(vec![item(value)?])),
        Value::Str(text) => {
            let text = text.trim();
            let open = text.starts_with(['(', '[']);
            if !open {
                return (!text.is_empty() && !text.contains(','))
                    .then(|| item(&Value::Str(text.to_owned())).map(|v| Value::List(vec![v])))?;
            }
            let inner = text[1..].strip_suffix(if text.starts_with('(') { ')' } else { ']' })?;
            let inner = inner.trim();
            let inner = inner.strip_suffix(',').unwrap_or(inner).trim_end();
            if inner.is_empty() {
                return Some(Value::List(vec![]));
            }
            inner
                .split(',')
                .map(|part| {
                    let part = part.trim();
                    let part = part.strip_suffix(['L', 'l']).unwrap_or(part);
                    item(&Value::Str(part.to_owned()))
                })
                .collect::<Option<_>>()
                .map(Value::List)
        }
        _ => None,
    }
}

/// A tuple of integers, as parameters like `kernel` hold it.
pub type Tuple = SmallVec<[i64; 5]>;

/// A Rust type that a parameter can have. `from_value` gets values in normal form only.
pub trait ParamType: Sized {
    fn field_type() -> FieldType;
    fn from_value(value: &Value) -> Option<Self>;
    fn to_value(&self) -> Value;
}

macro_rules! param_type {
    ($($t:ty, $field:expr, $value:ident => $from:expr, $this:ident => $to:expr;)*) => {$(
        impl ParamType for $t {
            fn field_type() -> FieldType { $field }
            fn from_value($value: &Value) -> Option<Self> { $from }
            fn to_value(&self) -> Value { let $this = self; $to }
        }
    )*};
}

fn as_int(value: &Value) -> Option<i64> {
    if let Value::Int(i) = value { Some(*i) } else { None }
}

fn as_float(value: &Value) -> Option<f64> {
    if let Value::Float(x) = value { Some(*x) } else { None }
}

param_type! {
    bool, FieldType::Bool, v => if let Value::Bool(b) = v { Some(*b) } else { None }, x => Value::Bool(*x);
    i32, FieldType::Int, v => as_int(v)?.try_into().ok(), x => Value::Int(*x as i64);
    u32, FieldType::UInt, v => as_int(v)?.try_into().ok(), x => Value::Int(*x as i64);
    i64, FieldType::Long, v => as_int(v), x => Value::Int(*x);
    u64, FieldType::ULong, v => if let Value::UInt(i) = v { Some(*i) } else { as_int(v)?.try_into().ok() },
        x => Value::from(*x);
    f32, FieldType::Float, v => as_float(v).map(|x| x as f32), x => Value::Float(*x as f64);
    f64, FieldType::Double, v => as_float(v), x => Value::Float(*x);
    String, FieldType::Str, v => if let Value::Str(s) = v { Some(s.clone()) } else { None }, x => Value::Str(x.clone());
    Tuple, FieldType::Shape, v => if let Value::List(l) = v { l.iter().map(as_int).collect() } else { None },
        x => Value::List(x.iter().map(|&d| Value::Int(d)).collect());
    Vec<f32>, FieldType::FloatTuple, v => if let Value::List(l) = v { l.iter().map(|v| as_float(v).map(|x| x as f32)).collect() } else { None },
        x => Value::List(x.iter().map(|&d| Value::Float(d as f64)).collect());
    Vec<Option<i64>>, FieldType::OptIntTuple,
        v => if let Value::List(l) = v { Some(l.iter().map(as_int).collect()) } else { None },
        x => Value::List(x.iter().map(|d| d.map_or(Value::None, Value::Int)).collect());
    Vec<Tuple>, FieldType::List(Box::new(FieldType::Shape)),
        v => if let Value::List(l) = v { l.iter().map(Tuple::from_value).collect() } else { None },
        x => Value::List(x.iter().map(Tuple::to_value).collect());
    DType, FieldType::Enum(dtype_names()),
        v => if let Value::Str(s) = v { DType::from_name(s).ok() } else { None }, x => Value::Str(x.name().into());
}

impl<T: ParamType> ParamType for Option<T> {
    fn field_type() -> FieldType {
        FieldType::Optional(Box::new(T::field_type()))
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::None => Some(None),
            v => T::from_value(v).map(Some),
        }
    }

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::None, T::to_value)
    }
}

/// Declares an enum whose variants are parameter texts.
///
/// ```
/// rsnet::param_enum! { pub enum PoolType { Max = "max", Avg = "avg" } }
/// ```
#[macro_export]
macro_rules! param_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($variant),* }
        impl $crate::operator::ParamType for $name {
            fn field_type() -> $crate::operator::FieldType {
                $crate::operator::FieldType::Enum(vec![$($text.to_owned()),*])
            }
            fn from_value(value: &$crate::operator::Value) -> Option<Self> {
                match value {
                    $($crate::operator::Value::Str(s) if s == $text => Some($name::$variant),)*
                    _ => None,
                }
            }
            fn to_value(&self) -> $crate::operator::Value {
                $crate::operator::Value::Str(match self { $($name::$variant => $text),* }.to_owned())
            }
        }
    };
}

#[cfg(test)]
mod tests;
