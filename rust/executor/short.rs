//! The short way of an element-wise operator on small arrays: nothing is inferred, planned or queued.
//!
//! Such an operator gives an array like its inputs, and how their elements are arranged does not matter to it. Where
//! nothing is in the way, that is all there is to know: memory, kernel, and the new array.

use super::imperative::{CHEAP_ELEMS, TINY_ELEMS};
use crate::ndarray::{Fresh, NDArray, with_quiet};
use crate::operator::{Attrs, Call, NativeFn, OpContext, OpDef, OpReq};
use crate::profiler::mode;

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
    let a = arrays[0];
    let elems = (N + 1) * a.size();
    if elems > CHEAP_ELEMS || !arrays.iter().all(|a| a.context().is_host()) {
        return None;
    }
    let mut at = [std::ptr::null_mut(); N];
    for (at, array) in at.iter_mut().zip(arrays) {
        *at = array.address().ok()?;
    }
    let out = a.memory_like().ok()?;
    // Views are made where they stay: copying their small parts one by one and then as a whole stalls.
    // SAFETY: each with its own address, the output in memory made for it.
    let inputs: [_; N] = std::array::from_fn(|i| unsafe { a.flat_view(at[i]) });
    // SAFETY: as above.
    let outputs = unsafe { [a.flat_view(out.address)] };
    let ctx = OpContext { device: a.context(), ..OpContext::default() };
    let (inputs, req, outputs) = (&inputs, &[OpReq::Write], &outputs);
    let call = Call { attrs, ctx: &ctx, state: None, inputs, req, outputs };
    let mut failed = false;
    let profiler = &a.base().profiler;
    let mut run = || {
        let _span = profiler.operator(mode::IMPERATIVE, &op.name, "", ctx.device);
        failed = kernel(&call).is_err();
    };
    let ran = with_quiet(&arrays, &[], elems <= TINY_ELEMS, &mut run);
    (ran && !failed).then_some(out)
}
