//! `RNN` on a CUDA device: its operands as addresses, for the launches in `ops/device/rnn.rs`.

use super::{LastRun, Rnn, RnnMode};
use crate::error::Result;
use crate::operator::property::{Backward, Forward};
use crate::operator::{Launcher, OpContext, OpReq};
use crate::ops::device::rnn::{self, Gradients, Recorded, Results, RnnOperands};
use crate::tensor::View;
use std::any::Any;
use std::sync::Arc;

fn operands<'a>(of: &'a Rnn, ctx: &OpContext, inputs: &[&View]) -> RnnOperands<'a> {
    let (param, d) = (&of.param, inputs[0].dims());
    let lengths = inputs.last().filter(|_| param.use_sequence_length);
    let has_cell = param.mode == RnnMode::Lstm;
    RnnOperands {
        param,
        dtype: inputs[0].dtype(),
        time: d[0] as usize,
        batch: d[1] as usize,
        first: d[2] as usize,
        x: inputs[0].ptr(),
        weights: inputs[1].ptr(),
        state: inputs[2].ptr(),
        cell: if has_cell { inputs[3].ptr() } else { std::ptr::null_mut() },
        lengths: lengths.map(|view| (view.ptr(), view.dtype())),
        key: ctx.random,
        train: ctx.is_train,
    }
}

/// The address of array `i` if it is requested.
fn target(req: &[OpReq], views: &[View], i: usize) -> *mut u8 {
    match req.get(i).is_some_and(|r| *r != OpReq::Null) {
        true => views[i].ptr(),
        false => std::ptr::null_mut(),
    }
}

pub fn forward(of: &Rnn, run: &Forward<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let inputs: Vec<&View> = run.in_data.iter().collect();
    let [out, states, cells] = [0, 1, 2].map(|i| target(run.req, run.out_data, i));
    let source = operands(of, run.ctx, &inputs);
    let keep = run.ctx.need_grad;
    let made = rnn::forward(launcher, &source, &Results { out, states, cells }, keep)?;
    let made = made.map(|made| Arc::new(made) as Arc<dyn Any + Send + Sync>);
    *of.kept.lock() = LastRun { key: run.ctx.random, train: run.ctx.is_train, run: made };
    Ok(())
}

pub fn backward(of: &Rnn, run: &Backward<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let inputs: Vec<&View> = run.in_data.iter().copied().flatten().collect();
    let mut source = operands(of, run.ctx, &inputs);
    let recorded = {
        let kept = of.kept.lock();
        (source.key, source.train) = (kept.key, kept.train);
        kept.run.clone().and_then(|run| run.downcast::<Recorded>().ok())
    };
    let head =
        |i: usize| run.out_grad.get(i).copied().flatten().map_or(std::ptr::null_mut(), View::ptr);
    let to = |i: usize| target(run.req, run.in_grad, i);
    let cell = |of: *mut u8| if source.cell.is_null() { std::ptr::null_mut() } else { of };
    let gradients = Gradients {
        out: head(0),
        last_states: head(1),
        last_cells: cell(head(2)),
        x: to(0),
        weights: to(1),
        states: to(2),
        cells: cell(to(3)),
    };
    rnn::backward(launcher, &source, recorded.as_deref(), &gradients)?;
    match run.in_grad.len() - 1 {
        last if of.param.use_sequence_length && run.req[last] != OpReq::Null => {
            launcher.clear(run.in_grad[last].ptr(), run.in_grad[last].size_bytes())
        }
        _ => Ok(()),
    }
}
