//! Watching a kernel (`load_library(path, check=True)`): outputs stand between guard bytes, and
//! inputs are compared before and after the call.

use super::abi;
use super::parsed::Parsed;
use crate::error::{Error, Result};
use crate::kernels::copy::{Buffer, copy};
use crate::operator::{Call, OpReq};
use crate::tensor::View;
use std::hash::{DefaultHasher, Hasher};

const GUARD_BYTES: usize = 64;
const GUARD: u8 = 0xA5;

/// The state before a call.
pub struct Watch {
    inputs: Vec<u64>,
    /// Copies of outputs, each between guards: `None` for an output that is not watched.
    outputs: Vec<Option<Buffer>>,
    names: [Vec<String>; 2],
    states: Vec<bool>,
}

fn bytes(view: &View) -> &[u8] {
    if view.size() == 0 {
        return &[];
    }
    // SAFETY: the views of a call are blocks of memory that nothing else writes.
    unsafe { std::slice::from_raw_parts(view.ptr(), view.size_bytes()) }
}

fn hash(view: &View) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes(view));
    hasher.finish()
}

/// The output in its buffer, and the bytes before and after it.
fn parts(buffer: &mut Buffer, like: &View) -> (View, [View; 2]) {
    let padded = like.size_bytes().next_multiple_of(GUARD_BYTES);
    let guard = || crate::shape::Shape::flat(GUARD_BYTES);
    let before = buffer.view(0, guard(), crate::dtype::DType::U8);
    let middle = buffer.view(GUARD_BYTES, like.shape().clone(), like.dtype());
    let tail = crate::shape::Shape::flat(GUARD_BYTES + padded - like.size_bytes());
    let after = buffer.view(GUARD_BYTES + like.size_bytes(), tail, crate::dtype::DType::U8);
    (middle, [before, after])
}

impl Watch {
    /// Replaces outputs that share no memory with an input by copies between guards.
    pub fn begin(parsed: &Parsed, call: &Call<'_>, outputs: &mut [abi::Tensor]) -> Watch {
        let mut buffers = Vec::with_capacity(outputs.len());
        for ((view, req), tensor) in call.outputs.iter().zip(call.req).zip(outputs) {
            if *req == OpReq::Inplace || (*req == OpReq::Null && view.ptr().is_null()) {
                buffers.push(None);
                continue;
            }
            let padded = view.size_bytes().next_multiple_of(GUARD_BYTES);
            let mut buffer = Buffer::new(padded + 2 * GUARD_BYTES);
            let (middle, guards) = parts(&mut buffer, view);
            for guard in &guards {
                // SAFETY: bytes of the buffer, which nothing else refers to.
                unsafe { guard.ptr().write_bytes(GUARD, guard.size()) };
            }
            if *req == OpReq::Add {
                copy(view, &middle);
            }
            tensor.data = middle.ptr().cast();
            buffers.push(Some(buffer));
        }
        let names = parsed.names.each_ref().map(|n| n.iter().map(|n| n.0.clone()).collect());
        Watch {
            inputs: call.inputs.iter().map(hash).collect(),
            outputs: buffers,
            names,
            states: parsed.names[0].iter().map(|n| n.1 & abi::STATE != 0).collect(),
        }
    }

    /// Compares, and copies the outputs to their places.
    pub fn end(mut self, call: &Call<'_>) -> Result<()> {
        let fault = |what: String| Err(Error::execution(format!("the kernel wrote {what}")));
        for (i, view) in call.inputs.iter().enumerate() {
            let shared = call
                .outputs
                .iter()
                .zip(call.req)
                .any(|(o, r)| *r == OpReq::Inplace && o.ptr() == view.ptr());
            let state = self.states.get(i).copied().unwrap_or(false);
            if !shared && !state && hash(view) != self.inputs[i] {
                let name = self.names[0].get(i).map_or("?", |n| n.as_str());
                return fault(format!("to its input '{name}', which it may only read"));
            }
        }
        for (i, (view, buffer)) in call.outputs.iter().zip(&mut self.outputs).enumerate() {
            let Some(buffer) = buffer else { continue };
            let (middle, guards) = parts(buffer, view);
            for (guard, side) in guards.iter().zip(["before", "after"]) {
                if bytes(guard).iter().any(|b| *b != GUARD) {
                    let name = self.names[1].get(i).map_or("?", |n| n.as_str());
                    let size = view.size_bytes();
                    return fault(format!("{side} the {size} bytes of its output '{name}'"));
                }
            }
            if call.req[i] != OpReq::Null {
                copy(&middle, view);
            }
        }
        Ok(())
    }
}
