//! The autograd tape: a record of calls, and gradients by walking it backwards.
//!
//! A [`Tracked`] array may carry a [`TapeEntry`]: the output of a recorded call, or a leaf whose
//! gradient has a buffer. Nodes are numbered as they are recorded, so walking them in descending
//! order is a topological order. A node keeps the arrays that the operator's gradient refers to,
//! and for the rest stubs of the same shape without memory. Gradients come from the operator's one
//! gradient rule; here its builder runs operators at once (the graph's gradient pass is the other
//! builder).

mod foreign;
mod tape_builder;
mod walk;

pub use foreign::{ForeignNode, Proxies, Referent, foreign_nodes};
pub use walk::{Backward, backward, grad};

use super::imperative::{CallState, Invoke, call};
use super::inline::{self, Declined};
use super::transfer::copied;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::lock::{Guard, Lock};
use crate::ndarray::NDArray;
use crate::operator::{Attrs, Dep, OpDef, OpReq, OpState};
use crate::shape::Shape;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A gradient of its own (Python's `autograd.Function`): runs at once, on the thread that walks
/// back.
pub trait TapeFunction: Send + Sync {
    /// Its name in errors.
    fn name(&self) -> &str;

    fn as_any(&self) -> &dyn Any;

    /// Calls `visit` with the states of operators that only the function keeps.
    fn visit_states(&self, _visit: &mut dyn FnMut(&OpState)) {}

    /// Gradients of the inputs from those of the outputs, one per input; `None` where none is asked
    /// for, or where it went to the leaf's buffer. Its calls are recorded if gradients will be
    /// differentiated.
    fn backward(&self, asked: Asked<'_>) -> Result<Vec<Option<Tracked>>>;
}

/// What a [`TapeFunction`] is asked for.
pub struct Asked<'a> {
    pub out_grads: Vec<Tracked>,
    /// The outputs that were kept, with their entries.
    pub outputs: Vec<Option<Tracked>>,
    /// By input.
    pub wanted: &'a [Wanted],
    /// Must the buffers of leaves stay as they are?
    pub keep_buffers: bool,
    /// May the function be asked again?
    pub retain_graph: bool,
    /// Will the gradients be differentiated?
    pub create_graph: bool,
    pub is_train: bool,
}

/// How the gradient of an input is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    No,
    /// As an array that nothing changes afterwards.
    Value,
    /// As a value, or written to the buffer of the leaf that the input is, as its request says.
    ValueOrBuffer,
}

/// One recorded call or leaf.
pub struct Node {
    /// Order of recording, process-wide.
    seq: u64,
    kind: NodeKind,
    /// Room for proxies if a garbage collector has to see the node.
    foreign: Option<Box<Lock<Proxies>>>,
}

enum NodeKind {
    Leaf {
        grad: NDArray,
        req: OpReq,
        /// True if the gradient was written since this was last cleared.
        fresh: AtomicBool,
    },
    /// Emptied once gradients went through it, unless the graph is retained.
    Call(Lock<Option<Arc<Recorded>>>),
}

/// A value and its place on the tape.
type Placed = (NDArray, Option<TapeEntry>);

/// An operand as a node keeps it.
enum Saved {
    /// The array itself: the gradient refers to it.
    Kept(NDArray),
    /// Shape, dtype and device alone.
    Like(Shape, DType, Context),
}

impl Saved {
    fn of(array: &NDArray, keep: bool) -> Self {
        match keep {
            // The gradient may be asked for when the callback has ended. If the copy cannot be
            // pushed, no backward pass can be pushed either, so the array itself is never read.
            true if array.is_operand() => {
                Saved::Kept(copied(array).unwrap_or_else(|_| array.clone()))
            }
            true => Saved::Kept(array.clone()),
            false => Saved::Like(array.shape().clone(), array.dtype(), array.context()),
        }
    }

    /// The array, or one of its shape and dtype that has no memory yet.
    fn array(&self, rt: &Arc<Runtime>) -> Result<NDArray> {
        match self {
            Saved::Kept(array) => Ok(array.clone()),
            Saved::Like(shape, dtype, ctx) => NDArray::pending(rt, shape, *dtype, *ctx),
        }
    }

    fn kept(&self) -> Option<&NDArray> {
        match self {
            Saved::Kept(array) => Some(array),
            Saved::Like(..) => None,
        }
    }

    fn context(&self) -> Context {
        match self {
            Saved::Kept(array) => array.context(),
            Saved::Like(_, _, ctx) => *ctx,
        }
    }

    fn spec(&self) -> (Shape, DType) {
        match self {
            Saved::Kept(array) => (array.shape().clone(), array.dtype()),
            Saved::Like(shape, dtype, _) => (shape.clone(), *dtype),
        }
    }
}

struct Recorded {
    rule: Rule,
    name: Option<Arc<str>>,
    inputs: SmallVec<[(Saved, Option<TapeEntry>); 2]>,
    outputs: SmallVec<[Saved; 1]>,
}

impl Recorded {
    /// The name of the call, or an empty text.
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

enum Rule {
    Op { op: Arc<OpDef>, attrs: Arc<Attrs>, state: Option<CallState> },
    Function(Arc<dyn TapeFunction>),
}

/// The description of a node for a visitor of the tape.
pub enum NodeView<'a> {
    Leaf,
    Call {
        op: &'a Arc<OpDef>,
        attrs: &'a Arc<Attrs>,
        inputs: Vec<Option<TapeEntry>>,
    },
    /// Cleared, or a function that no operator describes.
    Opaque,
}

/// One output of a node.
#[derive(Clone)]
pub struct TapeEntry {
    node: Arc<Node>,
    pub index: u32,
}

impl TapeEntry {
    /// The node's number: entries of one node share it.
    pub fn seq(&self) -> u64 {
        self.node.seq
    }

    /// The gradient buffer and request of a leaf.
    pub fn leaf(&self) -> Option<(&NDArray, OpReq)> {
        match &self.node.kind {
            NodeKind::Leaf { grad, req, .. } => Some((grad, *req)),
            NodeKind::Call(_) => None,
        }
    }

    fn is_cleared(&self) -> bool {
        matches!(&self.node.kind, NodeKind::Call(slot) if slot.lock().is_none())
    }

    fn leaf_of(grad: NDArray, req: OpReq) -> Self {
        let kind = NodeKind::Leaf { grad, req, fresh: AtomicBool::new(false) };
        TapeEntry { node: Arc::new(Node { seq: next_seq(), kind, foreign: None }), index: 0 }
    }

    /// Returns true if a backward pass has written the leaf's gradient since this was last cleared;
    /// `None` if the entry is not a leaf.
    pub fn is_fresh(&self) -> Option<bool> {
        match &self.node.kind {
            NodeKind::Leaf { fresh, .. } => Some(fresh.load(Ordering::Relaxed)),
            NodeKind::Call(_) => None,
        }
    }

    /// Sets the value of [`TapeEntry::is_fresh`]. Returns false if the entry is not a leaf.
    pub fn set_fresh(&self, is_fresh: bool) -> bool {
        let NodeKind::Leaf { fresh, .. } = &self.node.kind else { return false };
        fresh.store(is_fresh, Ordering::Relaxed);
        true
    }

    /// Calls `f` with a description of the entry's node.
    pub fn visit<R>(&self, f: impl FnOnce(NodeView<'_>) -> R) -> R {
        let NodeKind::Call(slot) = &self.node.kind else { return f(NodeView::Leaf) };
        let record = slot.lock().clone();
        match record.as_deref() {
            Some(Recorded { rule: Rule::Op { op, attrs, .. }, inputs, .. }) => {
                let inputs = inputs.iter().map(|i| i.1.clone()).collect();
                f(NodeView::Call { op, attrs, inputs })
            }
            _ => f(NodeView::Opaque),
        }
    }
}

/// Long chains are taken apart in a loop: dropping them recursively would exhaust the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let NodeKind::Call(slot) = &mut self.kind else { return };
        let mut waiting: Vec<Recorded> = Vec::new();
        waiting.extend(slot.get_mut().take().and_then(Arc::into_inner));
        while let Some(mut record) = waiting.pop() {
            for (_, entry) in record.inputs.drain(..) {
                let last = entry.and_then(|e| Arc::into_inner(e.node));
                if let Some(Node { kind: NodeKind::Call(slot), .. }) = last.as_ref() {
                    waiting.extend(slot.lock().take().and_then(Arc::into_inner));
                }
            }
        }
    }
}

/// An array with its place on the tape.
pub struct Tracked {
    pub array: NDArray,
    entry: Lock<Option<TapeEntry>>,
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        Tracked::placed(self.array.clone(), self.entry())
    }
}

impl Tracked {
    pub fn new(array: NDArray) -> Self {
        Tracked { array, entry: Lock::new(None) }
    }

    fn placed(array: NDArray, entry: Option<TapeEntry>) -> Self {
        Tracked { array, entry: Lock::new(entry) }
    }

    pub fn entry(&self) -> Option<TapeEntry> {
        self.live_entry().clone()
    }

    pub fn is_tracked(&self) -> bool {
        self.live_entry().is_some()
    }

    /// The entry, dropped if gradients have gone through its call: what was computed there goes on
    /// as a constant, as the state that a loop carries from one backward pass to the next.
    fn live_entry(&self) -> Guard<'_, Option<TapeEntry>> {
        let mut entry = self.entry.lock();
        if entry.as_ref().is_some_and(TapeEntry::is_cleared) {
            *entry = None;
        }
        entry
    }

    /// Returns true if the tape needs the array's bytes unchanged: it is an output of a recorded
    /// call, or a recorded call has read it.
    pub fn is_in_graph(&self) -> bool {
        let entry = self.live_entry();
        entry.as_ref().is_some_and(|e| e.leaf().is_none() || Arc::strong_count(&e.node) > 1)
    }

    /// Refuses `grad` as the buffer of the array's gradient if it differs in shape, dtype or
    /// device.
    pub fn check_buffer(&self, grad: &NDArray) -> Result<()> {
        let (x, g) = (&self.array, grad);
        let fails = |what: &str, got: String, expected: String| {
            Err(Error::value(format!(
                "the gradient buffer has {what} {got}, expected that of its variable, {expected}"
            )))
        };
        if g.shape() != x.shape() {
            return fails("shape", g.shape().to_string(), x.shape().to_string());
        }
        if g.dtype() != x.dtype() {
            return fails("dtype", g.dtype().to_string(), x.dtype().to_string());
        }
        if g.context() != x.context() {
            return fails("context", g.context().to_string(), x.context().to_string());
        }
        Ok(())
    }

    /// Makes the array a leaf whose gradient is written to `grad`; earlier history is dropped.
    pub fn mark(&self, grad: NDArray, req: OpReq) {
        *self.entry.lock() = Some(TapeEntry::leaf_of(grad, req));
    }

    /// The gradient buffer, if the array is a leaf.
    pub fn grad(&self) -> Option<(NDArray, OpReq)> {
        self.entry.lock().as_ref().and_then(TapeEntry::leaf).map(|(g, r)| (g.clone(), r))
    }

    pub fn forget(&self) {
        *self.entry.lock() = None;
    }
}

fn next_seq() -> u64 {
    static SEQ: AtomicU64 = AtomicU64::new(1);
    SEQ.fetch_add(1, Ordering::Relaxed)
}

/// The node of a recorded call.
fn node_of(record: Recorded) -> Arc<Node> {
    let foreign = record.is_foreign().then(Box::default);
    let kind = NodeKind::Call(Lock::new(Some(Arc::new(record))));
    let node = Arc::new(Node { seq: next_seq(), kind, foreign });
    if node.foreign.is_some() {
        foreign::note(&node);
    }
    node
}

/// The error for writing to an array whose value the tape may need.
pub fn already_recorded() -> Error {
    Error::value(
        "Assigning to NDArrays that are already in a computational graph will cause undefined \
         behavior when evaluating gradients. Please call backward first to clear the graph or do \
         this out side of a record section. Also note that you cannot use inplace operations like \
         +=, *=, relu(x, out=x), y[idx]=x, etc inside a record section.",
    )
}

/// Runs an operator, and records it if recording is on and an input is on the tape. Returns the
/// visible outputs.
pub fn invoke(
    rt: &Arc<Runtime>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[&Tracked],
    out: Option<&[&Tracked]>,
    how: &Invoke<'_>,
) -> Result<SmallVec<[Tracked; 1]>> {
    let arrays: SmallVec<[&NDArray; 4]> = inputs.iter().map(|t| &t.array).collect();
    let record = how.recording && inputs.iter().any(|t| t.is_tracked());
    let lost = |t: &&Tracked| t.is_in_graph() || record && t.is_tracked();
    if how.recording && out.is_some_and(|out| out.iter().any(lost)) {
        return Err(already_recorded().at_node(&op.name, how.name));
    }
    let out_arrays: Option<SmallVec<[&NDArray; 1]>> =
        out.map(|out| out.iter().map(|t| &t.array).collect());
    let outcome = call(rt, op, attrs, &arrays, out_arrays.as_deref(), how)?;
    let visible = outcome.visible;
    let entries = if record {
        let name = (!how.name.is_empty()).then(|| how.name.into());
        let state = outcome.state.clone();
        Some(record_call(op, attrs, inputs, &outcome.outputs, visible, state, name))
    } else {
        None
    };
    let tracked = outcome.outputs.into_iter().take(visible).enumerate().map(|(i, array)| {
        let entry = entries.as_ref().map(|n| TapeEntry { node: n.clone(), index: i as u32 });
        if let (Some(given), Some(entry)) = (out.and_then(|o| o.get(i)), &entry) {
            *given.entry.lock() = Some(entry.clone());
        }
        Tracked::placed(array, entry)
    });
    Ok(tracked.collect())
}

/// As [`invoke`] for an element-wise operator that can run inline. `Err` is what
/// [`Invoke::declined`] takes: why it could not, or `None` if the call is not of that form.
#[inline]
pub fn invoke_inline(
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[&Tracked],
    recording: bool,
) -> Result<Tracked, Option<Declined>> {
    let result = match *inputs {
        [a] => inline::run_elementwise(op, attrs, &[&a.array]),
        [a, b] => inline::run_elementwise(op, attrs, &[&a.array, &b.array]),
        _ => None,
    };
    let memory = result.ok_or(None)?.map_err(Some)?;
    let output = inputs[0].array.like(memory);
    if !recording || !inputs.iter().any(|t| t.is_tracked()) {
        return Ok(Tracked::new(output));
    }
    let node = record_call(op, attrs, inputs, std::slice::from_ref(&output), 1, None, None);
    Ok(Tracked::placed(output, Some(TapeEntry { node, index: 0 })))
}

/// Records a function with a gradient of its own; the outputs get their places. `kept` says which
/// of them the function reads again.
pub fn record_function(
    function: Arc<dyn TapeFunction>,
    inputs: &[&Tracked],
    outputs: &[&Tracked],
    kept: &[bool],
) {
    let record = Recorded {
        rule: Rule::Function(function),
        name: None,
        inputs: inputs.iter().map(|t| (Saved::of(&t.array, false), t.entry())).collect(),
        outputs: outputs.iter().zip(kept).map(|(t, &kept)| Saved::of(&t.array, kept)).collect(),
    };
    let node = node_of(record);
    for (i, t) in outputs.iter().enumerate() {
        *t.entry.lock() = Some(TapeEntry { node: node.clone(), index: i as u32 });
    }
}

fn record_call(
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[&Tracked],
    outputs: &[NDArray],
    visible: usize,
    state: Option<CallState>,
    name: Option<Arc<str>>,
) -> Arc<Node> {
    let deps = op.gradient.reads(attrs, inputs.len(), visible);
    let keeps = |dep: Dep| deps.as_ref().is_none_or(|deps| deps.contains(&dep));
    let saved = inputs.iter().enumerate().map(|(i, t)| {
        let saved = Saved::of(&t.array, keeps(Dep::Input(i)));
        (saved, t.entry())
    });
    let record = Recorded {
        rule: Rule::Op { op: op.clone(), attrs: attrs.clone(), state },
        name,
        inputs: saved.collect(),
        outputs: (outputs.iter().enumerate())
            .map(|(i, a)| Saved::of(a, keeps(Dep::Output(i))))
            .collect(),
    };
    node_of(record)
}
