//! Half precision for kernels that calculate in `f32` or `f64`: inputs are widened into scratch,
//! the kernel runs on `f32` views, outputs are narrowed.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::copy::copy;
use crate::kernels::scratch::with_scratch;
use crate::operator::{Call, Kernel, OpReq};
use crate::tensor::View;

type WideKernel = fn(&Call<'_>) -> Result<()>;

/// A CPU kernel from a body that handles float32 and float64; float16 is converted around it. The
/// body leaves unwanted outputs alone.
pub fn cpu(run: WideKernel) -> Kernel {
    Kernel::cpu(move |call| widened(call, run)).skips_null()
}

/// As [`cpu`], where `narrow` is asked first about calls in half precision. It returns whether it
/// has done the work.
pub fn cpu_unless(narrow: fn(&Call<'_>) -> bool, run: WideKernel) -> Kernel {
    let or_widened = move |call: &Call<'_>| {
        let is_wanted = call.req[0] != OpReq::Null;
        if is_wanted && is_half(&call.inputs[0]) && narrow(call) {
            return Ok(());
        }
        widened(call, run)
    };
    Kernel::cpu(or_widened).skips_null()
}

/// A kernel that writes its hidden outputs even where they were not requested, so that all need
/// memory.
pub fn always(run: WideKernel) -> Kernel {
    Kernel { skips_null: false, ..cpu(run) }
}

fn is_half(view: &View) -> bool {
    view.dtype() == DType::F16
}

/// Runs such a body, a closure, on a call.
pub fn widened(call: &Call<'_>, run: impl Fn(&Call<'_>) -> Result<()>) -> Result<()> {
    let all = || call.inputs.iter().chain(call.outputs);
    if !all().any(is_half) {
        return run(call);
    }
    let room: usize = all().filter(|v| is_half(v)).map(|v| v.size().next_multiple_of(16)).sum();
    with_scratch::<f32, _>(room, |scratch| {
        let mut next = scratch.as_mut_ptr();
        let mut widen = |view: &View, read: bool| {
            if !is_half(view) {
                return view.clone();
            }
            // SAFETY: `room` counts every half view; the input's elements are valid and not written
            // now.
            unsafe {
                let wide = View::new(next.cast(), view.shape().clone(), DType::F32);
                next = next.add(view.size().next_multiple_of(16));
                if read {
                    copy(view, &wide);
                }
                wide
            }
        };
        let inputs: Vec<View> = call.inputs.iter().map(|v| widen(v, true)).collect();
        let outputs: Vec<View> = call.outputs.iter().map(|v| widen(v, false)).collect();
        run(&Call { inputs: &inputs, outputs: &outputs, ..*call })?;
        for ((wide, narrow), req) in outputs.iter().zip(call.outputs).zip(call.req) {
            if is_half(narrow) && *req != OpReq::Null {
                copy(wide, narrow);
            }
        }
        Ok(())
    })
}
