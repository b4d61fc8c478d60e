//! Loops and conditions as operators: `_foreach`, `_while_loop` and `_cond`.
//!
//! Their nodes hold graphs ([`crate::graph::Subgraph`]). `layout` says how operands feed these
//! graphs, and infers through them; `memory` has the executors that run them, each planned once;
//! `run` is what happens in a call.
//!
//! A call is a callback: it pushes the passes of its bodies and ends when they have ended. It holds
//! no thread meanwhile: where a loop depends on a condition, the rest of the call is an operation
//! that reads the condition.

mod backward;
mod layout;
mod memory;
mod run;

use super::runtime::Runtime;
use crate::error::{Error, Result};
use crate::graph::bodies;
use crate::operator::{
    Attrs, Body, Dep, Gradient, Kernel, OpDef, OpState, ParamStruct, ResourceRequest, Tuple,
};
use crate::shape::Shape;
use layout::{Feed, Kind, Layout, Use, Variable, Yield};
use memory::LoopState;
use run::{ControlFlow, Direction};
use std::sync::{Arc, Weak};

crate::params! {
    /// Parameters of `_foreach`.
    struct ForeachParam {
        num_args: u32, required.le(65_535.0), "Number of inputs, and 1 for the subgraph.";
        num_outputs: u32, required.le(65_535.0), "Number of outputs.";
        num_out_data: u32, required.le(65_535.0), "How many of the outputs are stacked; the others \
                                                   are states.";
        in_state_locs: Tuple, required, "Places of the states among the inputs of the subgraph.";
        in_data_locs: Tuple, required, "Places of the slices among the inputs of the subgraph.";
        remain_locs: Tuple, required, "Places of all else among the inputs of the subgraph.";
    }
}

crate::params! {
    /// Parameters of `_while_loop`.
    struct WhileParam {
        num_args: u32, required.le(65_535.0), "Number of inputs, and 2 for the subgraphs.";
        num_outputs: u32, required.le(65_535.0), "Number of outputs.";
        num_out_data: u32, required.le(65_535.0), "How many of the outputs are stacked; the others \
                                                   are loop variables.";
        max_iterations: u32, required.ge(1.0), "Greatest number of steps.";
        cond_input_locs: Tuple, required, "The input of the node for each input of the condition.";
        func_input_locs: Tuple, required, "The input of the node for each input of the body.";
        func_var_locs: Tuple, required, "Places of the loop variables among the inputs of the \
                                         body.";
    }
}

crate::params! {
    /// Parameters of `_cond`.
    struct CondParam {
        num_args: u32, required.le(65_535.0), "Number of inputs, and 3 for the subgraphs.";
        num_outputs: u32, required.le(65_535.0), "Number of outputs.";
        cond_input_locs: Tuple, required, "The input of the node for each input of the condition.";
        then_input_locs: Tuple, required, "The input of the node for each input of the first \
                                           branch.";
        else_input_locs: Tuple, required, "The input of the node for each input of the second \
                                           branch.";
    }
}

/// Parameters that wire operands to bodies.
trait Wiring: ParamStruct {
    const BODIES: usize;
    fn counts(&self) -> (u32, u32);
    fn layout(&self) -> Result<Layout>;

    fn operands(&self) -> usize {
        (self.counts().0 as usize).saturating_sub(Self::BODIES)
    }
}

/// Items of a tuple as places below `end`.
fn places(name: &str, tuple: &Tuple, end: usize) -> Result<Vec<usize>> {
    let place = |&item: &i64| {
        let fits = usize::try_from(item).ok().filter(|place| *place < end);
        fits.ok_or_else(|| Error::invalid(name, item, format!("0 or more, and less than {end}")))
    };
    tuple.iter().map(place).collect()
}

/// As [`places`], of inputs that are fed whole.
fn whole(name: &str, tuple: &Tuple, operands: usize) -> Result<Vec<Feed>> {
    Ok(places(name, tuple, operands)?.into_iter().map(Feed::Whole).collect())
}

/// The outputs of a step: `stacked` ones, then loop variables.
fn yields(stacked: usize, outputs: usize) -> Vec<Yield> {
    let variables = (0..outputs.saturating_sub(stacked)).map(Yield::Variable);
    (0..stacked).map(Yield::Stacked).chain(variables).collect()
}

impl Wiring for ForeachParam {
    const BODIES: usize = 1;

    fn counts(&self) -> (u32, u32) {
        (self.num_args, self.num_outputs)
    }

    fn layout(&self) -> Result<Layout> {
        let (operands, outputs) = (self.operands(), self.num_outputs as usize);
        let groups = [
            ("in_data_locs", &self.in_data_locs),
            ("in_state_locs", &self.in_state_locs),
            ("remain_locs", &self.remain_locs),
        ];
        let stacked = self.num_out_data as usize;
        let states = self.in_state_locs.len();
        if stacked + states != outputs {
            let expected = format!("{stacked} of data and {states} of states");
            return Err(Error::invalid("num_outputs", outputs, expected));
        }
        // The operands are in the order of the groups.
        let mut feeds = vec![None; operands];
        let mut operand = 0;
        for (name, group) in groups {
            for place in places(name, group, operands)? {
                let sliced = operand < self.in_data_locs.len();
                let feed = if sliced { Feed::Slice(operand) } else { Feed::Whole(operand) };
                feeds[place] = Some(feed);
                operand += 1;
            }
        }
        let feeds: Option<Vec<Feed>> = feeds.into_iter().collect();
        let Some(feeds) = feeds.filter(|_| operand == operands) else {
            let expected = format!("each of {operands} places once");
            return Err(Error::invalid("in_data_locs, in_state_locs, remain_locs", "", expected));
        };
        let first = self.in_data_locs.len();
        let variable = |i| Variable { operand: first + i, output: stacked + i };
        let variables = (0..states).map(variable).collect();
        let uses = vec![Use { feeds, yields: yields(stacked, outputs) }];
        Ok(Layout { kind: Kind::Each, operands, outputs, uses, variables })
    }
}

impl Wiring for WhileParam {
    const BODIES: usize = 2;

    fn counts(&self) -> (u32, u32) {
        (self.num_args, self.num_outputs)
    }

    fn layout(&self) -> Result<Layout> {
        let (operands, outputs) = (self.operands(), self.num_outputs as usize);
        let stacked = self.num_out_data as usize;
        let condition = whole("cond_input_locs", &self.cond_input_locs, operands)?;
        let feeds = whole("func_input_locs", &self.func_input_locs, operands)?;
        let variables = places("func_var_locs", &self.func_var_locs, feeds.len())?;
        if stacked + variables.len() != outputs {
            let expected = format!("{stacked} of data and {} of loop variables", variables.len());
            return Err(Error::invalid("num_outputs", outputs, expected));
        }
        let variable = |(i, place): (usize, usize)| Variable {
            operand: feeds[place].operand(),
            output: stacked + i,
        };
        let variables = variables.into_iter().enumerate().map(variable).collect();
        let uses = vec![
            Use { feeds: condition, yields: vec![Yield::Condition] },
            Use { feeds, yields: yields(stacked, outputs) },
        ];
        let kind = Kind::While(self.max_iterations as usize);
        Ok(Layout { kind, operands, outputs, uses, variables })
    }
}

impl Wiring for CondParam {
    const BODIES: usize = 3;

    fn counts(&self) -> (u32, u32) {
        (self.num_args, self.num_outputs)
    }

    fn layout(&self) -> Result<Layout> {
        let (operands, outputs) = (self.operands(), self.num_outputs as usize);
        let results: Vec<Yield> = (0..outputs).map(Yield::Whole).collect();
        let branch = |name, tuple| -> Result<Use> {
            Ok(Use { feeds: whole(name, tuple, operands)?, yields: results.clone() })
        };
        let condition = whole("cond_input_locs", &self.cond_input_locs, operands)?;
        let uses = vec![
            Use { feeds: condition, yields: vec![Yield::Condition] },
            branch("then_input_locs", &self.then_input_locs)?,
            branch("else_input_locs", &self.else_input_locs)?,
        ];
        Ok(Layout { kind: Kind::Choose, operands, outputs, uses, variables: Vec::new() })
    }
}

/// The definitions of operator `name` and of its backward operator.
fn define<P: Wiring>(rt: &Weak<Runtime>, name: &str, doc: &str) -> [OpDef; 2] {
    let back = format!("_backward{name}");
    let layout = |attrs: &Attrs| attrs.get::<P>().layout();
    let kernel = |direction| {
        let run = ControlFlow { rt: rt.clone(), layout, direction };
        let mut kernel = Kernel::cpu(|_| Ok(())).skips_null();
        kernel.body = Body::Callback(Arc::new(run));
        kernel
    };
    let outputs = |attrs: &Attrs| attrs.get::<P>().counts().1 as usize;
    let mutated = move |attrs: &Attrs| {
        layout(attrs).map_or_else(|_| Vec::new(), |layout| layout.mutated(bodies(attrs)))
    };
    let forward = OpDef::new::<P>(name)
        .doc(doc)
        .holds_graphs(P::BODIES)
        .no_auto_variables()
        .many_inputs("What the subgraphs read.", |attrs| {
            (0..attrs.get::<P>().operands()).map(|i| format!("data{i}")).collect()
        })
        .numbered_outputs(outputs)
        .mutates_by(mutated)
        .infer_shape(move |attrs, inputs, outputs| {
            let (mut ins, mut outs) = (vec![None; inputs.len()], vec![None; outputs.len()]);
            let (ins, outs) = ((&mut *inputs, &mut *ins), (&mut *outputs, &mut *outs));
            layout(attrs)?.infer(bodies(attrs), ins, outs, &mut |body, ins, outs| {
                bodies(attrs)[body].infer_shapes(ins.0, outs.0).map(|()| Vec::new())
            })?;
            Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
        })
        .infer_type(move |attrs, inputs, outputs| {
            let unknown = |types: &[_]| vec![Shape::unknown(); types.len()];
            let (mut ins, mut outs) = (unknown(inputs), unknown(outputs));
            let (ins, outs) = ((&mut *ins, &mut *inputs), (&mut *outs, &mut *outputs));
            layout(attrs)?.infer(bodies(attrs), ins, outs, &mut |body, ins, outs| {
                bodies(attrs)[body].infer_types(ins.1, outs.1).map(|()| Vec::new())
            })?;
            Ok(inputs.iter().chain(&*outputs).all(Option::is_some))
        })
        .infer_through(move |attrs, ins, outs, infer| {
            layout(attrs)?.infer(bodies(attrs), ins, outs, infer)
        })
        .resources(&[ResourceRequest::Random])
        .not_deterministic()
        .state(|_, _, _, _| Ok(Arc::new(LoopState::default()) as OpState))
        .gradient(Gradient::declared(&back, move |attrs, _, outputs| {
            // Auxiliary states may be updated backward.
            let states = mutated(attrs).into_iter().map(Dep::Input);
            (0..outputs).map(Dep::OutGrad).chain(states).collect()
        }))
        .kernel(kernel(Direction::Forward));
    let backward = OpDef::new::<P>(&back)
        .mutates_by(move |attrs| (outputs(attrs)..outputs(attrs) + mutated(attrs).len()).collect())
        .resources(&[ResourceRequest::Random])
        .not_deterministic()
        .kernel(kernel(Direction::Backward));
    [forward, backward]
}

/// The operators of this room, which run on `rt`.
pub fn definitions(rt: &Weak<Runtime>) -> Vec<OpDef> {
    let [foreach, foreach_back] = define::<ForeachParam>(rt, "_foreach", FOREACH);
    let [while_loop, while_back] = define::<WhileParam>(rt, "_while_loop", WHILE_LOOP);
    let [cond, cond_back] = define::<CondParam>(rt, "_cond", COND);
    vec![foreach, foreach_back, while_loop, while_back, cond, cond_back]
}

const FOREACH: &str = "A loop over slices along axis 0, which :func:`rsnet.sym.contrib.foreach`
makes.

With the subgraph f: out_k, s_{k+1} = f(data[k], s_k, rest); the outputs are all out_k, stacked
along axis 0, and the last s. Slices of a vector have the shape (1,). Gradients flow through all
steps.

Examples
--------
>>> step = lambda x, total: (total + x, total + x)
>>> sums, last = sym.contrib.foreach(step, sym.Variable('x'), sym.Variable('start'))
>>> sums.eval(x=nd.array([1, 2, 3]), start=nd.array([0]))[0].asnumpy().ravel().tolist()
[1.0, 3.0, 6.0]
";

const WHILE_LOOP: &str =
    "A loop with a condition, which :func:`rsnet.sym.contrib.while_loop` makes.

With the subgraphs c and f: while c(v_k, rest) is not zero and k < max_iterations,
out_k, v_{k+1} = f(v_k, rest); the outputs are all out_k, stacked along axis 0 and filled up with
zeros to max_iterations rows, and the last v. Gradients flow through the steps that ran.

Examples
--------
>>> step = lambda i: (i * 2, i + 1)
>>> rows, last = sym.contrib.while_loop(lambda i: i < 3, step, sym.Variable('i'), max_iterations=4)
>>> rows.eval(i=nd.array([1]))[0].asnumpy().ravel().tolist()
[2.0, 4.0, 0.0, 0.0]
";

const COND: &str = "A choice between two graphs, which :func:`rsnet.sym.contrib.cond` makes.

With the subgraphs c, f and g: the outputs are f(inputs) if c(inputs), which has one element, is not
zero, else g(inputs). Only the graph that is chosen runs; the inputs of the other one alone have a
gradient of zero.

Examples
--------
>>> x = sym.Variable('x')
>>> sym.contrib.cond(x < 0, lambda: -x, lambda: x).eval(x=nd.array([-2]))[0].asnumpy().tolist()
[2.0]
";
