//! `SyncBatchNorm` on several devices: the calls of a layer meet, one of each device, and are
//! computed together.
//!
//! A call that comes early is an operation that has begun and not ended; it holds no thread. Who
//! comes last computes for all. What tells the devices apart is gamma, of which each has its own.

use super::batch_norm::{
    SyncBatchNormParam, as_forward, as_gradient, extents, param, update_moving,
};
use super::widening::widened;
use crate::error::{Error, Result, guarded};
use crate::kernels::norm::{Affine, Channels, Gradients};
use crate::kernels::real::Real;
use crate::lock::Lock;
use crate::operator::{
    Around, Body, Call, Callback, Compare, Done, Kernel, Match, NativeFn, OpDef, OpReq, OwnedCall,
};
use crate::with_real;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const SYNC: &str = r#"
`BatchNorm` over axis 1, whose statistics are those of the batches of all devices together.

Notes
-----
Everything else is as in `BatchNorm`. In training, ``ndev`` calls with one ``key``, each with a
gamma of its own, are computed together once all are there. A call that the others do not join
within 60 seconds fails; the environment variable ``RSNET_SYNC_SECONDS`` has another number.

Examples
--------
>>> x = nd.array([[1, 2], [3, 6]])
>>> with autograd.record():
...     y = nd.contrib.SyncBatchNorm(x, nd.ones(2), nd.zeros(2), nd.zeros(2), nd.ones(2), key='bn')
>>> y
[[-0.9995004 -0.99987507]
 [ 0.9995004  0.99987507]]

References
----------
H. Zhang et al., Context Encoding for Semantic Segmentation, CVPR 2018.
"#;

/// How long a call waits for those of the other devices. Without an end, a batch for one device
/// alone would hang the program.
const PATIENCE: Duration = Duration::from_secs(60);
/// The environment variable for another number of seconds.
const PATIENCE_VARIABLE: &str = "RSNET_SYNC_SECONDS";

/// Computes the calls of all devices.
type Together = fn(&[&Call<'_>]) -> Result<()>;

struct Waiting {
    call: OwnedCall,
    done: Done,
    until: Instant,
}

/// Those that wait, by the key of their layer, in order of arrival.
#[derive(Default)]
struct Room {
    waiting: BTreeMap<String, Vec<Waiting>>,
    is_watched: bool,
}

struct Meeting {
    room: Arc<Lock<Room>>,
    /// The place of gamma among the inputs.
    gamma: usize,
    alone: NativeFn,
    together: Together,
}

pub fn operators() -> Vec<OpDef> {
    let (name, back) = ("_contrib_SyncBatchNorm", "_backward_SyncBatchNorm");
    let def = as_forward(OpDef::new::<SyncBatchNormParam>(name), back).doc(SYNC);
    let back = as_gradient(OpDef::new::<SyncBatchNormParam>(back));
    vec![over_devices(def, 1, forward), over_devices(back, 2, backward)]
}

/// The operator with a kernel for calls over several devices.
fn over_devices(def: OpDef, gamma: usize, together: Together) -> OpDef {
    let several = meeting(&def.kernels[0], gamma, together);
    def.kernel(several)
}

/// The kernel of calls with `ndev > 1`, beside that of one device.
fn meeting(of_one: &Kernel, gamma: usize, together: Together) -> Kernel {
    let Body::Native(alone) = &of_one.body else { return of_one.clone() };
    let meeting = Meeting { room: Arc::default(), gamma, alone: alone.clone(), together };
    let several = Match::Attr("ndev".into(), Compare::Gt, "1".into());
    let matches = Match::And(Box::new(of_one.matches.clone()), Box::new(several));
    let kernel = Kernel::new("several devices".into(), matches, Body::Callback(Arc::new(meeting)));
    Kernel { priority: of_one.priority + 1, ..kernel }
}

fn borrowed(call: &OwnedCall) -> Call<'_> {
    Call {
        attrs: &call.attrs,
        ctx: &call.ctx,
        state: call.state.as_ref(),
        inputs: &call.inputs,
        req: &call.req,
        outputs: &call.outputs,
        memory: None,
        around: Around::NONE,
    }
}

fn patience() -> Duration {
    let given = std::env::var(PATIENCE_VARIABLE).ok().and_then(|text| text.parse().ok());
    given.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or(PATIENCE)
}

impl Callback for Meeting {
    fn start(&self, call: OwnedCall, done: Done) {
        let p = call.attrs.get::<SyncBatchNormParam>();
        if !call.ctx.is_train || p.use_global_stats {
            let result = guarded(|| (self.alone)(&borrowed(&call)));
            return done(result);
        }
        let (key, ndev) = (p.key.clone(), p.ndev as usize);
        call.within.leave_push();
        let mut room = self.room.lock();
        let waiting = room.waiting.entry(key.clone()).or_default();
        waiting.push(Waiting { call, done, until: Instant::now() + patience() });
        let Some(mut group) = self.complete(waiting, ndev) else {
            if !std::mem::replace(&mut room.is_watched, true) {
                let room = self.room.clone();
                thread::spawn(move || watch(&room));
            }
            return;
        };
        if waiting.is_empty() {
            room.waiting.remove(&key);
        }
        drop(room);
        // Sums do not depend on who came first.
        group.sort_by_key(|w| (w.call.ctx.device, self.who(w)));
        let result = guarded(|| {
            let calls: Vec<Call<'_>> = group.iter().map(|w| borrowed(&w.call)).collect();
            agree(&calls)?;
            all_widened(&calls, &[], self.together)
        });
        for member in group {
            (member.done)(result.clone());
        }
    }

    fn needs_host(&self) -> bool {
        true
    }
}

impl Meeting {
    fn who(&self, waiting: &Waiting) -> usize {
        waiting.call.inputs[self.gamma].ptr() as usize
    }

    /// Takes the first call of each of `ndev` devices, if they are there.
    fn complete(&self, waiting: &mut Vec<Waiting>, ndev: usize) -> Option<Vec<Waiting>> {
        let mut first: Vec<usize> = Vec::new();
        for (i, one) in waiting.iter().enumerate() {
            if first.iter().all(|at| self.who(&waiting[*at]) != self.who(one)) {
                first.push(i);
            }
        }
        first.truncate(ndev);
        (first.len() == ndev).then(|| first.iter().rev().map(|at| waiting.remove(*at)).collect())
    }
}

/// Ends calls that no other call met; returns when none waits.
fn watch(room: &Lock<Room>) {
    loop {
        let mut guard = room.lock();
        let now = Instant::now();
        let mut late = Vec::new();
        for (key, waiting) in &mut guard.waiting {
            let there = waiting.len();
            let ended = waiting.extract_if(.., |one| one.until <= now);
            late.extend(ended.map(|one| (key.clone(), there, one)));
        }
        guard.waiting.retain(|_, waiting| !waiting.is_empty());
        let next = guard.waiting.values().flatten().map(|one| one.until).min();
        guard.is_watched = next.is_some();
        drop(guard);
        for (key, there, one) in late {
            let ndev = one.call.attrs.get::<SyncBatchNormParam>().ndev;
            let what = format!("number of calls with key '{key}'");
            let expected = format!("{ndev}, one for each device, within {:?}", patience());
            (one.done)(Err(Error::invalid(&what, there, expected)));
        }
        match next {
            Some(next) => thread::sleep(next.saturating_duration_since(now)),
            None => return,
        }
    }
}

fn agree(calls: &[Call<'_>]) -> Result<()> {
    let first = &calls[0];
    let channels = |call: &Call<'_>| call.outputs[call.outputs.len() - 1].dims().to_vec();
    for call in &calls[1..] {
        let (a, b) = (first.inputs[0].dtype(), call.inputs[0].dtype());
        if a != b {
            return Err(Error::argument("data", "dtype", b, format!("{a} on every device")));
        }
        if channels(first) != channels(call) {
            let expected = format!("as many channels as {}", first.inputs[0].shape());
            return Err(Error::argument("data", "shape", call.inputs[0].shape(), expected));
        }
    }
    Ok(())
}

/// Runs `run` on the calls with half precision widened.
fn all_widened(calls: &[Call<'_>], wide: &[&Call<'_>], run: Together) -> Result<()> {
    match calls.split_first() {
        None => run(wide),
        Some((first, others)) => widened(first, |call| {
            let all: Vec<&Call<'_>> = wide.iter().copied().chain([call]).collect();
            all_widened(others, &all, run)
        }),
    }
}

fn forward(calls: &[&Call<'_>]) -> Result<()> {
    with_real!(calls[0].inputs[0].dtype(), T => forward_of::<T>(calls))
}

fn backward(calls: &[&Call<'_>]) -> Result<()> {
    with_real!(calls[0].inputs[0].dtype(), T => backward_of::<T>(calls))
}

/// Mean and variance of all elements of a channel, from number, mean and variance of parts.
fn joined(parts: &[(f64, f64, f64)]) -> (f64, f64) {
    let count: f64 = parts.iter().map(|part| part.0).sum::<f64>().max(1.0);
    let mean = parts.iter().map(|(n, mean, _)| n * mean).sum::<f64>() / count;
    let about = |(n, m, var): &(f64, f64, f64)| n * (var + (m - mean) * (m - mean));
    (mean, parts.iter().map(about).sum::<f64>() / count)
}

fn forward_of<T: Real>(calls: &[&Call<'_>]) -> Result<()> {
    let param = param(calls[0].attrs);
    let parts: Vec<Channels> = calls.iter().map(|call| extents(&param, &call.inputs[0])).collect();
    // SAFETY: inference gave the views these extents. The statistics overlap no input, and an
    // output is its data or apart from all.
    unsafe {
        for (call, part) in calls.iter().zip(&parts) {
            let [_, mean, var] = call.outputs else { unreachable!("three outputs") };
            part.statistics::<T>(call.inputs[0].as_ptr(), mean.as_ptr(), var.as_ptr());
        }
        for c in 0..parts[0].channels {
            let at = |call: &Call<'_>, i: usize| call.outputs[i].as_ptr::<T>().add(c);
            let of = |(call, part): (&&Call<'_>, &Channels)| {
                (part.count() as f64, (*at(call, 1)).to_f64(), (*at(call, 2)).to_f64())
            };
            let of_parts: Vec<_> = calls.iter().zip(&parts).map(of).collect();
            let (mean, var) = joined(&of_parts);
            for call in calls {
                *at(call, 1) = T::of(mean);
                *at(call, 2) = T::of(1.0 / (var + param.eps).sqrt());
            }
        }
        for (call, part) in calls.iter().zip(&parts) {
            let [data, gamma, beta, ..] = call.inputs else { unreachable!("five inputs") };
            let [out, mean, inv_std] = call.outputs else { unreachable!("three outputs") };
            let affine = Affine {
                mean: mean.as_ptr::<T>().cast_const(),
                inv_std: inv_std.as_ptr::<T>().cast_const(),
                gamma: (!param.fix_gamma).then(|| gamma.as_ptr::<T>().cast_const()),
                beta: beta.as_ptr::<T>().cast_const(),
            };
            if call.req[0] != OpReq::Null {
                part.normalise(data.as_ptr(), affine, out.as_ptr(), &|_| ());
            }
        }
    }
    Ok(())
}

fn backward_of<T: Real>(calls: &[&Call<'_>]) -> Result<()> {
    let param = param(calls[0].attrs);
    let parts: Vec<Channels> = calls.iter().map(|call| extents(&param, &call.inputs[1])).collect();
    let channels = parts[0].channels;
    let affine = |call: &Call<'_>| {
        let [_, _, gamma, mean, inv_std, ..] = call.inputs else { unreachable!("seven inputs") };
        Affine {
            mean: mean.as_ptr::<T>().cast_const(),
            inv_std: inv_std.as_ptr::<T>().cast_const(),
            gamma: Some(gamma.as_ptr::<T>().cast_const()),
            beta: std::ptr::null(),
        }
    };
    // Of every call the sums of `dy` and of `dy (x - mean) / std`, which are the gradients of beta
    // and gamma.
    let mut sums = vec![T::zero(); 2 * channels * calls.len()];
    // SAFETY: gradients have the extents of their inputs; the data's may be the memory of `grad` or
    // `data`, all others are apart. The moving averages are declared as mutated.
    unsafe {
        for ((call, part), sums) in
            calls.iter().zip(&parts).zip(sums.chunks_exact_mut(2 * channels))
        {
            let (beta, gamma) = sums.split_at_mut(channels);
            let to = Gradients {
                data: std::ptr::null_mut(),
                gamma: gamma.as_mut_ptr(),
                beta: beta.as_mut_ptr(),
            };
            let (dy, x) = (call.inputs[0].as_ptr::<T>(), call.inputs[1].as_ptr::<T>());
            part.backward(dy, x, affine(call), true, to, &|_| ());
            update_moving::<T>(&param, &call.inputs[3..7]);
        }
        let count = parts.iter().map(Channels::count).sum::<usize>().max(1) as f64;
        let total = |i: usize| sums.chunks_exact(2 * channels).map(|s| s[i].to_f64()).sum::<f64>();
        let inv_std = calls[0].inputs[4].slice::<T>();
        let slopes: Vec<T> = (0..channels)
            .flat_map(|c| {
                let slope = total(channels + c) * inv_std[c].to_f64() / count;
                [T::of(total(c) / count), T::of(slope)]
            })
            .collect();
        for ((call, part), sums) in calls.iter().zip(&parts).zip(sums.chunks_exact(2 * channels)) {
            let of_gamma =
                |a: Affine<T>| Affine { gamma: a.gamma.filter(|_| !param.fix_gamma), ..a };
            let (dy, x) = (call.inputs[0].as_ptr::<T>(), call.inputs[1].as_ptr::<T>());
            let wanted = |i: usize| call.req.get(i).is_some_and(|req| *req != OpReq::Null);
            if wanted(0) {
                let a = of_gamma(affine(call));
                part.data_gradient(dy, x, a, slopes.as_ptr(), call.outputs[0].as_ptr());
            }
            for i in (1..call.outputs.len()).filter(|i| wanted(*i)) {
                let to = call.outputs[i].slice_mut::<T>();
                match i {
                    1 if !param.fix_gamma => to.copy_from_slice(&sums[channels..]),
                    2 => to.copy_from_slice(&sums[..channels]),
                    _ => to.fill(T::zero()),
                }
            }
        }
    }
    Ok(())
}
