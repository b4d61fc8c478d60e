//! Tests of write requests as kernels see them.

use super::run::{PendingCallback, prepare};
use crate::context::Context;
use crate::dtype::DType;
use crate::engine::NaiveEngine;
use crate::error::Result;
use crate::kernels::copy::{add, copy};
use crate::lock::Lock;
use crate::ndarray::Base;
use crate::operator::{
    Body, Callback, Done, Kernel, OpContext, OpDef, OpReq, OwnedCall, Value, Within,
};
use crate::ops::testing::Tensor;
use smallvec::SmallVec;
use std::sync::Arc;

/// Copies its input as requested, and keeps the requests.
struct Probe {
    seen: Arc<Lock<Vec<OpReq>>>,
}

impl Callback for Probe {
    fn start(&self, call: OwnedCall, done: Done) {
        self.seen.lock().push(call.req[0]);
        let store = if call.req[0] == OpReq::Add { add } else { copy };
        store(&call.inputs[0], &call.outputs[0]);
        done(Ok(()));
    }
}

struct Here;

impl Within for Here {
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
}

/// The request that the kernel sees and the output that it leaves, for the request `Add`.
fn asked_to_add(op: &Arc<OpDef>, seen: &Lock<Vec<OpReq>>, times: i64) -> Result<(OpReq, Vec<f64>)> {
    let attrs = Arc::new(op.parse(&[("times", Value::Int(times))])?);
    let base = Base::new(Arc::new(NaiveEngine::new()));
    let shape = || std::iter::repeat_n((DType::F64, 1), 2);
    let prepared = prepare(&base, op, &attrs, Context::default(), (1, shape))?;
    let (x, y) = (Tensor::of(&[2], &[1.0, 2.0]), Tensor::of(&[2], &[10.0, 20.0]));
    let (inputs, outputs) = ([x.view()], [y.view()]);
    let req = [OpReq::Add];
    let direct = prepared.direct(&inputs, &req, &outputs);
    let context = OpContext::default();
    let (inputs, outputs) = (Arc::new(inputs), Arc::new(outputs));
    let call = OwnedCall {
        attrs: attrs.clone(),
        ctx: context,
        state: None,
        inputs,
        mutated: SmallVec::new(),
        req: req.into_iter().collect(),
        outputs,
        keep: Arc::new(()),
        within: Arc::new(Here),
    };
    let done: Done = Box::new(|result| result.unwrap());
    prepared.start_callback(PendingCallback { call, direct, done });
    let seen = seen.lock().pop();
    Ok((seen.unwrap(), y.values()))
}

#[test]
fn a_callback_that_accumulates_sees_add_and_others_a_temporary() {
    let seen = Arc::new(Lock::new(Vec::new()));
    let probe = Body::Callback(Arc::new(Probe { seen: seen.clone() }));
    let mut op = OpDef::plain("probe").elementwise();
    op.kernels.push(Arc::new(Kernel { body: probe, ..Kernel::cpu(|_| Ok(())) }));
    let plain = Arc::new(op.clone());
    assert_eq!(asked_to_add(&plain, &seen, 1).unwrap(), (OpReq::Write, vec![11.0, 22.0]));
    // The parameters of a call decide.
    op.accumulates = Some(Arc::new(|attrs| attrs.given().iter().any(|g| g.1 == Value::Int(2))));
    let op = Arc::new(op);
    assert_eq!(asked_to_add(&op, &seen, 1).unwrap(), (OpReq::Write, vec![11.0, 22.0]));
    assert_eq!(asked_to_add(&op, &seen, 2).unwrap(), (OpReq::Add, vec![11.0, 22.0]));
}
