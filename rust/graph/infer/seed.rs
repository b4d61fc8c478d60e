//! Where inference starts: shapes and dtypes by variable name, and those that variables declare.

use super::Fact;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Dict, Graph, Node};
use crate::shape::Shape;

/// The extents in the `__shape__` of a variable's attributes.
pub fn declared_dims(dict: &Dict) -> Option<Vec<i64>> {
    let text = dict.get("__shape__")?;
    let inner = text.trim().trim_start_matches(['(', '[']).trim_end_matches([')', ']']);
    let parts = inner.split(',').map(str::trim).filter(|p| !p.is_empty());
    let extent = |part: &str| match part.trim_end_matches('L') {
        "None" => Some(-1),
        number => number.parse::<i64>().ok(),
    };
    parts.map(extent).collect()
}

/// The shape in a variable's `__shape__`; zeros are unknown extents unless `np_shape` is on.
fn declared_shape(node: &Node, np_shape: bool) -> Option<Shape> {
    let dims = declared_dims(&node.dict)?;
    Some(if np_shape { Shape::new(&dims) } else { Shape::from_legacy(&dims) })
}

/// The dtype in a variable's `__dtype__`: a flag, or a name.
fn declared_type(node: &Node) -> Option<DType> {
    let text = node.dict.get("__dtype__")?.trim();
    match text.parse::<i32>() {
        Ok(flag) => DType::from_flag(flag).ok(),
        Err(_) => DType::from_name(text).ok(),
    }
}

/// One slot per entry, filled from `given` (by variable name) and from the variables'
/// declarations.
fn seed<F: Fact>(
    graph: &Graph,
    given: &[(String, F)],
    declared: impl Fn(&Node) -> Option<F>,
) -> Result<Vec<F>> {
    let by_name: std::collections::HashMap<&str, &F> =
        given.iter().map(|(n, f)| (n.as_str(), f)).collect();
    let mut facts = vec![F::unknown(); graph.num_entries()];
    // Several variables may share a name: a given value holds for all of them.
    let mut used = std::collections::HashSet::new();
    for (id, node) in graph.nodes.iter().enumerate().filter(|(_, n)| n.is_variable()) {
        let explicit = by_name.get(node.name.as_str());
        if explicit.is_some() {
            used.insert(node.name.as_str());
        }
        let fact = explicit.map(|f| (*f).clone()).or_else(|| declared(node));
        if let Some(fact) = fact {
            facts[graph.entries_of(id).start] = fact;
        }
    }
    if used.len() < by_name.len() {
        let names: Vec<&str> =
            graph.nodes.iter().filter(|n| n.is_variable()).map(|n| n.name.as_str()).collect();
        for (name, _) in given {
            if !names.contains(&name.as_str()) {
                return Err(Error::unknown("argument", name, &names));
            }
        }
    }
    Ok(facts)
}

impl Graph {
    /// The shapes known before inference: given by name, or declared.
    pub fn shapes_seed(&self, given: &[(String, Shape)], np_shape: bool) -> Result<Vec<Shape>> {
        seed(self, given, |n| declared_shape(n, np_shape))
    }

    /// The dtypes known before inference: given by name, or declared.
    pub fn types_seed(&self, given: &[(String, DType)]) -> Result<Vec<Option<DType>>> {
        let given: Vec<_> = given.iter().map(|(n, d)| (n.clone(), Some(*d))).collect();
        seed(self, &given, |n| declared_type(n).map(Some))
    }
}
