//! Pushes of Python functions: their arguments, checked, and the task that hands the function to a
//! callback thread.

use super::call_site::find_call_site;
use super::callback_threads::{self, Job};
use super::engine_args::{Listed, context, function_arg};
use super::engine_call::{Ends, FunctionCall, Named, PushedFunction, device_of, name_of};
use super::error::IntoPy;
use super::runtime;
use crate::context::Context;
use crate::engine::RunContext as EngineRun;
use crate::engine::{OnComplete, Prop, Push, RunOn, Task, Var};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// One push of a function, or of nothing.
pub struct Pushing<'a> {
    pub ctx: Context,
    pub reads: &'a [Var],
    pub writes: &'a [Var],
    pub prop: Prop,
    pub priority: i32,
}

/// The name of an operation that has neither a name nor a function.
pub const UNNAMED: &str = "function";

impl Pushing<'_> {
    pub fn push<'py>(
        &self,
        py: Python<'py>,
        function: Option<Bound<'py, PyAny>>,
        name: Option<Bound<'py, PyString>>,
        ends: Ends,
    ) -> PyResult<()> {
        let engine = &runtime().engine;
        let Some(function) = function else {
            let name = name.as_ref().map_or(Ok(UNNAMED), |name| name.to_str())?;
            return engine.push(Task::nothing(), self.named(name)).py(py);
        };
        function_arg(&function)?;
        let kept_name = name.map_or_else(|| name_of(&function), Ok)?;
        let name = kept_name.to_str()?;
        let (function, label) = (function.unbind(), kept_name.clone().unbind());
        let function = PushedFunction::Own(Named { function, name: label });
        let hand_on = move |run: &EngineRun, token| hand_on(function, ends, run, token);
        let task = match ends {
            Ends::ByReturning => Task::handed_off(hand_on),
            Ends::ByToken => Task::asynchronous(hand_on),
        };
        if engine.runs_inside_push() {
            // The naive engine waits in its push, until the operation is completed.
            return py.detach(|| engine.push(task, self.named(name))).py(py);
        }
        engine.push(task, self.named(name)).py(py)
    }

    fn named<'a>(&'a self, name: &'a str) -> Push<'a> {
        Push {
            ctx: self.ctx,
            prop: self.prop,
            priority: self.priority,
            // The task itself only hands the function on, or does nothing.
            run_on: RunOn::Pusher,
            call_site: Some(&find_call_site),
            ..Push::new(name, self.reads, self.writes)
        }
    }
}

/// The arguments of `push_sync` and `push_async` after the function.
pub struct PushArguments<'a, 'py> {
    pub ctx: Option<&'a Bound<'py, PyAny>>,
    pub const_vars: Option<&'a Bound<'py, PyAny>>,
    pub mutate_vars: Option<&'a Bound<'py, PyAny>>,
    pub prop: Option<Prop>,
    pub priority: i32,
    pub name: Option<Bound<'py, PyString>>,
}

impl<'py> PushArguments<'_, 'py> {
    pub fn push(self, py: Python<'py>, fun: Option<Bound<'py, PyAny>>, ends: Ends) -> PyResult<()> {
        let const_vars = Listed::of("const_vars", self.const_vars)?;
        let mutate_vars = Listed::of("mutate_vars", self.mutate_vars)?;
        let reads = const_vars.vars("const_vars")?;
        let writes = mutate_vars.vars("mutate_vars")?;
        let (ctx, prop) = (context(self.ctx)?, self.prop.unwrap_or(Prop::Normal));
        let priority = self.priority;
        let call = Pushing { ctx, reads: &reads, writes: &writes, prop, priority };
        call.push(py, fun, self.name, ends)
    }
}

/// The engine's side of a function's run: hands the function to a callback thread.
pub fn hand_on(function: PushedFunction, ends: Ends, run: &EngineRun, token: OnComplete) {
    let stream = device_of(run.ctx).map(|device| device.stream());
    let call = FunctionCall { function, ends, ctx: run.ctx, stream, token };
    if runtime().engine.runs_inside_push() {
        // The naive engine: here and now. Its thread may hold the interpreter while it waits.
        return Python::attach(|py| call.run(py));
    }
    callback_threads::submit_job(Job::Function(call), run.priority);
}
