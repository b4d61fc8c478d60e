//! What Python's garbage collector sees of the autograd tape.
//!
//! A node that keeps a Python object, and every node recorded above one, is represented by a
//! [`TapeNode`], to which there is a reference for each owner of the node. The references are made
//! when a collection starts: until then nothing needs them. An array shows the proxy of its node,
//! and a proxy shows what its node keeps and the proxies of the nodes it was recorded from. So the
//! collector meets as many references as there are owners that it visits, and each owner that is
//! reachable keeps all below it. A node that got owners since then shows nothing: what it keeps
//! counts as used.
//!
//! The tape changes under the interpreter's lock alone, so it stands still in a collection.

use super::autograd::PyFunction;
use super::payload::PyState;
use crate::executor::autograd::{ForeignNode, Referent, Tracked, foreign_nodes};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// References to the proxy of one node.
type References = Vec<Py<TapeNode>>;

/// Stands for a node of the autograd tape in garbage collection.
#[pyclass(frozen, module = "rsnet._core")]
struct TapeNode {
    node: ForeignNode,
}

#[pymethods]
impl TapeNode {
    /// (The node goes with its owners, once the arrays among them are cleared.)
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut result = Ok(());
        self.node.visit(&mut |kept| show(&kept, &visit, &mut result));
        result
    }
}

/// Shows the collector the share of an array in its history.
pub fn traverse(tracked: &Tracked, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    let mut result = Ok(());
    tracked.visit_share(&mut |kept| show(&kept, visit, &mut result));
    result
}

fn show(kept: &Referent<'_>, visit: &PyVisit<'_>, result: &mut Result<(), PyTraverseError>) {
    if result.is_err() {
        return;
    }
    *result = match kept {
        Referent::Function(f) => {
            visit.call(f.as_any().downcast_ref::<PyFunction>().map(|f| &f.backward))
        }
        Referent::State(state) => visit.call(state.downcast_ref::<PyState>().map(|state| &state.0)),
        Referent::Share(proxies, owners) => {
            let references = proxies.as_ref().and_then(|p| p.downcast_ref::<References>());
            visit.call(references.filter(|r| r.len() >= *owners).and_then(|r| r.first()))
        }
    };
}

/// Gives each node that a collection may have to see as many references as it has owners. Called
/// by Python as an entry of `gc.callbacks`. The youngest generation is collected too often for
/// that: what it leaves, later collections see.
#[pyfunction]
fn before_collection(py: Python<'_>, phase: &str, info: &Bound<'_, PyDict>) -> PyResult<()> {
    let generation = info.get_item("generation")?.and_then(|g| g.extract::<u32>().ok());
    if phase != "start" || generation == Some(0) {
        return Ok(());
    }
    foreign_nodes().iter().try_for_each(|node| count_owners(py, node))
}

fn count_owners(py: Python<'_>, node: &ForeignNode) -> PyResult<()> {
    let owners = node.owners();
    let taken = node.with_proxies(Option::take).flatten();
    let mut references: References =
        taken.and_then(|r| r.downcast().ok()).map(|r| *r).unwrap_or_default();
    if references.is_empty() {
        references.push(Py::new(py, TapeNode { node: node.clone() })?);
    }
    let one = references[0].clone_ref(py);
    references.resize_with(owners.max(1), || one.clone_ref(py));
    node.with_proxies(|proxies| *proxies = Some(Box::new(references)));
    Ok(())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(before_collection, m)?)
}
