//! Running the steps of a segment.

use super::{PassInfo, Program};
use crate::cuda::Device;
use crate::engine::{Mark, OnComplete, RunContext};
use crate::error::Result;
use crate::executor::call_site::{self, CallSite};
use crate::executor::chain::{Chain, Link, Part};
use crate::executor::on_device::complete;
use crate::executor::replay::Run;
use crate::executor::run::{PendingCallback, label};
use crate::executor::step::Step;
use crate::executor::transfer::copy_between;
use crate::kernels::copy::copy;
use crate::kernels::kept::Keeper;
use crate::ndarray::NDArray;
use crate::operator::{Around, Done, OpContext, OpReq, OwnedCall, Within};
use crate::profiler::{Span, mode};
use crate::tensor::View;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A keeper for what the kernel of a step makes of its weights: outside of training, and of bulks,
/// in which what one function writes is not counted before the next one reads it.
#[inline]
fn keeper<'a>(step: &'a Step, run: &PassInfo, within: &RunContext) -> Option<Keeper<'a>> {
    let kept = step.kept.as_ref()?;
    if run.is_train {
        kept.clear();
        return None;
    }
    if within.is_bulk {
        return None;
    }
    kept.keeper(run.places.of(kept.array()))
}

impl Program {
    fn context(&self, at: usize, run: &PassInfo, stream: Option<usize>) -> OpContext {
        OpContext {
            is_train: run.is_train,
            need_grad: run.need_grad,
            device: self.steps[at].device,
            stream,
            random: run.keys.get(at).copied().unwrap_or_default(),
        }
    }

    /// Runs steps of which some are recorded, or may be: in a pass over the program's own operands
    /// that no monitor watches.
    pub(super) fn run_recorded(
        &self,
        runs: &[Run],
        run: &PassInfo,
        within: &RunContext,
    ) -> Result<()> {
        let is_seen = self.is_seen();
        let is_fixed = run.places.is_empty() && !is_seen;
        for Run { steps, replay } in runs {
            if let Some(replay) = replay.as_ref().filter(|_| is_fixed) {
                let mut recorded =
                    steps.iter().map(|&i| (&self.steps[i], self.context(i, run, within.stream)));
                let first = &self.steps[steps[0]];
                let issued = replay.issue(run.is_train, &mut recorded);
                if issued.map_err(|e| self.place(first, e))? {
                    self.end_run(steps, replay.device()).map_err(|e| self.place(first, e))?;
                    continue;
                }
            }
            self.run_singly(steps.iter().copied(), run, within, is_seen)?;
        }
        Ok(())
    }

    /// As [`Program::end_step`], for steps that were issued as a whole.
    fn end_run(&self, steps: &[usize], device: &Arc<Device>) -> Result<()> {
        let ticket = device.mark(Some((self.plan.clone(), self.steps[steps[0]].node)))?;
        let arenas = self.memory.arenas.iter().filter(|a| a.device == device.context());
        let written = steps.iter().flat_map(|&i| self.steps[i].writes.iter().map(|(a, _)| a));
        written.chain(arenas.map(|arena| &arena.array)).for_each(|a| a.note_write(ticket));
        Ok(())
    }

    pub(super) fn run_native(
        &self,
        parts: &[Part],
        run: &PassInfo,
        within: &RunContext,
    ) -> Result<()> {
        let is_seen = self.is_seen();
        for Part { steps, is_chain } in parts {
            let chained = *is_chain && !is_seen;
            let done = if chained { self.run_chain(steps.clone(), run, within)? } else { 0 };
            self.run_singly(steps.start + done..steps.end, run, within, is_seen)?;
        }
        Ok(())
    }

    /// Asked once per segment: a run that has begun is seen by the profiler whole or not at all.
    fn is_seen(&self) -> bool {
        self.base.profiler.is_on(mode::SYMBOLIC)
    }

    #[inline]
    fn run_singly(
        &self,
        steps: impl IntoIterator<Item = usize>,
        run: &PassInfo,
        within: &RunContext,
        is_seen: bool,
    ) -> Result<()> {
        let is_plain = run.places.is_empty();
        for i in steps {
            let step = &self.steps[i];
            if let Some(fixed) = step.fixed.as_ref().filter(|_| is_plain && !is_seen) {
                // SAFETY: the step's views are valid, and the engine orders what uses them.
                unsafe { fixed.run() };
                continue;
            }
            let ctx = self.context(i, run, within.stream);
            let keeping;
            let around = match keeper(step, run, within) {
                None => Around::NONE,
                keeper => {
                    keeping = Around { keeper, ..Around::default() };
                    &keeping
                }
            };
            let _span = if is_seen { self.span(step) } else { None };
            match is_plain {
                true => self.run_step(step, &ctx, (&step.inputs, &step.outputs), around),
                false => self.run_in_places(step, &ctx, run, around),
            }
            .map_err(|e| self.place(step, e))?;
        }
        Ok(())
    }

    /// Runs as many of these steps as one chain as their operands allow, and returns their number;
    /// 0, and nothing was done, if that is not two.
    #[inline(never)]
    fn run_chain(&self, steps: Range<usize>, run: &PassInfo, within: &RunContext) -> Result<usize> {
        let replaced: SmallVec<[_; 4]> =
            self.steps[steps.clone()].iter().map(|s| run.places.views(s)).collect::<Result<_>>()?;
        let links: SmallVec<[Link<'_>; 4]> = steps
            .zip(&replaced)
            .map(|(i, views)| {
                let (step, ctx) = (&self.steps[i], self.context(i, run, within.stream));
                let (inputs, outputs) = match views {
                    None => (&*step.inputs, &*step.outputs),
                    Some(views) => views.split_at(step.inputs.len()),
                };
                Link { step, ctx, inputs, outputs, keeper: keeper(step, run, within) }
            })
            .collect();
        let count = Chain(&links).sound_length();
        if count < 2 {
            return Ok(0);
        }
        Chain(&links[..count]).run().map(|()| count).map_err(|(step, e)| self.place(step, e))
    }

    /// Runs a step on operands of which some are replaced. By itself, because the room for their
    /// views would cost every step of every run.
    #[inline(never)]
    fn run_in_places(
        &self,
        step: &Step,
        ctx: &OpContext,
        run: &PassInfo,
        around: &Around<'_>,
    ) -> Result<()> {
        match run.places.views(step)? {
            None => self.run_step(step, ctx, (&step.inputs, &step.outputs), around),
            Some(views) => self.run_step(step, ctx, views.split_at(step.inputs.len()), around),
        }
    }

    #[inline]
    fn run_step(
        &self,
        step: &Step,
        ctx: &OpContext,
        (inputs, outputs): (&[View], &[View]),
        around: &Around<'_>,
    ) -> Result<()> {
        for (state, own) in &step.spared {
            match own.device()? {
                None => copy(state, &own.view()?),
                Some(device) => complete(device, state, &own.view()?, false)?,
            }
        }
        let state = step.state.as_ref();
        match (&step.direct, &step.crossing) {
            (Some(asked), _) => {
                step.prepared.run_direct(ctx, state, inputs, asked, outputs, around)
            }
            (None, Some((source, target))) => {
                copy_between(source, target, step.req[0] == OpReq::Add)
            }
            (None, None) => step.prepared.run_native(ctx, state, inputs, &step.req, outputs),
        }
        .and_then(|()| self.end_step(step))
    }

    /// Marks the work that a step has issued on its device, if it has, and notes that on what it
    /// writes.
    fn end_step(&self, step: &Step) -> Result<()> {
        let Some(device) = step.computes_on() else { return Ok(()) };
        let ticket = device.mark(Some((self.plan.clone(), step.node)))?;
        let arenas = self.memory.arenas.iter().filter(|arena| arena.device == step.device);
        let written = step.writes.iter().map(|(array, _)| array);
        written.chain(arenas.map(|arena| &arena.array)).for_each(|a| a.note_write(ticket));
        Ok(())
    }

    /// The span of a step, under the name of its operator and with that of its node.
    #[cold]
    fn span<'a>(&'a self, step: &'a Step) -> Option<Span<'a>> {
        let node = &self.plan.graph.nodes[step.node as usize];
        self.base.profiler.operator(mode::SYMBOLIC, node.op_name(), &node.name, step.device)
    }

    /// Starts a step that is a callback. `line` is the user's if the step pushes operations of its
    /// own.
    pub(super) fn start_callback(
        self: &Arc<Self>,
        (at, has_peers): (usize, bool),
        line: OnceLock<Option<Arc<str>>>,
        run: &PassInfo,
        stream: Option<usize>,
        done: OnComplete,
    ) {
        let step = &self.steps[at];
        let ctx = self.context(at, run, stream);
        let program = self.clone();
        let running = Arc::new(RunningStep { mark: done.mark(), program, at, has_peers, line });
        let within = running.clone();
        let named: Done = Box::new(move |result| done.complete(running.end(result)));
        let (inputs, outputs) = match run.places.views(step) {
            Ok(None) => (step.inputs.clone(), step.outputs.clone()),
            Ok(Some(views)) => {
                let (inputs, outputs) = views.split_at(step.inputs.len());
                (inputs.into(), outputs.into())
            }
            Err(error) => return named(Err(error)),
        };
        // Not the program: it has the operator's state, which may keep an operand and so would keep
        // itself.
        let keep: Arc<dyn std::any::Any + Send + Sync> = match step.spared.as_slice() {
            [] if run.places.is_empty() => self.memory.clone(),
            spared => {
                let own: Vec<NDArray> = spared.iter().map(|(_, own)| own.clone()).collect();
                Arc::new((self.memory.clone(), own, run.places.clone()))
            }
        };
        let prepared = &step.prepared;
        let call = OwnedCall {
            attrs: Arc::clone(&prepared.attrs),
            ctx,
            state: step.state.clone(),
            inputs,
            mutated: prepared.mutated.clone(),
            req: step.req.as_slice().into(),
            outputs,
            keep,
            within,
        };
        prepared.start_callback(PendingCallback { call, direct: step.direct.clone(), done: named });
    }
}

/// As [`Running`](crate::executor::run::Running), for a step: its program knows the rest, and is
/// held until the step has ended in any case.
struct RunningStep {
    mark: Mark,
    program: Arc<Program>,
    at: usize,
    has_peers: bool,
    /// The user's line, once the step outlives its push; from the beginning if it pushes operations
    /// of its own.
    line: OnceLock<Option<Arc<str>>>,
}

impl RunningStep {
    /// What the step has come to, with its place.
    fn end(&self, result: Result<()>) -> Result<()> {
        let step = &self.program.steps[self.at];
        result.and_then(|()| self.program.end_step(step)).map_err(|e| {
            // Inside the push the line is this thread's. A step that was queued has no line here:
            // the engine names it.
            let line = self.line.get().cloned().unwrap_or_else(call_site::current);
            self.program.place(step, e).at_call_site(&line.unwrap_or_default())
        })
    }
}

impl Within for RunningStep {
    fn leave_push(&self) {
        let _ = self.line.set(call_site::current());
    }

    fn has_peers(&self) -> bool {
        self.has_peers
    }

    fn within(&self, f: &mut dyn FnMut()) {
        let Program { base, plan, steps, .. } = &*self.program;
        let Step { prepared, node, device, .. } = &steps[self.at];
        let label = self.program.is_seen().then(|| label(&prepared.op, &prepared.attrs));
        let node = &plan.graph.nodes[*node as usize].name;
        let label = label.as_deref();
        let _span = label.and_then(|l| base.profiler.operator(mode::SYMBOLIC, l, node, *device));
        let run = || self.mark.inside(f);
        match self.line.get() {
            Some(line) => call_site::with(CallSite::Known(line.clone()), run),
            None => run(),
        }
    }
}
