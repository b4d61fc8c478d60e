//! Chains: neighbouring steps on equally many elements, run as one pass over memory.
//!
//! Run one after the other, each step of `relu(batch_norm(x) + y)` would read from memory what the
//! step before has just written there. A chain goes over blocks of elements instead, and runs all
//! of its steps on a block while that is in the cache. Its steps are pointwise or compute elements
//! as they are asked for ([`InParts`](crate::operator::InParts)), as batch normalisation does by
//! its moving averages. The first may be a kernel that reports the elements that it has finished,
//! or the last one that requests those that it reads next ([`Around`]), as batch normalisation does
//! forwards and backwards. So what follows a convolution is done where that writes its output.
//!
//! Nothing else changes: memory, kernels and their arguments are those of single steps, so values
//! have the same bits. A step may run on one block before an earlier step has ended on another one
//! only where their memory does not overlap. The plan does not know all addresses, so this is
//! checked in each run ([`Chain::sound_length`]).

use super::step::{Role, Step};
use crate::error::{Error, Result};
use crate::kernels::kept::Keeper;
use crate::kernels::parallel::parallel_for;
use crate::operator::{Around, Body, Call, OfInputs, OnElements, OpContext, OpReq};
use crate::tensor::View;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Elements of a block: those of a few arrays stay in the second-level cache of a core, and take
/// far longer than the 0.1 us of a call.
const BLOCK: usize = 1 << 14;
/// Fewer elements mostly stay in the last cache from step to step as it is, and gain nothing.
const LEAST: usize = 1 << 21;
/// The same behind a kernel whose parts are few elements each, such as a convolution: what follows
/// it then finds them in the first or second-level cache.
const LEAST_PRODUCED: usize = 1 << 14;
/// Steps of a chain: their pairs are compared, and a block of all arrays has to fit.
const MOST: usize = 12;

/// Whether `MXNET_USE_FUSION` leaves chains on.
pub fn are_on() -> bool {
    let off = |v: String| matches!(v.trim(), "0" | "false" | "off");
    !std::env::var("MXNET_USE_FUSION").is_ok_and(off)
}

/// What `step` can be in a chain.
pub fn role_of(step: &Step) -> Role {
    let Some(asked) = step.direct.as_ref().filter(|_| can_join(step)) else { return Role::Alone };
    let (prepared, attrs) = (&step.prepared, &step.prepared.attrs);
    let kernel = &prepared.kernel;
    let holds = |when: Option<OfInputs>| when.is_some_and(|holds| holds(attrs, &step.inputs));
    let all = || step.inputs.iter().chain(&*step.outputs);
    match (step.outputs.first(), step.inputs.first()) {
        (Some(out), _)
            if prepared.op.is_pointwise
                && prepared.op.is_native()
                && step.state.is_none()
                && prepared.mutated.is_empty()
                && all().all(|view| view.size() == out.size()) =>
        {
            Role::Pointwise(out.size())
        }
        (Some(out), _) if asked[0] != OpReq::Null && holds(kernel.reports_elements) => {
            match kernel.reads_to_the_end {
                true => Role::Produces(out.size()),
                false => Role::Leads(out.size()),
            }
        }
        (_, Some(input)) if holds(kernel.requests_elements) => Role::Ends(input.size()),
        _ => Role::Alone,
    }
}

/// Whether `step` can compute its elements as they are asked for: outside of training, and in it.
pub fn has_parts(step: &Step) -> [bool; 2] {
    let is_asked = step
        .direct
        .as_ref()
        .is_some_and(|asked| asked.first().is_some_and(|req| *req != OpReq::Null));
    let parts = step.prepared.kernel.in_parts.filter(|_| is_asked && can_join(step));
    [false, true].map(|is_train| {
        parts.is_some_and(|parts| (parts.when)(&step.prepared.attrs, &step.inputs, is_train))
    })
}

fn can_join(step: &Step) -> bool {
    let is_native = matches!(step.prepared.kernel.body, Body::Native(_));
    is_native && step.is_on_host() && step.spared.is_empty() && !step.wants_random
}

/// How many of these steps, from the first, can be one chain; 1 if the first is by itself.
#[inline]
pub fn length(steps: &[Step], is_train: bool) -> usize {
    let (n, least) = match steps[0].role {
        Role::Pointwise(n) | Role::Leads(n) => (n, LEAST),
        Role::Produces(n) => (n, LEAST_PRODUCED),
        Role::Alone | Role::Ends(_) => return 1,
    };
    if n < least {
        return 1;
    }
    let is_next = |step: &&Step| step.role == Role::Pointwise(n) || has_parts_of(step, n, is_train);
    let count = 1 + steps[1..].iter().take(MOST - 2).take_while(is_next).count();
    let ends = matches!(steps[0].role, Role::Pointwise(_))
        && steps.get(count).is_some_and(|step| step.role == Role::Ends(n));
    count + usize::from(ends)
}

/// Neighbouring steps that run as one chain, or one after the other.
#[derive(Clone)]
pub struct Part {
    pub steps: Range<usize>,
    pub is_chain: bool,
}

/// The steps of these ranges, as long as chains and what is between them last; all of them are
/// between if chains are off.
pub fn parts(steps: &[Step], ranges: &[Range<usize>], is_train: bool) -> Arc<[Part]> {
    let (on, mut parts) = (are_on(), Vec::<Part>::new());
    for range in ranges {
        let mut next = range.start;
        while next < range.end {
            let count = if on { length(&steps[next..range.end], is_train) } else { 1 };
            match parts.last_mut().filter(|last| !last.is_chain && last.steps.end == next) {
                Some(last) if count == 1 => last.steps.end += 1,
                _ => parts.push(Part { steps: next..next + count, is_chain: count > 1 }),
            }
            next += count;
        }
    }
    parts.into()
}

fn has_parts_of(step: &Step, n: usize, is_train: bool) -> bool {
    step.has_parts[usize::from(is_train)] && step.outputs[0].size() == n
}

/// A step of a chain with the operands of a run.
pub struct Link<'a> {
    pub step: &'a Step,
    pub ctx: OpContext,
    pub inputs: &'a [View],
    pub outputs: &'a [View],
    pub keeper: Option<Keeper<'a>>,
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

    fn run(&self, around: &Around<'_>) -> Result<()> {
        let (step, ctx) = (self.step, &self.ctx);
        let (inputs, asked, outputs) = (self.inputs, self.asked(), self.outputs);
        let around = &Around { keeper: self.keeper, ..*around };
        step.prepared.run_around(ctx, step.state.as_ref(), inputs, asked, outputs, around)
    }

    /// Calls `with` with what computes the elements that it is asked for.
    fn run_in_parts(&self, with: &mut dyn FnMut(OnElements<'_>)) -> Result<()> {
        let prepared = &self.step.prepared;
        let no_parts = || Error::internal("a step of a chain that cannot run in parts");
        let parts = prepared.kernel.in_parts.ok_or_else(no_parts)?;
        let call = Call {
            attrs: &prepared.attrs,
            ctx: &self.ctx,
            state: self.step.state.as_ref(),
            inputs: self.inputs,
            req: self.asked(),
            outputs: self.outputs,
            memory: None,
            around: Around::NONE,
        };
        (parts.run)(&call, with)
    }

    /// Runs a pointwise step on some elements.
    fn run_on(&self, elements: &Range<usize>) -> Result<()> {
        let part = |view: &View| view.elements(elements.clone());
        let inputs: SmallVec<[View; 4]> = self.inputs.iter().map(part).collect();
        let outputs: SmallVec<[View; 2]> = self.outputs.iter().map(part).collect();
        Link { inputs: &inputs, outputs: &outputs, keeper: None, ..*self }.run(Around::NONE)
    }
}

/// Steps that [`length`] allows to be one chain.
pub struct Chain<'a>(pub &'a [Link<'a>]);

/// Computes a block of elements. An error comes with the step that raised it.
type OnBlock<'a, 's> = &'a (dyn Fn(&Range<usize>) -> Ran<'s> + Sync);
type Ran<'s> = Result<(), (&'s Step, Error)>;

impl<'s> Chain<'s> {
    /// The length of the longest prefix that may run block by block: a view that one step writes
    /// and a view that another uses are either disjoint or identical.
    pub fn sound_length(&self) -> usize {
        let is_apart = |written: &View, used: &View| {
            !written.overlaps(used)
                || written.ptr() == used.ptr() && written.size_bytes() == used.size_bytes()
        };
        let leaves = |one: &Link<'_>, other: &Link<'_>| {
            one.written().all(|written| other.used().all(|used| is_apart(written, used)))
        };
        let spares = |one: &Link<'_>, other: &Link<'_>| {
            let reads_all = matches!(other.step.role, Role::Produces(_));
            let spares = |view: &View| !one.written().any(|written| written.overlaps(view));
            !reads_all || other.inputs.iter().all(spares)
        };
        let joins = |count: usize| {
            let (link, earlier) = (&self.0[count], &self.0[..count]);
            earlier.iter().all(|e| leaves(e, link) && leaves(link, e) && spares(link, e))
        };
        (1..self.0.len()).find(|&count| !joins(count)).unwrap_or(self.0.len())
    }

    /// Runs the steps. An error comes with the step that raised it.
    pub fn run(&self) -> Ran<'s> {
        let Some((first, last)) = self.0.first().zip(self.0.last()) else { return Ok(()) };
        let (n, whole, others) = match (first.step.role, last.step.role) {
            (Role::Leads(n) | Role::Produces(n), _) => (n, Some(first), &self.0[1..]),
            (_, Role::Ends(n)) => (n, Some(last), &self.0[..self.0.len() - 1]),
            (Role::Pointwise(n), _) => (n, None, self.0),
            _ => return Err((first.step, Error::internal("a chain of steps that cannot be one"))),
        };
        prepare(others, &|_| Ok(()), &mut |on_block| run_blocks(n, whole, on_block))
    }
}

/// Calls `then` with what computes a block of elements of all `links`, after it has called
/// `before`.
fn prepare<'s>(
    links: &'s [Link<'s>],
    before: OnBlock<'_, 's>,
    then: &mut dyn FnMut(OnBlock<'_, 's>) -> Ran<'s>,
) -> Ran<'s> {
    let Some((link, rest)) = links.split_first() else { return then(before) };
    let step = link.step;
    if matches!(step.role, Role::Pointwise(_)) {
        let both = |block: &Range<usize>| {
            before(block)?;
            link.run_on(block).map_err(|e| (step, e))
        };
        return prepare(rest, &both, then);
    }
    let mut result = Ok(());
    let ran = link.run_in_parts(&mut |on| {
        let both = |block: &Range<usize>| {
            before(block)?;
            on(block.clone());
            Ok(())
        };
        result = prepare(rest, &both, then);
    });
    ran.map_err(|e| (step, e)).and(result)
}

/// Computes all `n` elements: those that `whole`, the first or the last step of a chain, names, if
/// there is one.
fn run_blocks<'s>(n: usize, whole: Option<&'s Link<'s>>, on_block: OnBlock<'_, 's>) -> Ran<'s> {
    let failed = Mutex::new(None);
    let done = AtomicUsize::new(0);
    let on = |elements: Range<usize>| {
        done.fetch_add(elements.len(), Ordering::Relaxed);
        for start in elements.clone().step_by(BLOCK) {
            if let Err(e) = on_block(&(start..(start + BLOCK).min(elements.end))) {
                let mut slot = failed.lock().unwrap_or_else(|e| e.into_inner());
                slot.get_or_insert(e);
                return;
            }
        }
    };
    if let Some(link) = whole {
        let around = match link.step.role {
            Role::Ends(_) => Around { before: Some(&on), ..Around::default() },
            _ => Around { after: Some(&on), ..Around::default() },
        };
        link.run(&around).map_err(|e| (link.step, e))?;
        if done.load(Ordering::Relaxed) != n {
            let text = format!("the kernel named {} of {n} elements", done.into_inner());
            return Err((link.step, Error::internal(text)));
        }
    } else {
        parallel_for(n, BLOCK, on);
    }
    failed.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err)
}
