//! Typed, documented operator parameters: the schema, parsing with its errors, and the macro by
//! which built-in operators declare theirs.

use super::value::{FieldType, Value, dtype_names};
use crate::error::{self, Error, Result};
use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

/// One parameter.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub ty: FieldType,
    /// `None`: the parameter is required.
    pub default: Option<Value>,
    pub doc: String,
    /// Smallest and largest value allowed, both inclusive.
    pub range: (Option<f64>, Option<f64>),
}

impl Field {
    /// `int, required` or `int, optional, default=1`, as docs and errors show it.
    pub fn info(&self) -> String {
        let ty = self.ty.display();
        match &self.default {
            None => format!("{ty}, required"),
            Some(v) => {
                let is_enum = ty.starts_with('{');
                format!("{ty},{}optional, default={}", if is_enum { "" } else { " " }, shown(v))
            }
        }
    }

    fn check(&self, value: &Value) -> Result<()> {
        let (low, high) = self.range;
        if low.is_none() && high.is_none() {
            return Ok(());
        }
        let own = self.ty.in_its_precision(value);
        let is = |order, bound: f64| {
            own.order(&self.ty.in_its_precision(&Value::Float(bound))) == Some(order)
        };
        let is_nan = matches!(value, Value::Float(x) if x.is_nan());
        if !is_nan
            && low.is_none_or(|l| !is(Ordering::Less, l))
            && high.is_none_or(|h| !is(Ordering::Greater, h))
        {
            return Ok(());
        }
        let is_single = match &self.ty {
            FieldType::Optional(inner) => **inner == FieldType::Float,
            ty => *ty == FieldType::Float,
        };
        let shown = |bound: f64| match is_single {
            true => (bound as f32).to_string(),
            false => bound.to_string(),
        };
        let limit = match (low, high) {
            (Some(l), Some(h)) => format!("{} to {}", shown(l), shown(h)),
            (Some(l), None) => format!("at least {}", shown(l)),
            (_, h) => format!("at most {}", shown(h.unwrap_or_default())),
        };
        let meaning = match self.doc.trim().lines().next() {
            Some(line) => format!(" ({})", line.trim_end_matches('.')),
            None => String::new(),
        };
        let value = error::shown(value);
        let text = format!("invalid {} '{value}': expected {limit}{meaning}", self.name);
        Err(Error::parameter(text))
    }

    /// `given` in the normal form of the field's type, within its range.
    pub fn parse(&self, given: &Value) -> Result<Value> {
        let value = self.ty.coerce(given).or_else(|| self.absent(given));
        let value = value.ok_or_else(|| Error::parameter(self.refusal(given)))?;
        self.check(&value)?;
        Ok(value)
    }

    /// The meaning of `None` where the type has no such value: the default of a tuple or a dtype,
    /// and for a required dtype float64, as in NumPy.
    fn absent(&self, given: &Value) -> Option<Value> {
        match given {
            Value::None => {}
            Value::Str(text) if text == "None" => {}
            _ => return None,
        }
        match &self.ty {
            FieldType::Shape | FieldType::OptIntTuple => self.default.clone(),
            FieldType::Enum(names) if *names == dtype_names() => {
                self.default.clone().or_else(|| Some(Value::Str("float64".into())))
            }
            _ => None,
        }
    }

    /// What a value of the type is, for errors.
    pub fn expected(&self) -> String {
        let (inner, or_none) = match &self.ty {
            FieldType::Optional(t) => (&**t, " or None"),
            ty => (ty, ""),
        };
        let FieldType::Enum(names) = inner else { return self.ty.display() };
        let is_other = |name: &&String| or_none.is_empty() || *name != "None";
        let names: Vec<&str> = names.iter().filter(is_other).map(String::as_str).collect();
        format!("one of: {}{or_none}", names.join(", "))
    }

    /// The message for a `given` that does not fit the type.
    fn refusal(&self, given: &Value) -> String {
        let inner = match &self.ty {
            FieldType::Optional(inner) => inner,
            ty => ty,
        };
        let lacks = match (inner, given) {
            (FieldType::Float | FieldType::Double, Value::Str(text)) => float_refusal(text),
            (FieldType::Float, Value::Float(_) | Value::Int(_)) => {
                Some(" within its range".to_owned())
            }
            _ => None,
        };
        let expected = self.expected() + &lacks.unwrap_or_default();
        format!("invalid {} '{}': expected {expected}", self.name, error::shown(given))
    }
}

/// What a text that begins like a float lacks: an end after the number, or a number within range.
fn float_refusal(text: &str) -> Option<String> {
    let text = text.trim_start();
    let as_float = |t: &str| t.parse::<f64>().ok();
    if as_float(text).is_some() {
        return Some(" within its range".to_owned());
    }
    let ends = text.char_indices().map(|(i, _)| i).rev();
    let cut = ends.into_iter().find(|&i| i > 0 && as_float(&text[..i]).is_some())?;
    Some(format!(" without '{}'", error::shown(&text[cut..])))
}

/// A default as docs show it: booleans as 0/1, texts quoted, tuples as `[1,2]`.
fn shown(value: &Value) -> String {
    match value {
        Value::Bool(b) => (*b as u8).to_string(),
        Value::Str(s) => format!("'{s}'"),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("[{}]", items.join(","))
        }
        Value::Float(x) => shown_float(*x),
        other => other.to_string(),
    }
}

/// The digits that single precision tells apart, or more where it cannot hold the number.
fn shown_float(x: f64) -> String {
    let single = x as f32;
    if single.is_finite() && (single != 0.0 || x == 0.0) {
        format!("{single}")
    } else {
        format!("{x:e}")
    }
}

/// All parameters of an operator, in documented order.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub fields: Vec<Field>,
    /// True if parameters other than these fields are allowed, which the operator reads as given.
    pub open: bool,
}

impl Schema {
    /// Parses `given` into one value per field, in order of the fields.
    ///
    /// Names of the form `__x__` are ignored (they are node attributes). An unknown name, a value
    /// that does not fit its type or range, and a missing required parameter are errors.
    pub fn parse(&self, given: &[(&str, Value)]) -> Result<Vec<Value>> {
        let mut values: Vec<Option<Value>> = vec![None; self.fields.len()];
        for (name, value) in given {
            match self.fields.iter().position(|f| f.name == *name) {
                Some(i) => values[i] = Some(self.fields[i].parse(value)?),
                None if self.open || is_hidden(name) => {}
                None => return Err(Error::parameter(self.unknown(name))),
            }
        }
        self.fields
            .iter()
            .zip(values)
            .map(|(field, value)| {
                value.or_else(|| field.default.clone()).ok_or_else(|| {
                    let (name, ty) = (&field.name, field.ty.display());
                    Error::parameter(format!("missing parameter '{name}': expected {ty}"))
                })
            })
            .collect()
    }

    /// The error for a name that no field has: the nearest one, and the names of all.
    fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.fields.iter().map(|f| f.name.as_str()).collect();
        let hint = nearest(name, &names).map(|n| format!("did you mean '{n}'? "));
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let (name, hint) = (error::shown(name), hint.unwrap_or_default());
        format!("unknown parameter '{name}': {hint}expected one of: {known}")
    }
}

/// The name that is most like `name`, if at most a third of its letters differ.
fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let most = name.chars().count().div_ceil(3).min(3);
    let by_distance = names.iter().map(|n| (edits(name, n), *n));
    by_distance.filter(|(distance, _)| *distance <= most).min().map(|(_, n)| n)
}

/// The Levenshtein distance of two texts.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(256).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Returns true if `name` is a node attribute (`__lr_mult__`) rather than a parameter.
pub fn is_hidden(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}

/// A parameter struct of a built-in operator; implemented by [`params!`](crate::params).
pub trait ParamStruct: Any + Send + Sync + Sized {
    fn schema() -> Schema;
    /// From values in normal form, one per field in order.
    fn from_values(values: &[Value]) -> Option<Self>;
}

/// The parsed parameters of a call: values in normal form and, for built-in operators, the typed
/// struct.
#[derive(Clone)]
pub struct Attrs {
    schema: Arc<Schema>,
    values: Arc<[Value]>,
    typed: Arc<dyn Any + Send + Sync>,
    /// The parameters that were given, as given; what JSON stores.
    given: Arc<[(String, Value)]>,
    /// The graphs that the node holds, of a type of the graph's.
    bodies: Option<Arc<dyn Any + Send + Sync>>,
}

impl Attrs {
    pub fn new(
        schema: Arc<Schema>,
        values: Vec<Value>,
        typed: Arc<dyn Any + Send + Sync>,
        given: Vec<(String, Value)>,
    ) -> Self {
        Attrs { schema, values: values.into(), typed, given: given.into(), bodies: None }
    }

    /// The same parameters for a node that holds graphs.
    pub fn with_bodies(self, bodies: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Attrs { bodies, ..self }
    }

    /// The graphs that the node holds; see `graph::bodies`.
    pub fn bodies(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.bodies.as_ref()
    }

    /// The typed struct; panics if the operator was registered with another one.
    pub fn get<P: 'static>(&self) -> &P {
        self.typed.downcast_ref().expect("an operator reads the parameter struct it registered")
    }

    /// The typed payload, whatever it is (a Python object for operators from Python).
    pub fn typed(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.typed
    }

    /// The value of parameter `name` in normal form.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.field(name).map(|(_, value)| value)
    }

    /// Parameter `name` and its value in normal form.
    pub fn field(&self, name: &str) -> Option<(&Field, &Value)> {
        self.schema.fields.iter().zip(self.values.iter()).find(|(field, _)| field.name == name)
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub fn values(&self) -> &[Value] {
        &self.values
    }

    pub fn given(&self) -> &[(String, Value)] {
        &self.given
    }
}

/// Declares the parameters of a built-in operator: a struct with one documented field a parameter.
///
/// ```
/// use rsnet::operator::{ParamStruct, Schema, Value};
/// rsnet::params! {
///     /// Parameters of `clip`.
///     pub struct ClipParam {
///         a_min: f32, required, "Least value.";
///         a_max: f32, required, "Largest value.";
///         times: u32, default(1).ge(1.0), "How often.";
///     }
/// }
/// let values = ClipParam::schema().parse(&[("a_min", "0".into()), ("a_max", 1.0.into())]).unwrap();
/// assert_eq!(ClipParam::from_values(&values).unwrap().a_max, 1.0);
/// ```
#[macro_export]
macro_rules! params {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($field:ident : $ty:ty, $kind:ident $(($default:expr))? $(.$range:ident($($bound:expr),*))*, $doc:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        #[allow(dead_code)] // some parameters are accepted for compatibility only
        $vis struct $name { $(#[doc = $doc] pub $field: $ty),* }
        impl $crate::operator::ParamStruct for $name {
            fn schema() -> $crate::operator::Schema {
                #[allow(unused_imports)] // a struct without fields uses none of them
                use $crate::operator::{Field, ParamType, field_default};
                $crate::operator::Schema { open: false, fields: vec![$(
                    Field {
                        name: stringify!($field).trim_start_matches("r#").to_owned(),
                        ty: <$ty as ParamType>::field_type(),
                        default: field_default!($ty, $kind $(($default))?),
                        doc: $doc.to_owned(),
                        range: (None, None),
                    }$(.$range($($bound),*))*
                ),*] }
            }
            #[allow(unused_variables, unused_mut)] // a struct without fields
            fn from_values(values: &[$crate::operator::Value]) -> Option<Self> {
                let mut values = values.iter();
                Some($name { $($field: $crate::operator::ParamType::from_value(values.next()?)?),* })
            }
        }
    };
}

/// The default of a field in [`params!`](crate::params).
#[doc(hidden)]
#[macro_export]
macro_rules! field_default {
    ($ty:ty, required) => {
        None
    };
    ($ty:ty, default($value:expr)) => {{
        let value: $ty = $value;
        Some($crate::operator::ParamType::to_value(&value))
    }};
}
pub use field_default;

impl Field {
    /// Least value allowed.
    pub fn ge(mut self, low: f64) -> Self {
        self.range.0 = Some(low);
        self
    }

    /// Largest value allowed.
    pub fn le(mut self, high: f64) -> Self {
        self.range.1 = Some(high);
        self
    }
}

/// No parameters at all. Operators declared with it ignore unknown keywords, as MXNet's do.
#[derive(Clone, Debug)]
pub struct NoParam;

impl ParamStruct for NoParam {
    fn schema() -> Schema {
        Schema::default()
    }

    fn from_values(_: &[Value]) -> Option<Self> {
        Some(NoParam)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(ty: FieldType) -> Field {
        Field { name: "p".into(), ty, default: None, doc: "Doc.".into(), range: (None, None) }
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let says = |f: &Field, text: &str, want: &str| {
            let message = f.parse(&text.into()).unwrap_err().message().to_owned();
            assert!(message.contains(want), "{message}");
        };
        says(&field(FieldType::Float), "1x", "invalid p '1x': expected float without 'x'");
        says(&field(FieldType::Float), "1e400", "expected float within its range");
        says(&field(FieldType::Int), "3.5", "invalid p '3.5': expected int");
        let e = field(FieldType::Enum(vec!["b".into(), "a".into()]));
        says(&e, "c", "invalid p 'c': expected one of: b, a");
        let range = field(FieldType::Int).ge(1.0).le(3.0);
        says(&range, "4", "invalid p '4': expected 1 to 3 (Doc)");
        let without_doc = Field { doc: String::new(), ..field(FieldType::Int).ge(1.0) };
        let refused = without_doc.parse(&Value::Int(0)).unwrap_err();
        assert_eq!(refused.message(), "invalid p '0': expected at least 1");
    }

    #[test]
    fn open_schemas_let_unknown_names_pass() {
        let mut schema = Schema { fields: vec![field(FieldType::Int)], open: true };
        let given = [("p", Value::Int(1)), ("q", Value::Int(2))];
        assert_eq!(schema.parse(&given).unwrap(), vec![Value::Int(1)]);
        schema.open = false;
        assert!(schema.parse(&given).unwrap_err().message().contains("unknown parameter 'q'"));
    }
}
