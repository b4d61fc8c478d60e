//! The one place for write requests, temporaries and the choice of a kernel; the imperative layer and
//! the executor both run operators through it.
//!
//! Kernels are promised much (`operator::Call`): they need not add, an unwanted output is scratch, and
//! an output overlaps no input except as a declared in-place pair. Here these promises are made true:
//! where a call does not fulfil them by itself, the kernel gets a temporary, and what was asked for (a
//! sum, a copy, nothing) is made behind it.

use crate::context::Context;
use crate::dtype::{DType, Element};
use crate::engine::{Push, Task, Var};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::ndarray::NDArray;
use crate::operator::{
    Attrs, Body, Call, Done, InplacePair, Kernel, MatchFacts, OpContext, OpDef, OpReq, OpState,
    OwnedCall,
};
use crate::shape::Shape;
use crate::storage::ALIGN;
use crate::tensor::View;
use crate::with_dtype;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// An operator with its kernel chosen, ready to run on arrays of these shapes and dtypes.
#[derive(Clone)]
pub struct Prepared {
    pub op: Arc<OpDef>,
    pub attrs: Arc<Attrs>,
    pub kernel: Arc<Kernel>,
    pub device: Context,
    pub inplace: SmallVec<[InplacePair; 2]>,
    /// Inputs that the kernel modifies.
    pub mutated: SmallVec<[usize; 2]>,
    pub wants_random: bool,
}

/// Chooses the kernel of `op` for these arguments.
pub fn prepare(
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    device: Context,
    inputs: &[(Shape, DType)],
    outputs: &[(Shape, DType)],
) -> Result<Prepared> {
    let names = || op.inputs(attrs).into_iter().chain(op.outputs(attrs));
    let simple = op.kernels.len() == 1 && is_unconditional(&op.kernels[0], device);
    let kernel = if simple {
        &op.kernels[0]
    } else {
        let tensors: Vec<_> = names()
            .zip(inputs.iter().chain(outputs))
            .map(|(name, (shape, dtype))| (name, *dtype, shape.ndim()))
            .collect();
        // Every kind of host memory is served by the kernels of the CPU.
        let kind = if device.is_host() { Context::default() } else { device }.device_type;
        op.choose_kernel(&MatchFacts { device: kind, attrs, tensors: &tensors })?
    };
    Ok(Prepared {
        op: op.clone(),
        attrs: attrs.clone(),
        kernel: kernel.clone(),
        device,
        inplace: op.inplace_pairs(attrs).into(),
        mutated: op.mutated_inputs(attrs).into(),
        wants_random: op.resources.is_some() && op.wants_random(attrs),
    })
}

fn is_unconditional(kernel: &Kernel, device: Context) -> bool {
    use crate::context::DeviceType::Cpu;
    use crate::operator::Match;
    match kernel.matches {
        Match::Always => true,
        Match::Device(Cpu) => device.is_host(),
        _ => false,
    }
}

/// What is done with one output behind the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    Nothing,
    /// The kernel wrote a temporary: add it.
    Add,
    /// The kernel wrote a temporary: copy it.
    Copy,
    /// The kernel wrote scratch: forget it.
    Forget,
}

impl Prepared {
    /// Is the kernel outside of the core?
    pub fn is_callback(&self) -> bool {
        matches!(self.kernel.body, Body::Callback(_))
    }

    /// What the kernel is asked for output `i`, and what happens behind it.
    fn arrange(&self, i: usize, req: OpReq, inputs: &[View], output: &View) -> (OpReq, After) {
        match req {
            OpReq::Null if self.kernel.skips_null => (OpReq::Null, After::Nothing),
            OpReq::Null => (OpReq::Null, After::Forget),
            OpReq::Add if self.kernel.accumulates && !self.clashes(i, inputs, output, false) => {
                (OpReq::Add, After::Nothing)
            }
            OpReq::Add => (OpReq::Write, After::Add),
            OpReq::Write | OpReq::Inplace if self.clashes(i, inputs, output, true) => {
                (OpReq::Write, After::Copy)
            }
            OpReq::Write | OpReq::Inplace => {
                let shares = inputs.iter().any(|v| v.ptr() == output.ptr());
                (if shares { OpReq::Inplace } else { OpReq::Write }, After::Nothing)
            }
        }
    }

    /// Does output `i` overlap an input in a way the kernel was not promised to cope with?
    fn clashes(&self, i: usize, inputs: &[View], output: &View, inplace: bool) -> bool {
        inputs.iter().enumerate().any(|(at, input)| {
            let is_pair = inplace
                && input.ptr() == output.ptr()
                && input.size_bytes() == output.size_bytes()
                && self.inplace.iter().any(|p| p.input == at && p.output == i);
            output.size() > 0 && input.size() > 0 && !is_pair && input.overlaps(output)
        })
    }

    /// Runs a native kernel on the calling thread.
    pub fn run_native(
        &self,
        ctx: &OpContext,
        state: Option<&OpState>,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
    ) -> Result<()> {
        let Body::Native(kernel) = &self.kernel.body else {
            return Err(Error::internal("a callback cannot run as a native kernel")
                .in_operator(&self.op.name));
        };
        let plan: SmallVec<[(OpReq, After); 4]> = (req.iter().zip(outputs).enumerate())
            .map(|(i, (r, o))| self.arrange(i, *r, inputs, o))
            .collect();
        let asked: SmallVec<[OpReq; 4]> = plan.iter().map(|p| p.0).collect();
        let call = |outputs: &[View]| {
            kernel(&Call { attrs: &self.attrs, ctx, state, inputs, req: &asked, outputs })
                .map_err(|e| e.in_operator(&self.op.name))
        };
        if plan.iter().all(|p| p.1 == After::Nothing) {
            return call(outputs);
        }
        let temporaries = Temporaries::new(&plan, outputs);
        call(&temporaries.views)?;
        temporaries.settle(&plan, outputs)
    }

    /// Starts a callback kernel; `done` is called when it has ended and what was asked for is made.
    #[allow(clippy::too_many_arguments)]
    pub fn start_callback(
        &self,
        ctx: OpContext,
        state: Option<OpState>,
        inputs: Vec<View>,
        req: &[OpReq],
        outputs: Vec<View>,
        keep: Arc<dyn Any + Send + Sync>,
        done: Done,
    ) {
        let Body::Callback(callback) = &self.kernel.body else {
            done(Err(Error::internal("a native kernel cannot start as a callback")));
            return;
        };
        let plan: SmallVec<[(OpReq, After); 4]> = (req.iter().zip(&outputs).enumerate())
            .map(|(i, (r, o))| self.arrange(i, *r, &inputs, o))
            .collect();
        let asked = plan.iter().map(|p| p.0).collect();
        let (attrs, mutated) = (self.attrs.clone(), self.mutated.to_vec());
        let name = self.op.name.clone();
        let place = move |result: Result<()>| result.map_err(|e| e.in_operator(&name));
        if plan.iter().all(|p| p.1 == After::Nothing) {
            let call = OwnedCall { attrs, ctx, state, inputs, mutated, req: asked, outputs, keep };
            callback.start(call, Box::new(move |result| done(place(result))));
            return;
        }
        let temporaries = Arc::new(Temporaries::new(&plan, &outputs));
        // The callback's operands may outlive the call: they keep real memory and temporaries alike.
        let both: Arc<dyn Any + Send + Sync> = Arc::new((keep, temporaries.clone()));
        let call = OwnedCall {
            attrs,
            ctx,
            state,
            inputs,
            mutated,
            req: asked,
            outputs: temporaries.views.clone(),
            keep: both.clone(),
        };
        let settle = move |result: Result<()>| {
            let result = place(result).and_then(|()| temporaries.settle(&plan, &outputs));
            drop(both);
            done(result);
        };
        callback.start(call, Box::new(settle));
    }
}

/// Memory in the place of some outputs for the time of one call.
struct Temporaries {
    #[allow(dead_code)] // owns what the views show
    memory: Vec<u64>,
    views: Vec<View>,
}

impl Temporaries {
    fn new(plan: &[(OpReq, After)], outputs: &[View]) -> Self {
        let needs = |after: After| after != After::Nothing;
        let aligned = |v: &View| v.size_bytes().next_multiple_of(ALIGN);
        let total: usize =
            plan.iter().zip(outputs).filter(|(p, _)| needs(p.1)).map(|(_, v)| aligned(v)).sum();
        let mut memory = vec![0u64; (total + ALIGN) / 8];
        let base = memory.as_mut_ptr().cast::<u8>();
        let mut at = base.align_offset(ALIGN);
        let views = plan
            .iter()
            .zip(outputs)
            .map(|(p, output)| {
                if !needs(p.1) {
                    return output.clone();
                }
                let ptr = base.wrapping_add(at);
                at += aligned(output);
                // SAFETY: `memory` holds all aligned parts and lives as long as the views.
                unsafe { View::new(ptr, output.shape().clone(), output.dtype()) }
            })
            .collect();
        Temporaries { memory, views }
    }

    fn settle(&self, plan: &[(OpReq, After)], outputs: &[View]) -> Result<()> {
        for ((p, temporary), output) in plan.iter().zip(&self.views).zip(outputs) {
            match p.1 {
                After::Add => add(temporary, output),
                After::Copy => copy(temporary, output),
                After::Nothing | After::Forget => {}
            }
        }
        Ok(())
    }
}

const GRAIN: usize = 32 * 1024;

/// `to += from`; equal shapes and dtypes.
pub fn add(from: &View, to: &View) {
    trait Sum: Element {
        fn sum(self, other: Self) -> Self;
    }
    macro_rules! sums {
        ($($t:ty => $f:expr),*) => {$(impl Sum for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $f; f(self, other) }
        })*};
    }
    sums!(f32 => |a, b| a + b, f64 => |a, b| a + b,
          half::f16 => |a, b| half::f16::from_f32(a.to_f32() + b.to_f32()),
          u8 => u8::wrapping_add, i8 => i8::wrapping_add, i32 => i32::wrapping_add,
          i64 => i64::wrapping_add, bool => |a, b| a | b);
    with_dtype!(from.dtype(), T => {
        let (src, dst) = (Shared(from.as_ptr::<T>()), Shared(to.as_ptr::<T>()));
        parallel_for(from.size(), GRAIN, |range| for i in range {
            // SAFETY: both views hold `size` elements and ranges are disjoint; plain pointer access, so
            // it does not matter if the views are the same bytes.
            unsafe { *dst.at(i) = (*dst.at(i)).sum(*src.at(i)) }
        });
    });
}

/// `to = from`, converting the dtype; equal sizes. The views may overlap if they have one dtype.
pub fn copy(from: &View, to: &View) {
    if from.dtype() == to.dtype() {
        // SAFETY: both views hold this many bytes; `copy` allows overlap.
        unsafe { std::ptr::copy(from.ptr(), to.ptr(), from.size_bytes()) };
        return;
    }
    with_dtype!(from.dtype(), S => with_dtype!(to.dtype(), D => {
        let (src, dst) = (Shared(from.as_ptr::<S>()), Shared(to.as_ptr::<D>()));
        parallel_for(from.size(), GRAIN, |range| for i in range {
            // SAFETY: both views hold `size` elements and ranges are disjoint.
            unsafe { *dst.at(i) = convert::<S, D>(*src.at(i)) }
        });
    }));
}

#[inline(always)]
fn convert<S: Element, D: Element>(x: S) -> D {
    // 64-bit integers must not lose bits on the way through a double.
    if S::DTYPE == DType::I64 && D::DTYPE == DType::I32 {
        // SAFETY: the dtypes say that S is i64 and D is i32.
        unsafe {
            let wide: i64 = std::mem::transmute_copy(&x);
            return std::mem::transmute_copy(&(wide as i32));
        }
    }
    D::from_f64(x.to_f64())
}

/// Removes repeated variables, and from `reads` those that are written; what the engine wants.
pub fn distinct(reads: &mut SmallVec<[Var; 6]>, writes: &mut SmallVec<[Var; 6]>) {
    fn unique(vars: &mut SmallVec<[Var; 6]>, not: &[Var]) {
        let mut kept = 0;
        for i in 0..vars.len() {
            let var = vars[i];
            if !vars[..kept].contains(&var) && !not.contains(&var) {
                vars[kept] = var;
                kept += 1;
            }
        }
        vars.truncate(kept);
    }
    unique(writes, &[]);
    unique(reads, writes);
}

/// Pushes a copy between two arrays of equal shape.
pub fn push_copy(source: &NDArray, target: &NDArray) -> Result<()> {
    target.writable()?;
    if source.size() != target.size() {
        return Err(Error::value(format!(
            "cannot copy an array of shape {} into one of shape {}",
            source.shape(),
            target.shape()
        )));
    }
    if source.overlaps(target)
        && source.view()?.ptr() == target.view()?.ptr()
        && source.dtype() == target.dtype()
    {
        return Ok(());
    }
    let small = source.size() <= super::imperative::CHEAP_ELEMS;
    if small {
        let (from, to) = (source.view()?, target.view()?);
        let mut run = || copy(&from, &to);
        if crate::ndarray::with_quiet(&[source], &[target], true, &mut run) {
            return Ok(());
        }
    }
    let mut reads: SmallVec<[Var; 6]> = SmallVec::from_slice(&[source.var()]);
    let mut writes: SmallVec<[Var; 6]> = SmallVec::from_slice(&[target.var()]);
    distinct(&mut reads, &mut writes);
    let overwrites = usize::from(target.is_whole() && !source.same_chunk(target));
    let push = Push {
        ctx: target.context(),
        overwrites,
        cheap: small,
        ..Push::new("_copyto", &reads, &writes)
    };
    let (from, to) = (source.clone(), target.clone());
    let task = Task::sync(move |_| {
        copy(&from.view()?, &to.view()?);
        Ok(())
    });
    target.runtime().engine.push(task, push)
}
