//! A call of a loop or condition: the passes of its bodies in order, forward or backward.

use super::backward::push_backward;
use super::layout::{Feed, Kind, Layout, Yield, slice};
use super::memory::{BodyMemory, LoopState, mode};
use crate::engine::{Prop, Push, Task};
use crate::error::{Error, Result};
use crate::executor::inline::value_if_idle;
use crate::executor::operands::Operands;
use crate::executor::runtime::Runtime;
use crate::executor::transfer::{push_copy, push_fill};
use crate::graph::{InputPlace, bodies};
use crate::kernels::copy::first_is_true;
use crate::ndarray::NDArray;
use crate::operator::{Attrs, Callback, Done, OpReq, OwnedCall};
use std::sync::{Arc, Weak};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// The kernel of a loop or condition, or of its gradient.
pub struct ControlFlow {
    pub rt: Weak<Runtime>,
    pub layout: fn(&Attrs) -> Result<Layout>,
    pub direction: Direction,
}

impl Callback for ControlFlow {
    fn start(&self, call: OwnedCall, done: Done) {
        let Some(rt) = self.rt.upgrade() else {
            return done(Err(Error::internal("the runtime has ended")));
        };
        let layout = match (self.layout)(&call.attrs) {
            Ok(layout) => layout,
            Err(error) => return done(Err(error)),
        };
        call.within.leave_push();
        let operands = Operands::new(&rt, &call);
        let (direction, rt) = (self.direction, rt);
        let pass =
            LoopPass { rt, layout, direction, memory: None, variables: Vec::new(), answer: None };
        RunningLoop { pass, operands, call, done }.go_on();
    }
}

/// A call under way.
struct RunningLoop {
    pass: LoopPass,
    operands: Operands,
    call: OwnedCall,
    done: Done,
}

/// How far a call has come.
enum Progress {
    /// Everything is pushed.
    Pushed,
    /// This array, of one element, says what comes next.
    Waits(NDArray),
}

impl RunningLoop {
    fn go_on(mut self) {
        let mut progress = Ok(Progress::Pushed);
        let RunningLoop { pass, operands, call, .. } = &mut self;
        let call: &OwnedCall = call;
        call.within.within(&mut || progress = pass.push(operands, call));
        match progress {
            Ok(Progress::Waits(condition)) => self.wait_for(condition),
            Ok(Progress::Pushed) => self.end(Ok(())),
            Err(error) => self.end(Err(error)),
        }
    }

    fn end(mut self, result: Result<()>) {
        if let (Some(memory), Some(state)) = (self.pass.memory.take(), loop_state(&self.call)) {
            *state.0.lock() = Some(memory);
        }
        self.operands.finish(result, self.call, self.done);
    }

    /// Goes on in an operation that reads the condition.
    fn wait_for(mut self, condition: NDArray) {
        let engine = self.pass.rt.engine.clone();
        let vars = [condition.var()];
        let task = Task::sync(move |_| {
            match condition.readable().and_then(|()| truth(&condition)) {
                Ok(answer) => {
                    self.pass.answer = Some(answer);
                    self.go_on();
                }
                Err(error) => self.end(Err(error)),
            }
            Ok(())
        });
        let push = Push { prop: Prop::NoSkip, ..Push::new("condition", &vars, &[]) };
        // A push that is refused drops the task, and with it `done`, which then reports a failure.
        let _ = engine.push(task, push);
    }
}

fn loop_state(call: &OwnedCall) -> Option<&LoopState> {
    call.state.as_ref().and_then(|state| state.downcast_ref())
}

/// The truth of a condition whose value is computed.
fn truth(condition: &NDArray) -> Result<bool> {
    Ok(first_is_true(&condition.view()?))
}

/// What is pushed in a call.
struct LoopPass {
    rt: Arc<Runtime>,
    layout: Layout,
    direction: Direction,
    memory: Option<BodyMemory>,
    /// The current loop variables, or their gradients.
    variables: Vec<NDArray>,
    /// The value of the condition that the call waited for.
    answer: Option<bool>,
}

impl LoopPass {
    /// Pushes what can be pushed by now.
    fn push(&mut self, operands: &Operands, call: &OwnedCall) -> Result<Progress> {
        match self.direction {
            Direction::Forward => self.push_forward(operands, call),
            Direction::Backward => {
                let state = loop_state(call).and_then(|state| state.0.lock().take());
                let memory = state.filter(|memory| memory.need_grad);
                let memory = memory.ok_or_else(|| {
                    Error::value(
                        "the gradient of a loop needs a run forward that keeps values for it",
                    )
                })?;
                let memory = self.memory.insert(memory);
                push_backward(memory, &self.layout, operands, call)?;
                Ok(Progress::Pushed)
            }
        }
    }

    fn push_forward(&mut self, operands: &Operands, call: &OwnedCall) -> Result<Progress> {
        let inputs = operands.inputs();
        if self.memory.is_none() {
            self.begin(inputs, call)?;
        }
        let end = match self.layout.kind {
            Kind::Each => self.slices(inputs)?,
            Kind::While(most) => most,
            Kind::Choose => 1,
        };
        while self.steps() < end {
            let mut body = 0;
            if self.layout.kind != Kind::Each {
                let answer = match self.answer.take() {
                    Some(answer) => answer,
                    None => {
                        let condition = self.condition(inputs, call)?;
                        match known(&condition) {
                            Some(answer) => answer?,
                            None => return Ok(Progress::Waits(condition)),
                        }
                    }
                };
                match (self.layout.kind, answer) {
                    (Kind::Choose, true) | (Kind::While(_), true) => body = 1,
                    (Kind::Choose, false) => body = 2,
                    (_, false) => break,
                    (Kind::Each, true) => {}
                }
            }
            self.step(body, operands, call)?;
        }
        self.finish_forward(operands, call)?;
        Ok(Progress::Pushed)
    }

    fn steps(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.steps)
    }

    /// Takes the node's memory and copies what the bodies read from outside.
    fn begin(&mut self, inputs: &[NDArray], call: &OwnedCall) -> Result<()> {
        let need_grad = call.ctx.need_grad;
        let kept = loop_state(call).and_then(|state| state.0.lock().take());
        let mut memory = match kept.filter(|memory| memory.need_grad == need_grad) {
            Some(memory) => memory,
            None => BodyMemory::new(&self.rt, &self.layout, inputs, need_grad)?,
        };
        memory.steps = 0;
        for (input, own) in inputs.iter().zip(&memory.shared) {
            own.as_ref().map_or(Ok(()), |own| push_copy(input, own))?;
        }
        self.variables = self.layout.variables.iter().map(|v| inputs[v.operand].clone()).collect();
        self.memory = Some(memory);
        Ok(())
    }

    /// The number of slices of the data.
    fn slices(&self, inputs: &[NDArray]) -> Result<usize> {
        let sliced = self.layout.uses[0].feeds.iter().find_map(|feed| match feed {
            Feed::Slice(operand) => inputs[*operand].shape().dims().first(),
            Feed::Whole(_) => None,
        });
        let rows = sliced.copied().unwrap_or(0);
        match usize::try_from(rows) {
            Ok(rows) if rows > 0 => Ok(rows),
            _ => Err(Error::invalid("number of slices", rows, "at least 1")),
        }
    }

    /// Pushes the condition; returns its value, perhaps pending.
    fn condition(&mut self, inputs: &[NDArray], call: &OwnedCall) -> Result<NDArray> {
        let outputs = self.run(0, inputs, call)?;
        match outputs.into_iter().next() {
            Some(one) if one.size() == 1 => Ok(one),
            Some(other) => {
                let shape = other.shape();
                Err(Error::value(format!(
                    "invalid condition of shape {shape}: expected one element"
                )))
            }
            None => Err(Error::internal("a condition has no output")),
        }
    }

    /// Pushes the forward pass of a body on the current values.
    fn run(&mut self, body: usize, inputs: &[NDArray], call: &OwnedCall) -> Result<Vec<NDArray>> {
        let Some(memory) = &mut self.memory else {
            return Err(Error::internal("a loop runs before it has begun"));
        };
        let step = memory.steps;
        let held = bodies(&call.attrs);
        let runner = memory.step_executor(&self.rt, held, &self.layout, body, step, inputs)?;
        let mut given = Vec::new();
        for (place, feed) in held[body].inputs.iter().zip(&self.layout.uses[body].feeds) {
            let InputPlace::Argument(argument) = *place else { continue };
            match *feed {
                Feed::Slice(operand) => {
                    let of = &inputs[operand];
                    let part = of.slice(step, step + 1)?.reshape(slice(of.shape()))?;
                    given.push((argument, part));
                }
                Feed::Whole(operand) => {
                    if let Some(v) = self.layout.variable(operand) {
                        given.push((argument, self.variables[v].clone()));
                    }
                }
            }
        }
        runner.executor.forward_own(mode(call, body, step), &given)
    }

    /// Pushes a step: its outputs go where they belong.
    fn step(&mut self, body: usize, operands: &Operands, call: &OwnedCall) -> Result<()> {
        let made = self.run(body, operands.inputs(), call)?;
        let step = self.steps();
        let mut next = self.variables.clone();
        for (to, made) in self.layout.uses[body].yields.iter().zip(&made) {
            match *to {
                Yield::Stacked(output) if call.req[output] != OpReq::Null => {
                    push_copy(made, &operands.outputs()[output].slice(step, step + 1)?)?;
                }
                Yield::Whole(output) if call.req[output] != OpReq::Null => {
                    push_copy(made, &operands.outputs()[output])?;
                }
                // A copy: the next step may run in the same memory.
                Yield::Variable(v) => {
                    let (shape, dtype) = (made.shape(), made.dtype());
                    let own = NDArray::pending(&self.rt, shape, dtype, made.context())?;
                    push_copy(made, &own)?;
                    next[v] = own;
                }
                Yield::Stacked(_) | Yield::Whole(_) | Yield::Condition => {}
            }
        }
        self.variables = next;
        if let Some(memory) = &mut self.memory {
            memory.steps += 1;
            memory.body = body;
        }
        Ok(())
    }

    /// Writes the last loop variables, zeros where no step wrote, and the auxiliary states.
    fn finish_forward(&self, operands: &Operands, call: &OwnedCall) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let outputs = operands.outputs();
        for (variable, value) in self.layout.variables.iter().zip(&self.variables) {
            if call.req[variable.output] != OpReq::Null {
                push_copy(value, &outputs[variable.output])?;
            }
        }
        if let Kind::While(most) = self.layout.kind
            && memory.steps < most
        {
            for to in &self.layout.uses[1].yields {
                if let Yield::Stacked(output) = *to
                    && call.req[output] != OpReq::Null
                {
                    push_fill(&outputs[output].slice(memory.steps, most)?, 0.0)?;
                }
            }
        }
        for operand in self.layout.mutated(bodies(&call.attrs)) {
            if let Some(own) = &memory.shared[operand] {
                push_copy(own, &operands.inputs()[operand])?;
            }
        }
        Ok(())
    }
}

/// The value of a condition that is computed by now.
fn known(condition: &NDArray) -> Option<Result<bool>> {
    value_if_idle(condition, || truth(condition))
}
