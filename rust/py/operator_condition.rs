//! The conditions under which a kernel defined in Python is chosen.

use super::convert::DEVICES;
use super::error::{invalid, quoted, to_py};
use crate::context::DeviceType;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Compare, Match};
use pyo3::prelude::*;

/// A condition as tuples: `("device", "cpu")`, `("dtype", arg, [names])`, `("attr", name, op,
/// text)`, `("rank", arg, op, n)`, `("and" | "or", a, b)`, `("not", a)`, `("always",)`.
pub fn match_from_py(m: &Bound<'_, PyAny>) -> PyResult<Match> {
    let bad = |what: String| pyo3::exceptions::PyValueError::new_err(what);
    let part = |i: usize| m.get_item(i);
    let boxed = |i: usize| -> PyResult<Box<Match>> { Ok(Box::new(match_from_py(&part(i)?)?)) };
    let compare = |i: usize| -> PyResult<Compare> {
        let text: String = part(i)?.extract()?;
        Compare::from_text(&text).ok_or_else(|| {
            bad(invalid("comparison", quoted(&text), "one of: <, <=, >, >=, ==, !="))
        })
    };
    let kind: String = part(0)?.extract()?;
    Ok(match kind.as_str() {
        "always" => Match::Always,
        "device" => {
            let name: String = part(1)?.extract()?;
            let device = DeviceType::from_name(&name);
            Match::Device(device.ok_or_else(|| bad(invalid("device", quoted(&name), DEVICES)))?)
        }
        "dtype" => {
            let names: Vec<String> = part(2)?.extract()?;
            let types = names.iter().map(|n| DType::from_name(n)).collect::<Result<Vec<_>>>();
            Match::DTypeOf(part(1)?.extract()?, types.map_err(|e| to_py(m.py(), &e))?)
        }
        "attr" => Match::Attr(part(1)?.extract()?, compare(2)?, part(3)?.extract()?),
        "rank" => Match::RankOf(part(1)?.extract()?, compare(2)?, part(3)?.extract()?),
        "and" => Match::And(boxed(1)?, boxed(2)?),
        "or" => Match::Or(boxed(1)?, boxed(2)?),
        "not" => Match::Not(boxed(1)?),
        _ => {
            return Err(bad(invalid(
                "condition",
                quoted(&kind),
                "one of: always, device, dtype, attr, rank, and, or, not",
            )));
        }
    })
}
