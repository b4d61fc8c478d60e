//! Inference of the forward graph: shapes and dtypes of all entries, and from these the arrays that
//! a program has to bind.

use super::passes::devices::of_group;
use super::request::PlanRequest;
use super::static_graph::Graph;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use std::fmt::Write;

/// An array to bind to a variable.
#[derive(Clone, Debug, PartialEq)]
pub struct ArraySpec {
    pub shape: Shape,
    pub dtype: DType,
    pub ctx: Context,
}

/// The arrays to bind to the arguments and auxiliary states of a request's symbol, in the order of
/// its lists: of the inferred shape and dtype, on the device of their group or else the default
/// one.
pub fn arrays_to_bind(request: &PlanRequest) -> Result<(Vec<ArraySpec>, Vec<ArraySpec>)> {
    let graph = Graph::from_symbol(&request.symbol)?;
    let (arguments, aux) = graph.variables();
    let (shapes, types) = infer_forward(request, &graph, &arguments, &aux)?;
    let wanted = |&node: &u32| {
        let (node, at) = (&graph.nodes[node as usize], graph.entries_of(node as usize).start);
        let ctx = match &request.group2ctx {
            Some(groups) => of_group(node, groups)?.unwrap_or(request.default_ctx),
            None => request.default_ctx,
        };
        Ok(ArraySpec { shape: shapes[at].clone(), dtype: types[at], ctx })
    };
    let list = |nodes: &[u32]| nodes.iter().map(wanted).collect::<Result<Vec<_>>>();
    Ok((list(&arguments)?, list(&aux)?))
}

/// Shapes and dtypes of all forward entries, from names, bound arrays and declarations; an unknown
/// dtype is float32.
pub(in crate::graph) fn infer_forward(
    request: &PlanRequest,
    graph: &Graph,
    arguments: &[u32],
    aux: &[u32],
) -> Result<(Vec<Shape>, Vec<DType>)> {
    let mut shapes = graph.shapes_seed(&request.shapes, request.np_shape)?;
    let mut types = graph.types_seed(&request.types)?;
    let args = arguments.iter().zip(&request.bound_args);
    for (&node, bound) in args.chain(aux.iter().zip(&request.bound_aux)) {
        if let Some((shape, dtype)) = bound {
            let id = graph.entries_of(node as usize).start;
            shapes[id] = shape.clone();
            types[id] = Some(*dtype);
        }
    }
    refuse_unplannable(graph)?;
    graph.infer_both(&mut shapes, &mut types)?;
    refuse_unknown_variables(graph, &shapes)?;
    graph.refuse_open_outputs(&mut shapes, &mut types)?;
    let types: Option<_> = types.into_iter().collect();
    let types = types.ok_or_else(|| Error::internal("a variable has no dtype after inference"))?;
    Ok((shapes, types))
}

/// An error for an operator that cannot be planned.
fn refuse_unplannable(graph: &Graph) -> Result<()> {
    let continuing = graph.nodes.iter().find_map(|node| {
        let op = node.op.as_ref()?;
        op.continues.as_ref()?(&node.attrs).then_some((op, node))
    });
    if let Some((op, node)) = continuing {
        let text = "its output continues from an array given by out: expected no such operator in \
                    a bound symbol";
        return Err(Error::not_implemented(text).at_node(&op.name, &node.name));
    }
    let mut operators = graph.nodes.iter().filter_map(|node| Some((node.op.as_ref()?, node)));
    if let Some((op, node)) = operators.find(|(op, _)| op.shaped_by_numbers) {
        let text = "the shape of its output depends on the numbers of its inputs: expected no such \
                    operator in a bound symbol; nd.CachedOp and hybridized blocks run it";
        return Err(Error::not_implemented(text).at_node(&op.name, &node.name));
    }
    Ok(())
}

/// An error that lists the variables whose shapes are unknown.
fn refuse_unknown_variables(graph: &Graph, shapes: &[Shape]) -> Result<()> {
    let unknown = |id: &usize| !shapes[graph.entries_of(*id).start].is_known();
    let variables: Vec<usize> = (0..graph.nodes.len())
        .filter(|&id| graph.nodes[id].is_variable())
        .filter(unknown)
        .collect();
    if variables.is_empty() {
        return Ok(());
    }
    let mut text = "give more shapes, as those of these arguments are not known (-1 is an unknown \
                    extent): "
        .to_owned();
    for (i, &id) in variables.iter().enumerate() {
        let shape = &shapes[graph.entries_of(id).start];
        let dims: Vec<String> = shape.dims().iter().map(i64::to_string).collect();
        let shown = match (shape.rank_known(), dims.len()) {
            (false, _) => "None".to_owned(),
            (true, 1) => format!("({},)", dims[0]),
            (true, _) => format!("({})", dims.join(", ")),
        };
        let comma = if i > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{}: {shown}", graph.nodes[id].name);
    }
    Err(Error::value(text))
}
