//! How many arrays each argument of a call has: the parameters that say so, and what they mean.

use super::abi;
use super::decl::{ArgDecl, NUM_ARGS, OUT_COUNTS, OpDecl};
use super::reading::MOST_ARRAYS;
use crate::error::{Error, Result};
use crate::operator::{ARG_COUNTS, Field, FieldType, Schema, Value, share_out};

/// The parameters: the attributes, then those that count arrays.
pub fn schema(op: &OpDecl) -> Schema {
    let mut fields: Vec<Field> = op.attrs.iter().map(|a| a.field.clone()).collect();
    let mut add = |name: &str, ty, default, doc: &str| {
        let (name, doc, default) = (name.to_owned(), doc.to_owned(), Some(default));
        fields.push(Field { name, ty, default, doc, range: (None, None) });
    };
    let none = || Value::List(Vec::new());
    if op.has_variable_inputs() {
        if op.count_attr.is_none() {
            add(NUM_ARGS, FieldType::Int, Value::Int(-1), "Number of input arrays.");
        }
        let doc = "Number of arrays of each input argument.";
        add(ARG_COUNTS, FieldType::Shape, none(), doc);
    }
    if op.has_variable_outputs() {
        let doc = "Number of arrays of each output argument; by default the least there can be.";
        add(OUT_COUNTS, FieldType::Shape, none(), doc);
    }
    Schema { fields, open: false }
}

/// The number of arrays of each argument, from the parameters that count them: an attribute, if the
/// operator names one, and those that follow the attributes.
pub fn counts(op: &OpDecl, attrs: &[Value], more: &[Value]) -> Result<[Vec<usize>; 2]> {
    let mut values = more.iter();
    let least = |args: &[ArgDecl]| args.iter().map(ArgDecl::least).collect::<Vec<_>>();
    let mut inputs = least(&op.inputs);
    if op.has_variable_inputs() {
        let total = match &op.count_attr {
            None => values.next(),
            Some(count) => {
                let at = op.attrs.iter().position(|a| a.field.name == *count);
                at.and_then(|i| attrs.get(i)).filter(|n| **n != Value::Int(0))
            }
        };
        let total = match total {
            Some(Value::Int(n)) if *n >= 0 => Some(*n as usize),
            _ => None,
        };
        inputs = match (listed(values.next()), total) {
            (Some(counts), _) => check_counts(ARG_COUNTS, &op.inputs, counts)?,
            (None, Some(total)) => {
                let args = op.counted_inputs();
                share_out("the inputs", &args.iter().collect::<Vec<_>>(), total)?
            }
            (None, None) => inputs,
        };
    }
    let mut outputs = least(&op.outputs);
    if op.has_variable_outputs()
        && let Some(counts) = listed(values.next())
    {
        outputs = check_counts(OUT_COUNTS, &op.outputs, counts)?;
    }
    Ok([inputs, outputs])
}

/// A list of counts; an empty one says nothing.
fn listed(value: Option<&Value>) -> Option<Vec<i64>> {
    let Some(Value::List(items)) = value else { return None };
    let int = |v: &Value| if let Value::Int(i) = v { Some(*i) } else { None };
    items.iter().map(int).collect::<Option<Vec<_>>>().filter(|counts| !counts.is_empty())
}

fn check_counts(what: &str, args: &[ArgDecl], counts: Vec<i64>) -> Result<Vec<usize>> {
    if counts.len() != args.len() {
        let names: Vec<_> = args.iter().map(|a| a.name.as_str()).collect();
        return Err(Error::value(format!(
            "invalid {what} of {} counts: expected {}: {}",
            counts.len(),
            args.len(),
            names.join(", ")
        )));
    }
    let one = |(arg, n): (&ArgDecl, i64)| {
        let fits = |n: usize| {
            n == arg.count
                || (n == 0 && arg.has(abi::OPTIONAL))
                || (n > arg.count && n <= MOST_ARRAYS as usize && arg.has(abi::AT_LEAST))
        };
        let bound = if arg.has(abi::AT_LEAST) { "at least " } else { "" };
        let absent = if arg.has(abi::OPTIONAL) { " or none" } else { "" };
        usize::try_from(n).ok().filter(|n| fits(*n)).ok_or_else(|| {
            let name = &arg.name;
            Error::value(format!(
                "argument '{name}' has {n} arrays, expected {bound}{}{absent}",
                arg.count
            ))
        })
    };
    args.iter().zip(counts).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(name: &str, count: usize, flags: u32) -> ArgDecl {
        ArgDecl { name: name.into(), doc: String::new(), count, flags }
    }

    #[test]
    fn counts_fit_their_arguments() {
        let args = [arg("x", 1, 0), arg("b", 1, abi::OPTIONAL), arg("more", 2, abi::AT_LEAST)];
        let says = |result: Result<Vec<usize>>, want: &str| {
            let message = result.unwrap_err().message().to_owned();
            assert!(message.contains(want), "{message}");
        };
        says(check_counts("arg_counts", &args, vec![1, 1]), "expected 3: x, b, more");
        says(check_counts("arg_counts", &args, vec![1, 2, 2]), "expected 1 or none");
        says(check_counts("arg_counts", &args, vec![-1, 1, 2]), "'x' has -1 arrays, expected 1");
        assert_eq!(check_counts("arg_counts", &args, vec![1, 0, 5]).unwrap(), [1, 0, 5]);
    }
}
