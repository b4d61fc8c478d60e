//! Names, text signature and documentation of operator functions: the same of `nd` and of `sym`.

use crate::operator::{OpDef, wrapped};
use std::fmt::Write;

/// The columns that documentation is wrapped to.
const WIDTH: usize = 88;

/// Returns true if the operator takes any number of arrays.
pub fn is_variadic(op: &OpDef) -> bool {
    op.key_var_num_args.is_some() || op.input_docs.iter().any(|d| d.ty.ends_with("[]"))
}

/// The array arguments of an operator, as its functions show them. `None` if it takes any number.
pub fn array_arguments(op: &OpDef) -> Vec<String> {
    if is_variadic(op) {
        return Vec::new();
    }
    if !op.input_docs.is_empty() {
        return op.input_docs.iter().map(|d| d.name.clone()).collect();
    }
    op.parse(&[]).map(|attrs| op.inputs(&attrs)).unwrap_or_default()
}

/// Appends an entry of the section of parameters.
fn document(text: &mut String, name: &str, ty: &str, doc: &str) {
    let _ = writeln!(text, "{name} : {ty}");
    for line in wrapped(doc, WIDTH - 4).lines() {
        let indent = if line.is_empty() { "" } else { "    " };
        let _ = writeln!(text, "{indent}{line}");
    }
}

/// Text signature and documentation of the function of an operator under `name`.
pub fn documentation(name: &str, op: &OpDef, symbol: bool) -> String {
    let arrays = array_arguments(op);
    let mut text = String::from(name);
    text.push('(');
    if is_variadic(op) {
        text.push_str("*data, ");
        let names = op.arguments.iter().map(|a| &a.name);
        for a in names.filter(|a| is_showable(a) && *a != "data") {
            let _ = write!(text, "{a}=None, ");
        }
    }
    text.push_str(&array_parameters(op, &arrays));
    let is_taken = |name: &String| arrays.contains(name) || is_variadic(op) && name == "data";
    for f in op.schema.fields.iter().filter(|f| is_showable(&f.name) && !is_taken(&f.name)) {
        if op.key_var_num_args.as_deref() != Some(&f.name) {
            let _ = write!(text, "{}=_Null, ", f.name);
        }
    }
    text.push_str(if symbol { "name=None, attr=None, out=None" } else { "out=None, name=None" });
    text.push_str(", **kwargs)\n--\n\n");
    text.push_str(&wrapped(&op.doc, WIDTH));
    text.push_str("\n\nParameters\n----------\n");
    for d in &op.input_docs {
        let ty = d.ty.replace("NDArray-or-Symbol", if symbol { "Symbol" } else { "NDArray" });
        document(&mut text, &d.name, &ty, &d.doc);
    }
    for f in &op.schema.fields {
        document(&mut text, &f.name, &f.info(), &f.doc);
    }
    if symbol {
        text.push_str("name : string, optional\n    Name of the resulting symbol.\n");
        text.push_str("\nReturns\n-------\nSymbol\n    The result symbol.\n");
    } else {
        text.push_str("out : NDArray, optional\n    The output NDArray to hold the result.\n");
        text.push_str(
            "\nReturns\n-------\nout : NDArray or list of NDArrays\n    The output of this \
             function.\n",
        );
    }
    text
}

/// The array arguments in a signature. One whose name Python cannot show has another there, and is
/// positional-only, as are those before it.
fn array_parameters(op: &OpDef, arrays: &[String]) -> String {
    let is_taken = |name: &String| arrays.contains(name) || op.has_param(name);
    let last = arrays.iter().rposition(|a| !is_showable(a));
    let mut text = String::new();
    for (i, a) in arrays.iter().enumerate() {
        let can_be_shown = is_showable(a) || is_showable(&format!("{a}_"));
        let mut shown = if can_be_shown { a.clone() } else { format!("array{i}") };
        while !is_showable(&shown) || shown != *a && is_taken(&shown) {
            shown.push('_');
        }
        let _ = write!(text, "{shown}=None, ");
        if last == Some(i) {
            text.push_str("/, ");
        }
    }
    text
}

/// Returns true if Python can show the name in a signature. Arguments named like keywords (`in`,
/// `lambda`) are passed by position or by `**`.
fn is_showable(name: &str) -> bool {
    const KEYWORDS: &str = " False None True and as assert async await break class continue def \
                            del elif else except finally for from global if import in is lambda \
                            nonlocal not or pass raise return try while with yield ";
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word)
        && name.starts_with(|c: char| !c.is_ascii_digit())
        && !KEYWORDS.contains(&format!(" {name} "))
}
