//! Lists as texts: read and written as Python writes its literals, which is how a list parameter
//! stands in JSON. `('a', 'b,c')` is two strings, `((1, 2), (3,))` two shapes.

use super::value::Value;
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// Nesting of lists, at most.
const DEEPEST: usize = 8;

/// `text` in quotes, as Python's `repr` writes it.
pub fn quote(text: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write;
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(mark)?;
    for c in text.chars() {
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if c == mark || c == '\\' => write!(out, "\\{c}")?,
            c if c.is_control() => write!(out, "\\x{:02x}", c as u32)?,
            c => out.write_char(c)?,
        }
    }
    out.write_char(mark)
}

/// The items of a list or tuple in brackets: numbers, quoted strings, None, True, False, and such
/// lists.
pub fn parse_list(text: &str) -> Option<Vec<Value>> {
    let mut rest = text.trim().chars().peekable();
    let open = rest.next().filter(|c| matches!(c, '(' | '['))?;
    let items = items(&mut rest, open, 0)?;
    rest.next().is_none().then_some(items)
}

/// Parses the text between `open`, which was read before, and the bracket that closes it.
fn items(rest: &mut Peekable<Chars<'_>>, open: char, depth: usize) -> Option<Vec<Value>> {
    let close = if open == '(' { ')' } else { ']' };
    let mut found = Vec::new();
    loop {
        skip_spaces(rest);
        match *rest.peek()? {
            c if c == close => {
                rest.next();
                return Some(found);
            }
            c @ ('(' | '[') if depth < DEEPEST => {
                rest.next();
                found.push(Value::List(items(rest, c, depth + 1)?));
            }
            mark @ ('\'' | '"') => {
                rest.next();
                found.push(Value::Str(quoted(rest, mark)?));
            }
            _ => found.push(word(rest)?),
        }
        skip_spaces(rest);
        match *rest.peek()? {
            ',' => drop(rest.next()),
            c if c == close => {}
            _ => return None,
        }
    }
}

fn skip_spaces(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
}

/// A string up to the quotation mark `mark`, with Python's escapes.
fn quoted(rest: &mut Peekable<Chars<'_>>, mark: char) -> Option<String> {
    let mut text = String::new();
    loop {
        let c = match rest.next()? {
            c if c == mark => return Some(text),
            '\\' => match rest.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'x' => code_point(rest, 2)?,
                'u' => code_point(rest, 4)?,
                'U' => code_point(rest, 8)?,
                c @ ('\\' | '\'' | '"') => c,
                _ => return None,
            },
            c => c,
        };
        text.push(c);
    }
}

fn code_point(rest: &mut Peekable<Chars<'_>>, digits: usize) -> Option<char> {
    let hex: String = rest.take(digits).collect();
    u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32)
}

fn word(rest: &mut Peekable<Chars<'_>>) -> Option<Value> {
    let mut text = String::new();
    while let Some(c) = rest.next_if(|c| !matches!(c, ',' | ')' | ']' | '(' | '[')) {
        text.push(c);
    }
    match text.trim() {
        "None" => Some(Value::None),
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        number => Value::number(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> Value {
        Value::List(items.iter().map(|t| Value::from(*t)).collect())
    }

    #[test]
    fn what_is_written_is_read() {
        let values = [
            list(&[]),
            list(&["a"]),
            list(&["a, b", "it's", "\"", "'\"", "\\n", "\n\t\u{1}é", ""]),
            Value::List(vec![Value::from(&[1i64, 2][..]), Value::from(&[][..])]),
            Value::List(vec![Value::None, Value::Bool(true), Value::Int(-3), Value::Float(0.5)]),
        ];
        for value in values {
            assert_eq!(parse_list(&value.to_string()).map(Value::List), Some(value));
        }
    }

    #[test]
    fn other_texts_are_no_lists() {
        for text in ["", "a", "(", "(a)", "('a'", "('a' 'b')", "(1, 2]", "(,)", "(1) 2", "('\\q')"]
        {
            assert_eq!(parse_list(text), None, "{text}");
        }
        assert_eq!(parse_list(&"(".repeat(1_000_000)), None);
        assert_eq!(parse_list("[ 'a' , 'b' , ]").map(Value::List), Some(list(&["a", "b"])));
    }
}
