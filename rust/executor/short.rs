//! The short way of an element-wise operator on small arrays: nothing is inferred, planned or queued.
//!
//! Such an operator gives an array like its inputs, and how their elements are arranged does not matter to it. Where
//! nothing is in the way, that is all there is to know: memory, kernel, and the new array.

use super::at_once::{Named, at_once};
use crate::ndarray::{Fresh, NDArray};
use crate::operator::{Attrs, Call, NativeFn, OpContext, OpDef, OpReq};

/// Calls `op` on `inputs` at once: memory that holds its result, which is an array like the inputs. None, and nothing
/// done, where this way is not open; so too where the call fails, which the long way then tells.
#[inline]
pub fn call(op: &OpDef, attrs: &Attrs, inputs: &[&NDArray]) -> Option<Fresh> {
    match *inputs {
        [a] => run(op, op.elementwise_kernel(1)?, attrs, [a]),
        [a, b] if a.dtype() == b.dtype() && a.shape() == b.shape() => {
            run(op, op.elementwise_kernel(2)?, attrs, [a, b])
        }
        _ => None,
    }
}

#[inline(always)]
fn run<const N: usize>(
    op: &OpDef,
    kernel: &NativeFn,
    attrs: &Attrs,
    arrays: [&NDArray; N],
) -> Option<Fresh> {
    if !arrays.iter().all(|a| a.context().is_host()) {
        return None;
    }
    let a = arrays[0];
    let device = a.context();
    let compute = || {
        let inputs = NDArray::flat_views(arrays)?;
        let out = a.memory_like()?;
        let outputs = [a.flat_view_of(&out)];
        let ctx = OpContext { device, ..OpContext::default() };
        let (inputs, req, outputs) = (&inputs, &[OpReq::Write], &outputs);
        kernel(&Call { attrs, ctx: &ctx, state: None, inputs, req, outputs })?;
        Ok(out)
    };
    let named = Named { profiler: &a.base().profiler, name: &op.name, node: "", device };
    at_once(named, &arrays, &[], (N + 1) * a.size(), compute)?.ok()
}
