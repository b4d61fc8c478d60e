//! From a request and a choice of what to compute again to a [`Plan`]: everything that the executor
//! needs.
//!
//! Planning executes nothing and allocates no array, so it works for graphs far larger than memory.

use super::check::check;
use super::forward_inference::infer_forward;
use super::passes::inplace::Shared;
use super::passes::offsets::Placed;
use super::passes::{self, gradient::Differentiated, mirror::Mirror, side_by_side};
use super::request::{Place, PlanRequest};
use super::static_graph::{Entry, Graph};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::OpReq;
use crate::shape::Shape;
use std::collections::BTreeMap;

/// A planned graph.
#[derive(Clone)]
pub struct Plan {
    pub graph: Graph,
    /// By entry number, as are all lists below that say "entry".
    pub shapes: Vec<Shape>,
    pub types: Vec<DType>,
    /// Node numbers of the arguments, in the order of `list_arguments`.
    pub arguments: Vec<u32>,
    /// Node numbers of the auxiliary states, in the order of `list_auxiliary_states`.
    pub aux: Vec<u32>,
    /// The heads.
    pub outputs: Vec<Entry>,
    /// The variable of every head's gradient; `None` where no backward node asks for it (a loss, or
    /// a head nothing is differentiated through).
    pub head_grads: Vec<Option<u32>>,
    /// The entry that ends up in every argument's gradient array.
    pub arg_grads: Vec<Option<Entry>>,
    /// Entry: where it lives.
    pub place: Vec<Place>,
    /// Entry: how it is written. `Add` accumulates onto what is in its place.
    pub req: Vec<OpReq>,
    /// Entry: the entry number whose memory it took over or shares.
    pub inplace_of: Vec<Option<u32>>,
    /// Entry: positions in execution order of its writing and of its last reading; heads live to
    /// the end.
    pub first_use: Vec<u32>,
    pub last_use: Vec<u32>,
    /// Bytes of the arena of every device that has one: what an executor allocates for it.
    pub arena_bytes: Vec<(Context, usize)>,
    /// Bytes of the array of every output that has one, by its position among the heads, in
    /// addition to the arenas: no fewer than the output's.
    pub output_chunks: BTreeMap<u32, usize>,
    /// (before, after): nodes that use the same bytes at different times, beyond what data orders.
    pub order_edges: Vec<(u32, u32)>,
    /// The most bytes alive at once in each arena, summed: no plan of this graph in this order,
    /// with these entries in place, needs less.
    pub lower_bound_bytes: usize,
    /// Bytes of all entries of the arenas, without any sharing.
    pub no_sharing_bytes: usize,
    pub recomputed_nodes: usize,
    /// Temporary spaces: the number of colours in use.
    pub temp_colours: usize,
    /// Bytes of the temporary spaces, as far as operators say how many they need.
    pub temp_bytes: usize,
    /// Name and text of the graph after every pass, when asked for.
    pub dumps: Dumps,
}

impl Plan {
    /// The entry's bytes.
    pub fn bytes(&self, id: usize) -> usize {
        self.shapes[id].size().saturating_mul(self.types[id].size())
    }

    /// Bytes of the outputs' arrays.
    pub fn output_bytes(&self) -> usize {
        self.output_chunks.values().sum()
    }

    pub fn total_arena_bytes(&self) -> usize {
        self.arena_bytes.iter().map(|a| a.1).sum()
    }
}

/// The forward graph with everything known about it.
pub(in crate::graph) struct Forward {
    pub graph: Graph,
    pub shapes: Vec<Shape>,
    pub types: Vec<DType>,
    pub arguments: Vec<u32>,
    pub aux: Vec<u32>,
    dumps: Dumps,
}

pub(in crate::graph) fn prepare(request: &PlanRequest) -> Result<Forward> {
    let mut dumps = Vec::new();
    let mut graph = Graph::from_symbol(&request.symbol)?;
    let mut note = |graph: &Graph, pass: &str| -> Result<()> {
        if request.dump {
            dumps.push((pass.to_owned(), super::print::dump(graph)));
        }
        check(graph, pass)
    };
    note(&graph, "composition")?;
    if request.options.merge_common {
        graph = passes::merge_common::run(graph)?;
        note(&graph, "merge_common")?;
    }
    let (arguments, aux) = graph.variables();
    let (shapes, types) = infer_forward(request, &graph, &arguments, &aux)?;
    Ok(Forward { graph, shapes, types, arguments, aux, dumps })
}

/// An error at the node whose outputs make the bytes of all entries, each in memory of its own,
/// more than an address space has: no sum of sizes in later passes overflows.
fn check_bytes(done: &Differentiated) -> Result<()> {
    let most = usize::MAX / 4;
    let mut total = 0;
    for (id, node) in done.graph.nodes.iter().enumerate() {
        for e in done.graph.entries_of(id) {
            let (shape, dtype) = (&done.shapes[e], done.types[e]);
            let refused = || {
                let name = done.graph.entry_name(done.graph.entry(e));
                Error::value(format!(
                    "invalid shape {shape} of '{name}': expected a graph of at most {most} bytes, \
                     beyond which it comes with {dtype} elements"
                ))
                .at_node(node.op_name(), &node.name)
            };
            let elements = shape.checked_size().map_err(|_| refused())?;
            let bytes = elements.checked_mul(dtype.size()).filter(|&b| b <= most - total);
            total += bytes.ok_or_else(refused)?.next_multiple_of(passes::offsets::ALIGN);
            total = total.min(most);
        }
    }
    Ok(())
}

/// Names of passes with the graphs after them.
type Dumps = Vec<(String, String)>;

/// A graph with its gradient and devices, and which of its entries share memory.
struct LaidOut {
    done: Differentiated,
    arguments: Vec<u32>,
    aux: Vec<u32>,
    shared: Shared,
}

/// Runs the passes that follow the choice of what to recompute.
pub(in crate::graph) struct Planner<'a> {
    pub request: &'a PlanRequest,
    pub forward: &'a Forward,
}

impl Planner<'_> {
    /// The graph with its gradient, and everything inferred.
    pub fn differentiate(&self, mirror: &Mirror) -> Result<Differentiated> {
        let Forward { graph, shapes, types, arguments, .. } = self.forward;
        let mut done = passes::gradient::run(
            graph,
            arguments,
            &self.request.grad_req,
            mirror,
            &self.request.registry,
            self.request.options.inplace_sum_cap,
        )?;
        done.shapes = shapes.clone();
        done.types = types.clone();
        done.graph.infer_rest(&done.head_grads, &mut done.shapes, &mut done.types)?;
        done.check_gradients()?;
        check_bytes(&done)?;
        Ok(done)
    }

    /// The least that the arenas of the plan with this choice of what to compute again can take.
    pub fn peak(&self, mirror: &Mirror) -> Result<usize> {
        Ok(passes::offsets::least_bytes(&self.lay_out(mirror, &mut None)?.shared.buffers))
    }

    /// All passes but the placing of buffers. Each is noted in `dumps` if that is given.
    fn lay_out(&self, mirror: &Mirror, dumps: &mut Option<Dumps>) -> Result<LaidOut> {
        let request = self.request;
        let mut note = |graph: &Graph, pass: &str| -> Result<()> {
            if let Some(dumps) = dumps {
                dumps.push((pass.to_owned(), super::print::dump(graph)));
            }
            check(graph, pass)
        };
        let mut done = self.differentiate(mirror)?;
        note(&done.graph, "gradient")?;
        let fixed = passes::devices::Fixed {
            default: request.default_ctx,
            groups: request.group2ctx.as_ref(),
            args: &request.arg_ctx,
            aux: &request.aux_ctx,
        };
        let (mut arguments, mut aux) = (self.forward.arguments.clone(), self.forward.aux.clone());
        passes::devices::run(&mut done, &mut arguments, &mut aux, &fixed, &request.registry)?;
        note(&done.graph, "devices")?;
        passes::accumulate::run(&mut done)?;
        note(&done.graph, "accumulate")?;
        let shared = passes::inplace::run(&done, &request.grad_req, &request.options, None);
        Ok(LaidOut { done, arguments, aux, shared })
    }

    /// Shares and places memory so that nodes that are alone can run side by side, as many as there
    /// is memory for: what that takes is no more than the shared memory, or than the graph's
    /// variables, gradients and outputs, or little. The whole at most doubles then.
    fn side_by_side(&self, done: &Differentiated, shared: &mut Shared, placed: Placed) -> Placed {
        const LITTLE_BYTES: usize = 32 << 20;
        let options = &self.request.options;
        if options.outputs_in_arena {
            return placed;
        }
        let Some(alone) = side_by_side::AloneNodes::of(&done.graph, &done.shapes) else {
            return placed;
        };
        let bytes = |e: usize| done.shapes[e].size().saturating_mul(done.types[e].size());
        let nodes = done.graph.nodes.iter().enumerate().filter(|(_, node)| node.is_variable());
        let variables = nodes.map(|(id, _)| bytes(done.graph.entries_of(id).start));
        let gradients = done.arg_grads.iter().flatten().map(|e| bytes(done.graph.entry_id(*e)));
        let given: usize = variables.chain(gradients).fold(0, usize::saturating_add);
        let limit = self.request.memory_limit.unwrap_or(usize::MAX);
        let mut tried = None;
        for apart in side_by_side::WINDOWS.iter().map_while(|&window| alone.apart(window)) {
            if tried.as_ref() == Some(&apart) {
                continue;
            }
            let mut wider =
                passes::inplace::run(done, &self.request.grad_req, options, Some(&apart));
            wider.stretch(&done.graph, &apart);
            let outputs = passes::host::chunks(&wider.buffers).into_values();
            let given = outputs.fold(given, usize::saturating_add);
            let more = placed.total().max(given).max(LITTLE_BYTES);
            let moved = passes::offsets::run(&wider.buffers);
            if moved.total() <= placed.total().saturating_add(more).min(limit) {
                *shared = wider;
                return moved;
            }
            tried = Some(apart);
        }
        placed
    }

    /// The plan with this choice of what to compute again.
    pub fn finish(&self, mirror: &Mirror) -> Result<Plan> {
        let mut dumps = self.request.dump.then(|| self.forward.dumps.clone());
        let LaidOut { done, arguments, aux, mut shared } = self.lay_out(mirror, &mut dumps)?;
        let may_host = self.request.may_host();
        let placed = if may_host {
            passes::host::place(&done.graph, &mut shared)
        } else {
            passes::offsets::run(&shared.buffers)
        };
        let placed = self.side_by_side(&done, &mut shared, placed);
        let order_edges = passes::order::run(&done.graph, &shared, &placed.offsets);
        let temp = passes::temp::run(&done, self.request.options.num_temp)?;
        let no_sharing_bytes = shared.no_sharing_bytes;
        let place = shared.places(&placed.offsets);
        let recomputed_nodes = done.graph.nodes.iter().filter(|n| n.mirror_of.is_some()).count();
        Ok(Plan {
            outputs: done.graph.heads.clone(),
            arguments,
            aux,
            head_grads: done.head_grads,
            arg_grads: done.arg_grads,
            shapes: done.shapes,
            types: done.types,
            place,
            output_chunks: passes::host::chunks(&shared.buffers),
            req: shared.req,
            inplace_of: shared.inplace_of,
            first_use: shared.first_use,
            last_use: shared.last_use,
            arena_bytes: placed.arena_bytes,
            order_edges,
            lower_bound_bytes: placed.lower_bound_bytes,
            no_sharing_bytes,
            recomputed_nodes,
            temp_colours: temp.colours,
            temp_bytes: temp.bytes,
            dumps: dumps.unwrap_or_default(),
            graph: done.graph,
        })
    }
}
