//! What a garbage collector of the binding's language has to see of the tape.
//!
//! A node is *foreign* if it keeps an object of the binding (a function, the state of a callback),
//! or if a node that it was recorded from is. Arrays and later nodes share nodes by counts that a
//! collector does not know, so it could not tell what keeps those objects alive. Therefore a
//! foreign node has room for *proxies*: references to an object that stands for the node there, one
//! for each owner of the node. An owner that the collector visits shows it one of them, and the
//! object shows what the node keeps. Owners that it does not visit leave references that are not
//! accounted for, so what they keep is in use.

use super::{Node, NodeKind, Recorded, Rule, TapeEntry, TapeFunction, Tracked};
use crate::lock::Lock;
use crate::operator::OpState;
use std::any::Any;
use std::sync::{Arc, Weak};

/// What the binding keeps for a node: one reference to the node's proxy for each owner.
pub type Proxies = Option<Box<dyn Any + Send + Sync>>;

/// What a part of the tape keeps alive, other than arrays.
pub enum Referent<'a> {
    Function(&'a dyn TapeFunction),
    /// The state of an operator's call.
    State(&'a OpState),
    /// A share in a foreign node: its proxies, and the number of its owners.
    Share(&'a Proxies, usize),
}

/// A foreign node that this does not keep alive.
#[derive(Clone)]
pub struct ForeignNode(Weak<Node>);

/// The foreign nodes of the process.
struct KnownNodes {
    nodes: Vec<Weak<Node>>,
    /// The length at which dead nodes are removed.
    limit: usize,
}

static KNOWN: Lock<KnownNodes> = Lock::new(KnownNodes { nodes: Vec::new(), limit: 0 });

const SMALLEST_LIMIT: usize = 64;

/// Notes a new foreign node.
pub(super) fn note(node: &Arc<Node>) {
    let mut known = KNOWN.lock();
    if known.nodes.len() >= known.limit {
        known.nodes.retain(|node| node.strong_count() > 0);
        known.limit = (2 * known.nodes.len()).max(SMALLEST_LIMIT);
    }
    known.nodes.push(Arc::downgrade(node));
}

/// The foreign nodes that are alive.
pub fn foreign_nodes() -> Vec<ForeignNode> {
    let known = KNOWN.lock();
    let alive = known.nodes.iter().filter(|node| node.strong_count() > 0);
    alive.map(|node| ForeignNode(node.clone())).collect()
}

impl ForeignNode {
    /// The number of arrays, nodes and passing uses that keep the node alive.
    pub fn owners(&self) -> usize {
        self.0.strong_count()
    }

    /// Calls `f` with the node's proxies, unless they are in use or the node is gone.
    pub fn with_proxies<R>(&self, f: impl FnOnce(&mut Proxies) -> R) -> Option<R> {
        let node = self.0.upgrade()?;
        let mut proxies = node.foreign.as_ref()?.try_lock()?;
        Some(f(&mut proxies))
    }

    /// Calls `visit` with what the node alone keeps, and its shares in other nodes. Passes over
    /// what is in use.
    pub fn visit(&self, visit: &mut dyn FnMut(Referent<'_>)) {
        let Some(node) = self.0.upgrade() else { return };
        let NodeKind::Call(recorded) = &node.kind else { return };
        let Some(recorded) = recorded.try_lock() else { return };
        let Some(recorded) = recorded.as_ref().filter(|r| Arc::strong_count(r) == 1) else {
            return;
        };
        match &recorded.rule {
            Rule::Function(f) if Arc::strong_count(f) == 1 => {
                visit(Referent::Function(&**f));
                f.visit_states(&mut |state| visit(Referent::State(state)));
            }
            Rule::Op { state: Some(call), .. } if Arc::strong_count(&call.state) == 1 => {
                visit(Referent::State(&call.state));
            }
            _ => {}
        }
        recorded.inputs.iter().filter_map(|input| input.1.as_ref()).for_each(|e| e.share(visit));
    }
}

impl Recorded {
    /// Must a collector see the node of this record?
    pub(super) fn is_foreign(&self) -> bool {
        let keeps = match &self.rule {
            Rule::Function(_) => true,
            Rule::Op { state, .. } => state.as_ref().is_some_and(|call| call.is_of_callback),
        };
        keeps || self.inputs.iter().flat_map(|input| &input.1).any(|e| e.node.foreign.is_some())
    }
}

impl TapeEntry {
    /// Shows the entry's share in its node, if that is foreign.
    fn share(&self, visit: &mut dyn FnMut(Referent<'_>)) {
        let Some(proxies) = self.node.foreign.as_ref().and_then(|f| f.try_lock()) else { return };
        visit(Referent::Share(&proxies, Arc::strong_count(&self.node)));
    }
}

impl Tracked {
    /// Calls `visit` with the array's share in its history, for a garbage collector.
    pub fn visit_share(&self, visit: &mut dyn FnMut(Referent<'_>)) {
        let Some(entry) = self.entry.try_lock() else { return };
        entry.iter().for_each(|entry| entry.share(visit));
    }
}
