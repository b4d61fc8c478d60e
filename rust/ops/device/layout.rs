//! Operators over windows in any layout: their functions take channels first, so operands of other
//! layouts pass through copies in that order.

use super::shape::copy_views;
use super::{FLOATS, wanted};
use crate::error::Result;
use crate::operator::{Call, Kernel, Launcher, OpReq};
use crate::shape::{Dims, Shape};
use crate::tensor::View;
use smallvec::SmallVec;

pub type Issue = fn(&Call<'_>, &mut dyn Launcher) -> Result<()>;

/// A kernel that launches functions of `window.cu` on operands with channels first.
pub fn in_any_layout(functions: &[&str], issue: Issue) -> Kernel {
    let copy = functions.len();
    let functions: Vec<&str> = functions.iter().copied().chain(["copy<$0>"]).collect();
    Kernel::cuda("window", &functions, &[("data", FLOATS)], move |call, launcher| {
        let wants = |i: usize| wanted(call, i);
        match (0..call.outputs.len()).any(wants) {
            true if channels_last(call) => with_copies(call, launcher, copy, issue),
            true => issue(call, launcher),
            false => Ok(()),
        }
    })
}

fn channels_last(call: &Call<'_>) -> bool {
    call.attrs.value("layout").is_some_and(|layout| layout.to_string().ends_with('C'))
}

/// Images and filters; not a bias.
fn has_layout(view: &View) -> bool {
    view.ndim() > 2
}

/// The elements of a view (outer, positions, channels) as (outer, channels, positions): how they
/// lie in the call, and in a copy at `at`.
fn orders(view: &View, at: *mut u8) -> [View; 2] {
    let [n, c] = [view.dims()[0], view.dims()[view.ndim() - 1]];
    let p = view.shape().product(1..view.ndim() - 1) as i64;
    let shape = Shape::new(&[n, c, p]);
    let strides = Dims::from_slice(&[p * c, 1, c]);
    // SAFETY: the elements of the view by other steps, and memory of the same size.
    unsafe {
        [
            View::with_strides(view.ptr(), shape.clone(), strides, view.dtype()),
            View::new(at, shape, view.dtype()),
        ]
    }
}

/// Memory for a copy of a view, which keeps its shape, as that of the call is what the operator
/// expects.
fn copy_of(launcher: &dyn Launcher, view: &View) -> Result<View> {
    let at = launcher.memory().take(view.size_bytes())?;
    // SAFETY: memory of the view's size.
    Ok(unsafe { View::new(at, view.shape().clone(), view.dtype()) })
}

/// Issues a call on copies of the operands that have a layout; `copy` is the function that makes
/// them.
fn with_copies(
    call: &Call<'_>,
    launcher: &mut dyn Launcher,
    copy: usize,
    issue: Issue,
) -> Result<()> {
    let mut inputs: SmallVec<[View; 4]> = call.inputs.into();
    for view in inputs.iter_mut().filter(|view| has_layout(view)) {
        let first = copy_of(launcher, view)?;
        let [from, to] = orders(view, first.ptr());
        copy_views(launcher, copy, &from, &to, 0)?;
        *view = first;
    }
    let (mut outputs, mut req): (SmallVec<[View; 4]>, SmallVec<[OpReq; 4]>) =
        (call.outputs.into(), call.req.into());
    let moved = |i: usize| wanted(call, i) && has_layout(&call.outputs[i]);
    for i in (0..outputs.len()).filter(|i| moved(*i)) {
        outputs[i] = copy_of(launcher, &call.outputs[i])?;
        req[i] = OpReq::Write;
    }
    let on_copies = Call { inputs: &inputs, req: &req, outputs: &outputs, ..*call };
    issue(&on_copies, launcher)?;
    for i in (0..outputs.len()).filter(|i| moved(*i)) {
        let [to, from] = orders(&call.outputs[i], outputs[i].ptr());
        copy_views(launcher, copy, &from, &to, super::add(call, i))?;
    }
    Ok(())
}
