//! Chains: neighbouring steps on equally many elements, run as one pass over memory.
//!
//! Run one after the other, each step of `relu(batch_norm(x) + y)` would read from memory what the
//! step before has just written there. A chain goes over blocks of elements instead, and runs all
//! of its steps on a block while that is in the cache. Its steps are pointwise; the first may be a
//! kernel that reports the elements that it has finished, or the last one that requests those that
//! it reads next ([`Around`]), as batch normalisation does forwards and backwards.
//!
//! Nothing else changes: memory, kernels and their arguments are those of single steps, so values
//! have the same bits. What a plan knows of its memory does not say whether a step may run before
//! an earlier one has ended elsewhere; that is decided by the addresses of a run
//! ([`Chain::is_sound`]).

use super::step::{Role, Step};
use crate::error::{Error, Result};
use crate::kernels::parallel::parallel_for;
use crate::operator::{Around, Body, OfInputs, OpContext, OpReq};
use crate::tensor::View;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Elements of a block: those of a few arrays stay in the second-level cache of a core, and take
/// far longer than the 0.1 us of a call.
const BLOCK: usize = 1 << 14;
/// Fewer elements mostly stay in the last cache from step to step as it is, and gain nothing.
const LEAST: usize = 1 << 21;
/// Steps of a chain: their pairs are compared, and a block of all arrays has to fit.
const MOST: usize = 12;

/// Whether `MXNET_USE_FUSION` leaves chains on.
pub fn are_on() -> bool {
    let off = |v: String| matches!(v.trim(), "0" | "false" | "off");
    !std::env::var("MXNET_USE_FUSION").is_ok_and(off)
}

/// What `step` can be in a chain.
pub fn role_of(step: &Step) -> Role {
    let prepared = &step.prepared;
    let Some(asked) = &step.direct else { return Role::Alone };
    let is_native = matches!(prepared.kernel.body, Body::Native(_));
    if !is_native || !step.is_on_host() || !step.spared.is_empty() || step.wants_random {
        return Role::Alone;
    }
    let attrs = &prepared.attrs;
    let holds = |when: Option<OfInputs>| when.is_some_and(|holds| holds(attrs, &step.inputs));
    let all = || step.inputs.iter().chain(&*step.outputs);
    let role = match (step.outputs.first(), step.inputs.first()) {
        (Some(out), _)
            if prepared.op.is_pointwise
                && prepared.op.is_native()
                && step.state.is_none()
                && prepared.mutated.is_empty()
                && all().all(|view| view.size() == out.size()) =>
        {
            Role::Pointwise(out.size())
        }
        (Some(out), _) if asked[0] != OpReq::Null && holds(prepared.kernel.reports_elements) => {
            Role::Leads(out.size())
        }
        (_, Some(input)) if holds(prepared.kernel.requests_elements) => Role::Ends(input.size()),
        _ => Role::Alone,
    };
    match role {
        Role::Pointwise(n) | Role::Leads(n) | Role::Ends(n) if n >= LEAST => role,
        _ => Role::Alone,
    }
}

/// How many of these steps, from the first, can be one chain; 1 if the first is by itself.
#[inline]
pub fn length(steps: &[Step]) -> usize {
    let (n, leads) = match steps[0].role {
        Role::Pointwise(n) => (n, false),
        Role::Leads(n) => (n, true),
        Role::Alone | Role::Ends(_) => return 1,
    };
    let is_next = |step: &&Step| step.role == Role::Pointwise(n);
    let count = 1 + steps[1..].iter().take(MOST - 2).take_while(is_next).count();
    let ends = !leads && steps.get(count).is_some_and(|step| step.role == Role::Ends(n));
    count + usize::from(ends)
}

/// A step of a chain with the operands of a run.
pub struct Link<'a> {
    pub step: &'a Step,
    pub ctx: OpContext,
    pub inputs: &'a [View],
    pub outputs: &'a [View],
}

impl<'a> Link<'a> {
    fn asked(&self) -> &'a [OpReq] {
        self.step.direct.as_deref().unwrap_or_default()
    }

    /// Everything that the step writes while others of its chain run.
    fn written(&self) -> impl Iterator<Item = &'a View> {
        // The last step writes its first output when all others have ended.
        let skipped = usize::from(matches!(self.step.role, Role::Ends(_)));
        let wanted = self.outputs.iter().zip(self.asked()).skip(skipped);
        let wanted = wanted.filter(|(_, req)| **req != OpReq::Null).map(|(view, _)| view);
        let inputs = self.inputs;
        wanted.chain(self.step.prepared.mutated.iter().map(move |&i| &inputs[i]))
    }

    fn used(&self) -> impl Iterator<Item = &'a View> {
        self.inputs.iter().chain(self.written())
    }

    fn run(&self, around: Around<'_>) -> Result<()> {
        let (step, ctx) = (self.step, &self.ctx);
        let (inputs, asked, outputs) = (self.inputs, self.asked(), self.outputs);
        step.prepared.run_around(ctx, step.state.as_ref(), inputs, asked, outputs, around)
    }

    /// Runs a pointwise step on some elements.
    fn run_on(&self, elements: &Range<usize>) -> Result<()> {
        let part = |view: &View| view.elements(elements.clone());
        let inputs: SmallVec<[View; 4]> = self.inputs.iter().map(part).collect();
        let outputs: SmallVec<[View; 2]> = self.outputs.iter().map(part).collect();
        Link { inputs: &inputs, outputs: &outputs, step: self.step, ctx: self.ctx }
            .run(Around::default())
    }
}

/// Steps that [`length`] allows to be one chain.
pub struct Chain<'a>(pub &'a [Link<'a>]);

impl Chain<'_> {
    /// Whether no step reads or writes, at one element, what another one writes at a different
    /// one: memory that two of them share begins at the same address, or does not matter.
    pub fn is_sound(&self) -> bool {
        let is_apart = |written: &View, used: &View| {
            !written.overlaps(used)
                || written.ptr() == used.ptr() && written.size_bytes() == used.size_bytes()
        };
        let leaves = |one: &Link<'_>, other: &Link<'_>| {
            one.written().all(|written| other.used().all(|used| is_apart(written, used)))
        };
        let pairs =
            self.0.iter().enumerate().flat_map(|(i, b)| self.0[..i].iter().map(move |a| (a, b)));
        pairs.into_iter().all(|(a, b)| leaves(a, b) && leaves(b, a))
    }

    /// Runs the steps. An error comes with the step that it is of.
    pub fn run(&self) -> Result<(), (&Step, Error)> {
        let Some((first, last)) = self.0.first().zip(self.0.last()) else { return Ok(()) };
        let (n, whole, pointwise) = match (first.step.role, last.step.role) {
            (Role::Leads(n), _) => (n, Some(first), &self.0[1..]),
            (_, Role::Ends(n)) => (n, Some(last), &self.0[..self.0.len() - 1]),
            (Role::Pointwise(n), _) => (n, None, self.0),
            _ => return Err((first.step, Error::internal("a chain of steps that cannot be one"))),
        };
        let failed = Mutex::new(None);
        let done = AtomicUsize::new(0);
        let on = |elements: Range<usize>| {
            done.fetch_add(elements.len(), Ordering::Relaxed);
            for start in elements.clone().step_by(BLOCK) {
                let block = start..(start + BLOCK).min(elements.end);
                for link in pointwise {
                    if let Err(e) = link.run_on(&block) {
                        let mut slot = failed.lock().unwrap_or_else(|e| e.into_inner());
                        slot.get_or_insert((link.step, e));
                        return;
                    }
                }
            }
        };
        if let Some(link) = whole {
            let around = match link.step.role {
                Role::Leads(_) => Around { after: Some(&on), before: None },
                _ => Around { before: Some(&on), after: None },
            };
            link.run(around).map_err(|e| (link.step, e))?;
            if done.load(Ordering::Relaxed) != n {
                let text = format!("the kernel named {} of {n} elements", done.into_inner());
                return Err((link.step, Error::internal(text)));
            }
        } else {
            parallel_for(n, BLOCK, on);
        }
        match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            None => Ok(()),
            Some(failed) => Err(failed),
        }
    }
}
