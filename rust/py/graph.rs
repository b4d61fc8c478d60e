//! `_core.GraphHandle`: the static graph as data.

use super::error::{invalid, quoted};
use super::runtime;
use super::symbol::{PySymbol, raise};
use crate::graph::passes::{accumulate, gradient, gradient::HeadGrads, mirror::Mirror};
use crate::graph::{Entry, Graph, Links, PlanOptions, Symbol, load_graph};
use crate::operator::OpReq;
use pyo3::prelude::*;
use std::collections::BTreeMap;

type Pair = (u32, u32);
type Fields = (
    String,
    String,
    Vec<Pair>,
    BTreeMap<String, String>,
    Option<u32>,
    Option<u32>,
    Vec<(u32, Pair)>,
    Vec<u32>,
);

/// A graph with its backward pass, the nodes of head gradients, the entries of gradients.
type WithBackward = (PyGraph, Vec<Option<u32>>, Vec<Option<Pair>>);

/// A graph of the core.
#[pyclass(frozen, name = "GraphHandle", module = "rsnet._core")]
pub struct PyGraph {
    graph: Graph,
}

const fn pair(e: &Entry) -> Pair {
    (e.node, e.index)
}

impl PyGraph {
    pub fn new(symbol: &Symbol) -> PyResult<Self> {
        Ok(PyGraph { graph: Graph::from_symbol(symbol).map_err(raise)? })
    }
}

#[pymethods]
impl PyGraph {
    /// Operator, name, inputs, attributes, forward node, mirrored node, in-place sums and control
    /// dependencies of every node.
    fn nodes(&self) -> Vec<Fields> {
        let fields = |node: &crate::graph::Node| {
            (
                node.op_name().to_owned(),
                node.name.clone(),
                node.inputs.iter().map(pair).collect(),
                (*node.dict).clone(),
                node.backward_of,
                node.mirror_of,
                node.addto.iter().map(|(output, e)| (*output, pair(e))).collect(),
                node.control.clone(),
            )
        };
        self.graph.nodes.iter().map(fields).collect()
    }

    fn heads(&self) -> Vec<Pair> {
        self.graph.heads.iter().map(pair).collect()
    }

    /// The graph with its backward nodes, the nodes of head gradients, the entries of gradients.
    fn make_backward_pass(&self) -> PyResult<WithBackward> {
        let (arguments, _) = self.graph.variables();
        let wanted = vec![OpReq::Write; arguments.len()];
        let options = PlanOptions::from_env();
        let mirror = Mirror::by_attributes(&self.graph, options.mirrored_step());
        let (registry, cap) = (&runtime().registry, options.inplace_sum_cap);
        let mut done = gradient::run(&self.graph, &arguments, &wanted, &mirror, registry, cap)
            .map_err(raise)?;
        accumulate::run(&mut done).map_err(raise)?;
        done.put_copies_first().map_err(raise)?;
        let grads = done.arg_grads.iter().map(|g| g.as_ref().map(pair)).collect();
        Ok((PyGraph { graph: done.graph }, done.head_grads, grads))
    }

    fn to_symbol(&self) -> PyResult<PySymbol> {
        Ok(self.graph.to_symbol(&runtime().registry).map_err(raise)?.into())
    }

    /// The graph as JSON with the links of backward nodes, mirrored nodes and in-place sums.
    fn to_json(&self) -> String {
        self.graph.to_json(false, Links::Kept)
    }

    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        let loaded = load_graph(text, &runtime().registry).map_err(raise)?;
        Ok(PyGraph { graph: loaded.value })
    }
}

/// The symbol of the gradients with respect to the arguments `wrt`, by name.
pub fn gradient_symbol(symbol: &Symbol, wrt: &[String]) -> PyResult<Symbol> {
    let missing = |name: &String| {
        let names = symbol.list_arguments();
        let text = invalid("argument", quoted(name), format!("one of: {}", names.join(", ")));
        raise(crate::error::Error::key(format!("grad: {text}")))
    };
    let names = symbol.list_arguments();
    let graph = PyGraph::new(symbol)?.graph;
    let (arguments, _) = graph.variables();
    let mut reqs = vec![OpReq::Null; arguments.len()];
    let mut at = Vec::with_capacity(wrt.len());
    for name in wrt {
        let i = names.iter().position(|n| n == name).ok_or_else(|| missing(name))?;
        reqs[i] = OpReq::Write;
        at.push(i);
    }
    let mirror = Mirror::by_attributes(&graph, None);
    let (registry, like) = (&runtime().registry, HeadGrads::LikeHeads);
    let done = gradient::run_with(&graph, &arguments, &reqs, &mirror, registry, usize::MAX, like)
        .map_err(raise)?;
    let mut with_backward = done.graph;
    with_backward.heads = at.iter().filter_map(|&i| done.arg_grads[i]).collect();
    // Only what the gradients need; the symbol keeps the links from backward to forward nodes.
    with_backward.to_symbol(registry).map_err(raise)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGraph>()
}
