//! Half precision for kernels that calculate in `f32` or `f64`: inputs are widened into scratch,
//! the kernel runs on `f32` views, outputs are narrowed.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::scratch::with_scratch;
use crate::operator::{Call, Kernel, OpReq};
use crate::tensor::View;
use half::f16;
use half::slice::HalfFloatSliceExt;

type WideKernel = fn(&Call<'_>) -> Result<()>;

/// A CPU kernel from a body that handles float32 and float64; float16 is converted around it. The
/// body leaves unwanted outputs alone.
pub fn cpu(run: WideKernel) -> Kernel {
    Kernel::cpu(move |call| widened(call, run)).skips_null()
}

/// A kernel that writes its hidden outputs even where they were not requested, so that all need
/// memory.
pub fn always(run: WideKernel) -> Kernel {
    Kernel { skips_null: false, ..cpu(run) }
}

fn is_half(view: &View) -> bool {
    view.dtype() == DType::F16
}

/// Elements that a task converts.
const GRAIN: usize = 1 << 15;

/// Converts on all threads.
fn widen(from: &[f16], to: &mut [f32]) {
    let to = Shared(to.as_mut_ptr());
    parallel_for(from.len(), GRAIN, |part| {
        // SAFETY: both have one length, and parts are apart.
        let to = unsafe { std::slice::from_raw_parts_mut(to.at(part.start), part.len()) };
        from[part].convert_to_f32_slice(to);
    });
}

/// As [`widen`], back.
fn round(from: &[f32], to: &mut [f16]) {
    let to = Shared(to.as_mut_ptr());
    parallel_for(from.len(), GRAIN, |part| {
        // SAFETY: as above.
        let to = unsafe { std::slice::from_raw_parts_mut(to.at(part.start), part.len()) };
        to.convert_from_f32_slice(&from[part]);
    });
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
                    widen(view.slice(), wide.slice_mut());
                }
                wide
            }
        };
        let inputs: Vec<View> = call.inputs.iter().map(|v| widen(v, true)).collect();
        let outputs: Vec<View> = call.outputs.iter().map(|v| widen(v, false)).collect();
        run(&Call { inputs: &inputs, outputs: &outputs, ..*call })?;
        for ((wide, narrow), req) in outputs.iter().zip(call.outputs).zip(call.req) {
            if is_half(narrow) && *req != OpReq::Null {
                // SAFETY: the output is ours to write; the scratch of `wide` is still held.
                unsafe { round(wide.slice(), narrow.slice_mut()) };
            }
        }
        Ok(())
    })
}
