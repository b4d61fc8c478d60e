//! Stateful operators: the counterparts of MXNet's classes of these names.
//!
//! An [`OperatorProperty`] holds the parameters of an operator and describes it; it makes one
//! [`Operator`] per node or recorded call, which runs forward and backward and may keep state
//! between the two. [`define`] turns the property into ordinary definitions, so the graph, the tape
//! and the planner need no special case.

use super::def::{InplacePair, OpDef};
use super::device::Launcher;
use super::gradient::{Dep, Gradient};
use super::infer::one_type;
use super::kernel::{Call, Kernel, OpContext, OpState};
use super::listed::Listed;
use super::param::{Attrs, ParamStruct};
use super::request::{OpReq, ResourceRequest, Resources};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// A dtype that may be unknown.
pub type MaybeType = Option<DType>;

/// An operator with parameters: implemented by the parameter struct.
///
/// ```
/// use rsnet::operator::property::*;
/// use rsnet::operator::{Call, Kernel, OpReq};
/// use rsnet::{context::Context, dtype::DType, error::Result, shape::Shape};
/// use std::sync::Mutex;
///
/// rsnet::params! {
///     /// Parameters of `Latest`.
///     pub struct LatestParam { times: f32, default(2.0), "Factor."; }
/// }
///
/// /// `y = times * x`; keeps how many elements it saw.
/// struct Latest { times: f32, seen: Mutex<usize> }
///
/// impl Operator for Latest {
///     fn forward(&self, run: &Forward<'_>) -> Result<()> {
///         if run.req[0] != OpReq::Null {
///             // SAFETY: the shapes are equal; the output is the input or apart from it.
///             let (x, y) = unsafe { (run.in_data[0].slice::<f32>(), run.out_data[0].slice_mut::<f32>()) };
///             for (y, x) in y.iter_mut().zip(x) { *y = self.times * x; }
///         }
///         *self.seen.lock().unwrap() += run.in_data[0].size();
///         Ok(())
///     }
///     fn backward(&self, run: &Backward<'_>) -> Result<()> {
///         let dy = run.out_grad[0].expect("it was declared");
///         // SAFETY: as above.
///         let (dy, dx) = unsafe { (dy.slice::<f32>(), run.in_grad[0].slice_mut::<f32>()) };
///         for (dx, dy) in dx.iter_mut().zip(dy) { *dx = self.times * dy; }
///         Ok(())
///     }
/// }
///
/// impl OperatorProperty for LatestParam {
///     fn infer_shape(&self, input: &mut [Shape], output: &mut [Shape], _: &mut [Shape]) -> Result<bool> {
///         output[0] = input[0].clone();
///         Ok(input[0].is_known())
///     }
///     fn declare_backward_dependency(&self, run: Entries<'_>) -> Vec<rsnet::operator::Dep> {
///         run.out_grad.to_vec()
///     }
///     fn create_operator(&self, _: Context, _: &[Shape], _: &[DType]) -> Result<Box<dyn Operator>> {
///         Ok(Box::new(Latest { times: self.times, seen: Mutex::new(0) }))
///     }
/// }
///
/// let [forward, backward] = define::<LatestParam>("Latest", |run| Kernel::cpu(run).skips_null());
/// assert_eq!((forward.name.as_str(), backward.name.as_str()), ("Latest", "_backward_Latest"));
/// ```
pub trait OperatorProperty: ParamStruct {
    fn list_arguments(&self) -> Vec<&'static str> {
        vec!["data"]
    }

    /// All outputs, hidden ones last.
    fn list_outputs(&self) -> Vec<&'static str> {
        vec!["output"]
    }

    fn list_auxiliary_states(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Number of visible outputs.
    fn num_visible_outputs(&self) -> usize {
        self.list_outputs().len()
    }

    /// Infers shapes from the known ones; returns `Ok(true)` if none is unknown.
    fn infer_shape(
        &self,
        in_shape: &mut [Shape],
        out_shape: &mut [Shape],
        aux_shape: &mut [Shape],
    ) -> Result<bool>;

    /// As `infer_shape`. By default all arrays have one dtype.
    fn infer_type(
        &self,
        in_type: &mut [MaybeType],
        out_type: &mut [MaybeType],
        aux_type: &mut [MaybeType],
    ) -> Result<bool> {
        one_type(&mut [("input", in_type), ("output", out_type), ("auxiliary state", aux_type)])
    }

    /// Resources that `forward` needs besides its operands, for arguments of these shapes.
    fn forward_resource(&self, _in_shape: &[Shape]) -> Vec<ResourceRequest> {
        Vec::new()
    }

    /// Resources that `backward` needs besides its operands, for arguments of these shapes.
    fn backward_resource(&self, _in_shape: &[Shape]) -> Vec<ResourceRequest> {
        Vec::new()
    }

    /// The entries that `backward` reads besides the auxiliary states; by default all. Others may
    /// be freed early.
    fn declare_backward_dependency(&self, run: Entries<'_>) -> Vec<Dep> {
        [run.out_grad, run.in_data, run.out_data].concat()
    }

    /// Outputs that may have an input's memory.
    fn forward_inplace_option(&self) -> Vec<InplacePair> {
        Vec::new()
    }

    /// Input gradients (by the number of the argument) that may have the memory of a declared
    /// dependency.
    fn backward_inplace_option(&self) -> Vec<(Dep, usize)> {
        Vec::new()
    }

    /// The operator of one node or recorded call, for arguments and auxiliary states of these
    /// shapes and dtypes.
    fn create_operator(
        &self,
        ctx: Context,
        shapes: &[Shape],
        types: &[DType],
    ) -> Result<Box<dyn Operator>>;
}

/// The operator's computation. Two runs of one operator never overlap.
pub trait Operator: Send + Sync {
    fn forward(&self, run: &Forward<'_>) -> Result<()>;

    fn backward(&self, run: &Backward<'_>) -> Result<()>;

    /// As `forward`, by launches on a device; for operators that have kernels for devices.
    fn forward_on(&self, _run: &Forward<'_>, _launcher: &mut dyn Launcher) -> Result<()> {
        Err(no_launches())
    }

    /// As `backward`, by launches on a device.
    fn backward_on(&self, _run: &Backward<'_>, _launcher: &mut dyn Launcher) -> Result<()> {
        Err(no_launches())
    }
}

fn no_launches() -> Error {
    Error::internal("an operator without launches has a kernel for devices")
}

/// The entries that a backward run may read.
pub struct Entries<'a> {
    /// Gradients of the visible outputs.
    pub out_grad: &'a [Dep],
    pub in_data: &'a [Dep],
    pub out_data: &'a [Dep],
}

/// The operands of a forward run.
pub struct Forward<'a> {
    pub ctx: &'a OpContext,
    pub in_data: &'a [View],
    pub req: &'a [OpReq],
    pub out_data: &'a [View],
    pub aux_states: &'a [View],
}

/// The operands of a backward run; `None` is what was not declared.
pub struct Backward<'a> {
    pub ctx: &'a OpContext,
    pub out_grad: &'a [Option<&'a View>],
    pub in_data: &'a [Option<&'a View>],
    pub out_data: &'a [Option<&'a View>],
    /// One per argument, as `in_grad`.
    pub req: &'a [OpReq],
    pub in_grad: &'a [View],
    pub aux_states: &'a [View],
}

/// The operator's numbers of arguments, outputs and states, and the entries that its backward run
/// reads.
struct Layout {
    arguments: usize,
    auxiliary: usize,
    visible: usize,
    outputs: usize,
    deps: Vec<Dep>,
}

impl Layout {
    fn of<P: OperatorProperty>(param: &P) -> Self {
        let arguments = param.list_arguments().len();
        let (outputs, visible) = (param.list_outputs().len(), param.num_visible_outputs());
        let out_grad: Vec<Dep> = (0..visible).map(Dep::OutGrad).collect();
        let in_data: Vec<Dep> = (0..arguments).map(Dep::Input).collect();
        let out_data: Vec<Dep> = (0..outputs).map(Dep::Output).collect();
        let entries = Entries { out_grad: &out_grad, in_data: &in_data, out_data: &out_data };
        let deps = param.declare_backward_dependency(entries);
        Layout { arguments, auxiliary: param.list_auxiliary_states().len(), visible, outputs, deps }
    }

    /// The inputs of the backward operator: what was declared, then the auxiliary states.
    fn inputs(&self) -> Vec<Dep> {
        let auxiliary = (0..self.auxiliary).map(|i| Dep::Input(self.arguments + i));
        self.deps.iter().copied().chain(auxiliary).collect()
    }
}

/// The state of a node or recorded call.
struct Made {
    operator: Box<dyn Operator>,
    layout: Layout,
}

/// The definitions of operator `name` and of its backward operator. `kernel` makes a kernel of what
/// runs: it says which devices and dtypes the operator serves. (Documentation and aliases are the
/// caller's to add.)
pub fn define<P: OperatorProperty>(
    name: &str,
    kernel: impl Fn(fn(&Call<'_>) -> Result<()>) -> Kernel,
) -> [OpDef; 2] {
    let param = |attrs: &Attrs| -> Arc<P> {
        Arc::clone(attrs.typed()).downcast().expect("defined with this parameter struct")
    };
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let back = format!("_backward_{name}");
    let mut forward = OpDef::new::<P>(name)
        .input_names_by(move |attrs| {
            let p = param(attrs);
            owned([p.list_arguments(), p.list_auxiliary_states()].concat())
        })
        .output_names_by(move |attrs| owned(param(attrs).list_outputs()))
        .visible(move |attrs| param(attrs).num_visible_outputs())
        .infer_shape(move |attrs, inputs, outputs| {
            let p = param(attrs);
            let (arguments, aux) = inputs.split_at_mut(p.list_arguments().len());
            p.infer_shape(arguments, outputs, aux)
        })
        .infer_type(move |attrs, inputs, outputs| {
            let p = param(attrs);
            let (arguments, aux) = inputs.split_at_mut(p.list_arguments().len());
            p.infer_type(arguments, outputs, aux)
        })
        .inplace_by(move |attrs| param(attrs).forward_inplace_option())
        .state(move |attrs, ctx, shapes, types| {
            let p = param(attrs);
            let operator = p.create_operator(ctx, shapes, types)?;
            Ok(Arc::new(Made { operator, layout: Layout::of(&*p) }) as OpState)
        })
        .gradient(Gradient::declared(&back, move |attrs, _, _| Layout::of(&*param(attrs)).inputs()))
        .not_deterministic()
        .kernel(kernel(run_forward));
    forward.mutates = Listed::by(move |attrs| {
        let p = param(attrs);
        let arguments = p.list_arguments().len();
        (arguments..arguments + p.list_auxiliary_states().len()).collect()
    });
    forward.resources = Resources::by(move |attrs, inputs, _| {
        let p = param(attrs);
        let arguments = p.list_arguments().len().min(inputs.len());
        Ok(p.forward_resource(&inputs[..arguments]))
    });
    let mut backward = OpDef::new::<P>(&back)
        .inplace_by(move |attrs| {
            let p = param(attrs);
            let inputs = Layout::of(&*p).inputs();
            let at = |dep| inputs.iter().position(|d| *d == dep);
            let options = p.backward_inplace_option().into_iter();
            options.filter_map(|(dep, i)| Some(InplacePair::new(at(dep)?, i))).collect()
        })
        .not_deterministic()
        .kernel(kernel(run_backward));
    backward.mutates = Listed::by(move |attrs| {
        let layout = Layout::of(&*param(attrs));
        (layout.deps.len()..layout.deps.len() + layout.auxiliary).collect()
    });
    // The gradients have the shapes of the arguments.
    backward.resources = Resources::by(move |attrs, _, outputs| {
        let p = param(attrs);
        let arguments = p.list_arguments().len().min(outputs.len());
        Ok(p.backward_resource(&outputs[..arguments]))
    });
    [forward, backward]
}

fn made<'a>(call: &Call<'a>) -> Result<&'a Made> {
    call.state
        .and_then(|state| state.downcast_ref())
        .ok_or_else(|| Error::internal("a stateful operator runs without its state"))
}

/// The operator of a forward call, with its operands.
fn forward_run<'a>(call: &Call<'a>) -> Result<(&'a dyn Operator, Forward<'a>)> {
    let Made { operator, layout } = made(call)?;
    let (in_data, aux_states) = call.inputs.split_at(layout.arguments);
    let (req, out_data) = (call.req, call.outputs);
    Ok((&**operator, Forward { ctx: call.ctx, in_data, req, out_data, aux_states }))
}

fn run_forward(call: &Call<'_>) -> Result<()> {
    let (operator, run) = forward_run(call)?;
    operator.forward(&run)
}

/// The launches of a forward call on a device: for the table of device kernels.
pub fn forward_on(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let (operator, run) = forward_run(call)?;
    operator.forward_on(&run, launcher)
}

fn run_backward(call: &Call<'_>) -> Result<()> {
    let clear = |view: &View| {
        // SAFETY: a requested output belongs to this call.
        unsafe { view.ptr().write_bytes(0, view.size_bytes()) };
        Ok(())
    };
    differentiate(call, clear, |operator, run| operator.backward(run))
}

/// The launches of a backward call on a device.
pub fn backward_on(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let launcher = RefCell::new(launcher);
    let clear = |view: &View| launcher.borrow_mut().clear(view.ptr(), view.size_bytes());
    differentiate(call, clear, |operator, run| {
        operator.backward_on(run, &mut **launcher.borrow_mut())
    })
}

/// Calls `run` with the operator of a backward call and its operands, and `clear` on gradients of
/// auxiliary states, which have none.
fn differentiate(
    call: &Call<'_>,
    clear: impl Fn(&View) -> Result<()>,
    run: impl FnOnce(&dyn Operator, &Backward<'_>) -> Result<()>,
) -> Result<()> {
    let Made { operator, layout } = made(call)?;
    let (declared, aux_states) = call.inputs.split_at(layout.deps.len());
    let read = |dep| layout.deps.iter().position(|d| *d == dep).map(|i| &declared[i]);
    type Operands<'a> = SmallVec<[Option<&'a View>; 8]>;
    let out_grad: Operands<'_> = (0..layout.visible).map(|i| read(Dep::OutGrad(i))).collect();
    let in_data: Operands<'_> = (0..layout.arguments).map(|i| read(Dep::Input(i))).collect();
    let out_data: Operands<'_> = (0..layout.outputs).map(|i| read(Dep::Output(i))).collect();
    let (in_grad, of_aux) = call.outputs.split_at(layout.arguments);
    let (req, req_of_aux) = call.req.split_at(layout.arguments);
    for (view, _) in of_aux.iter().zip(req_of_aux).filter(|(_, req)| **req != OpReq::Null) {
        clear(view)?;
    }
    let operands = Backward {
        ctx: call.ctx,
        out_grad: &out_grad,
        in_data: &in_data,
        out_data: &out_data,
        req,
        in_grad,
        aux_states,
    };
    run(&**operator, &operands)
}

#[cfg(test)]
mod tests;
