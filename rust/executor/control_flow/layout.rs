//! How the operands of a loop or condition feed the graphs that its node holds, and inference
//! through these graphs.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{InputPlace, Subgraph};
use crate::operator::{Facts, InferBody};
use crate::shape::Shape;

/// What feeds an input of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// A slice of this operand along axis 0, another one in every step.
    Slice(usize),
    /// This operand: the current value if it is a loop variable, else the same in every step.
    Whole(usize),
}

impl Feed {
    pub fn operand(self) -> usize {
        match self {
            Feed::Slice(operand) | Feed::Whole(operand) => operand,
        }
    }
}

/// Where an output of a body goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// A slice of this output along axis 0, another one in every step.
    Stacked(usize),
    /// The next value of this loop variable.
    Variable(usize),
    /// This output.
    Whole(usize),
    /// Whether to go on, or which way.
    Condition,
}

/// A body with what it reads and gives.
#[derive(Clone, Debug)]
pub struct Use {
    pub feeds: Vec<Feed>,
    pub yields: Vec<Yield>,
}

/// A loop variable: the operand that it begins as, and the output that it ends as.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub operand: usize,
    pub output: usize,
}

/// The order in which the bodies run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The only body, once for every slice.
    Each,
    /// The second body while the first one says so, at most so often.
    While(usize),
    /// The second body if the first one says so, else the third.
    Choose,
}

/// The wiring of a node.
#[derive(Clone, Debug)]
pub struct Layout {
    pub kind: Kind,
    pub operands: usize,
    pub outputs: usize,
    pub uses: Vec<Use>,
    pub variables: Vec<Variable>,
}

impl Layout {
    /// The loop variable that begins as this operand.
    pub fn variable(&self, operand: usize) -> Option<usize> {
        self.variables.iter().position(|v| v.operand == operand)
    }

    /// An error if the numbers of `bodies`' inputs and outputs are not those of the layout, or a
    /// body would modify what is not a free variable.
    pub fn check(&self, bodies: &[Subgraph]) -> Result<()> {
        if bodies.is_empty() {
            return Err(Error::value(
                "the node has no subgraphs: functions of sym.contrib (foreach, while_loop, cond) \
                 make them",
            ));
        }
        for (number, (body, of)) in bodies.iter().zip(&self.uses).enumerate() {
            let counts = [
                ("inputs", body.inputs.len(), of.feeds.len()),
                ("outputs", body.num_outputs(), of.yields.len()),
            ];
            for (what, got, expected) in counts {
                if got != expected {
                    let what = format!("number of {what} of subgraph {number}");
                    return Err(Error::invalid(&what, got, expected));
                }
            }
            for (at, feed) in of.feeds.iter().enumerate() {
                let free =
                    matches!(feed, Feed::Whole(operand) if self.variable(*operand).is_none());
                if feed.operand() >= self.operands {
                    let expected = format!("less than {}", self.operands);
                    return Err(Error::invalid("place of an input", feed.operand(), expected));
                }
                if !free && matches!(body.inputs[at], InputPlace::Auxiliary(_)) {
                    let expected = "a variable from outside, as it is an auxiliary state";
                    return Err(Error::invalid("input", &body.names[at], expected));
                }
            }
        }
        Ok(())
    }

    /// The operands that a body modifies.
    pub fn mutated(&self, bodies: &[Subgraph]) -> Vec<usize> {
        let mut mutated = Vec::new();
        for (body, of) in bodies.iter().zip(&self.uses) {
            for (place, feed) in body.inputs.iter().zip(&of.feeds) {
                let operand = feed.operand();
                if matches!(place, InputPlace::Auxiliary(_)) && !mutated.contains(&operand) {
                    mutated.push(operand);
                }
            }
        }
        mutated.sort_unstable();
        mutated
    }

    /// Infers shapes and dtypes in both directions through the bodies: `infer` does so in one of
    /// them, and says which dtypes it demands. Returns what they demand of the operands.
    pub fn infer(
        &self,
        bodies: &[Subgraph],
        ins: Facts<'_>,
        outs: Facts<'_>,
        infer: &mut InferBody<'_>,
    ) -> Result<Vec<Option<DType>>> {
        self.check(bodies)?;
        let extent = self.extent(ins.0, outs.0)?;
        let mut demands = vec![None; self.operands];
        for (number, of) in self.uses.iter().enumerate() {
            let mut shapes = self.of_body(of, ins.0, outs.0)?;
            let mut types = self.of_body(of, ins.1, outs.1)?;
            let facts = ((&mut *shapes.0, &mut *types.0), (&mut *shapes.1, &mut *types.1));
            let demanded = infer(number, facts.0, facts.1)?;
            self.learn(of, extent, &shapes, ins.0, outs.0)?;
            self.learn(of, extent, &types, ins.1, outs.1)?;
            for (feed, dtype) in of.feeds.iter().zip(demanded) {
                let demand: &mut Option<DType> = &mut demands[feed.operand()];
                *demand = demand.or(dtype);
            }
        }
        Ok(demands)
    }

    /// What is known of the inputs and outputs of a body.
    fn of_body<F: Fact>(
        &self,
        of: &Use,
        inputs: &mut [F],
        outputs: &mut [F],
    ) -> Result<(Vec<F>, Vec<F>)> {
        let feed = |feed: &Feed| match *feed {
            Feed::Slice(operand) => inputs[operand].of_slice(),
            Feed::Whole(operand) => inputs[operand].clone(),
        };
        let ins = of.feeds.iter().map(feed).collect();
        let mut outs = Vec::with_capacity(of.yields.len());
        for to in &of.yields {
            outs.push(match *to {
                Yield::Stacked(output) => outputs[output].of_slice(),
                Yield::Whole(output) => outputs[output].clone(),
                Yield::Variable(v) => self.merged(v, inputs, outputs)?,
                Yield::Condition => F::unknown(),
            });
        }
        Ok((ins, outs))
    }

    /// Takes over what was found out about the inputs and outputs of a body.
    fn learn<F: Fact>(
        &self,
        of: &Use,
        extent: i64,
        (ins, outs): &(Vec<F>, Vec<F>),
        inputs: &mut [F],
        outputs: &mut [F],
    ) -> Result<()> {
        for (feed, found) in of.feeds.iter().zip(ins) {
            match *feed {
                // From a slice of one element the rank does not follow.
                Feed::Slice(operand) if inputs[operand].is_of_vector() => {}
                Feed::Slice(operand) => inputs[operand].learn(&found.stacked(extent))?,
                Feed::Whole(operand) => inputs[operand].learn(found)?,
            }
        }
        for (to, found) in of.yields.iter().zip(outs) {
            match *to {
                Yield::Stacked(output) => outputs[output].learn(&found.stacked(extent))?,
                Yield::Whole(output) => outputs[output].learn(found)?,
                Yield::Variable(v) => {
                    inputs[self.variables[v].operand].learn(found)?;
                    self.merged(v, inputs, outputs).map(drop)?;
                }
                Yield::Condition => {}
            }
        }
        Ok(())
    }

    /// What is known of a loop variable, as operand and as output.
    fn merged<F: Fact>(&self, v: usize, inputs: &mut [F], outputs: &mut [F]) -> Result<F> {
        let Variable { operand, output } = self.variables[v];
        inputs[operand].learn(&outputs[output])?;
        outputs[output].clone_from(&inputs[operand]);
        Ok(outputs[output].clone())
    }

    /// The extent along which the steps are stacked; -1 if it is unknown.
    fn extent(&self, inputs: &[Shape], outputs: &[Shape]) -> Result<i64> {
        let mut extent = match self.kind {
            Kind::While(most) => most as i64,
            Kind::Each | Kind::Choose => -1,
        };
        for of in &self.uses {
            let sliced = of.feeds.iter().filter_map(|feed| match *feed {
                Feed::Slice(operand) => Some(&inputs[operand]),
                Feed::Whole(_) => None,
            });
            let given = of.yields.iter().filter_map(|to| match *to {
                Yield::Stacked(output) => Some(&outputs[output]),
                _ => None,
            });
            for shape in sliced.chain(given).filter(|shape| shape.rank_known()) {
                let Some(&rows) = shape.dims().first() else {
                    return Err(Error::value(
                        "invalid data of shape (): expected at least one axis",
                    ));
                };
                if rows == 0 || (extent >= 0 && rows >= 0 && rows != extent) {
                    let expected = match extent {
                        ..0 => "at least 1".to_owned(),
                        known => known.to_string(),
                    };
                    return Err(Error::invalid("extent of axis 0", rows, expected));
                }
                extent = extent.max(rows);
            }
        }
        Ok(extent)
    }
}

/// What inference finds out about an array: its shape, or its dtype.
trait Fact: Clone {
    fn unknown() -> Self;
    fn is_of_vector(&self) -> bool;
    fn learn(&mut self, found: &Self) -> Result<()>;

    /// The fact about a slice along axis 0.
    fn of_slice(&self) -> Self;

    /// The fact about `extent` such slices.
    fn stacked(&self, extent: i64) -> Self;
}

impl Fact for Shape {
    fn unknown() -> Self {
        Shape::unknown()
    }

    fn is_of_vector(&self) -> bool {
        self.ndim() == 1
    }

    fn learn(&mut self, found: &Self) -> Result<()> {
        self.merge(found).map(drop)
    }

    fn of_slice(&self) -> Self {
        slice(self)
    }

    fn stacked(&self, extent: i64) -> Self {
        stacked(extent, self)
    }
}

impl Fact for Option<DType> {
    fn unknown() -> Self {
        None
    }

    fn is_of_vector(&self) -> bool {
        false
    }

    fn learn(&mut self, found: &Self) -> Result<()> {
        match (*self, *found) {
            (Some(a), Some(b)) if a != b => Err(Error::type_(format!(
                "the body gives {b} where {a} is expected: a loop variable keeps its dtype"
            ))),
            (known, found) => {
                *self = known.or(found);
                Ok(())
            }
        }
    }

    fn of_slice(&self) -> Self {
        *self
    }

    fn stacked(&self, _: i64) -> Self {
        *self
    }
}

/// The shape of a slice along axis 0: of a vector it has one element.
pub fn slice(shape: &Shape) -> Shape {
    match shape.dims() {
        _ if !shape.rank_known() => Shape::unknown(),
        [] | [_] => Shape::new(&[1]),
        [_, rest @ ..] => Shape::new(rest),
    }
}

fn stacked(extent: i64, slice: &Shape) -> Shape {
    if !slice.rank_known() {
        return Shape::unknown();
    }
    std::iter::once(extent).chain(slice.dims().iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_stacks_are_inverse_but_for_vectors() {
        let shape = Shape::new(&[5, 2, -1]);
        assert_eq!(slice(&shape), Shape::new(&[2, -1]));
        assert_eq!(stacked(5, &slice(&shape)), shape);
        assert_eq!(slice(&Shape::new(&[5])), Shape::new(&[1]));
        assert!(!slice(&Shape::unknown()).rank_known());
        assert!(!stacked(3, &Shape::unknown()).rank_known());
    }
}
