//! The steps of optimizers, and their reductions over all arrays.
//!
//! A step is a rule of `update.cu` with its numbers. Operators on many weights launch it once for
//! each, and choose the functions by the weight's dtype when they run, because weights may differ.

mod sums;

use self::sums::{all_finite, multi_all_finite, multi_sum_sq, parts};
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Argument, Call, Grid, Kernel, Launcher};
use crate::ops::tensor::optimizer::adamw::{AdamWParam, MultiAdamWParam};
use crate::ops::tensor::optimizer::lamb::{MultiLambParam, Phase1Param, Phase2Param};
use crate::ops::tensor::optimizer::many::{
    MultiSgdMomParam, MultiSgdParam, PreloadedSgdMomParam, PreloadedSgdParam,
};
use crate::ops::tensor::optimizer::rates::{GroupAdagradParam, LarsParam};
use crate::ops::tensor::optimizer::{AdamParam, Descent, RmsPropParam, SgdMomParam, SgdParam};
use crate::ops::tensor::updates::{
    FtmlParam, FtrlParam, RmsPropAlexParam, SignSgdParam, SignumParam,
};
use crate::tensor::View;

/// The numbers of a rule: `Numbers` of `update.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Numbers([f64; Numbers::MOST]);

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Numbers {}

impl Numbers {
    const MOST: usize = 10;

    fn of(given: &[f64]) -> Self {
        let mut numbers = [0.0; Self::MOST];
        numbers[..given.len()].copy_from_slice(given);
        Numbers(numbers)
    }
}

/// Numbers of single precision.
macro_rules! numbers {
    ($($x:expr),* $(,)?) => { Numbers::of(&[$(f64::from($x)),*]) };
}

/// A rule of `update.cu`, and how many states it has.
#[derive(Clone, Copy)]
struct Rule(&'static str, usize);

/// Numbers that are read on the device, or null.
type Loaded = [*mut u8; 2];
const NONE: Loaded = [std::ptr::null_mut(); 2];

/// One step: its arrays and numbers.
struct Step<'a> {
    weight: &'a View,
    /// True if the weight is changed in place; otherwise only the output is written.
    changes: bool,
    /// The weight in the dtype of the output.
    narrow: &'a View,
    gradient: &'a View,
    states: &'a [View],
    out: *mut u8,
    loaded: Loaded,
    numbers: Numbers,
    add: i32,
}

impl Step<'_> {
    fn issue(&self, launcher: &mut dyn Launcher, function: usize) -> Result<()> {
        let null = std::ptr::null_mut();
        let (n, w) = (self.weight.size(), self.weight.ptr());
        let state = |k: usize| self.states.get(k).map_or(null, View::ptr);
        let mut args = args![
            n as i64,
            w,
            if self.changes { w } else { null },
            self.narrow.ptr(),
            self.gradient.ptr(),
            state(0),
            state(1),
            state(2),
            self.out,
            self.loaded[0],
            self.loaded[1],
            self.numbers,
            self.add
        ];
        launcher.launch(function, Grid::over(n), &mut args)
    }
}

/// The address of output `i`, null if it is not wanted.
fn target(call: &Call<'_>, i: usize) -> *mut u8 {
    if wanted(call, i) { call.outputs[i].ptr() } else { std::ptr::null_mut() }
}

/// The step of output `i` on its weight, gradient and states, and with `mixed` a copy of the weight
/// in single precision, which changes.
fn step<'a>(
    call: &Call<'_>,
    i: usize,
    arrays: &'a [View],
    (states, mixed): (usize, bool),
    loaded: Loaded,
    numbers: Numbers,
) -> Step<'a> {
    Step {
        weight: &arrays[if mixed { 2 + states } else { 0 }],
        changes: mixed,
        narrow: &arrays[0],
        gradient: &arrays[1],
        states: &arrays[2..2 + states],
        out: target(call, i),
        loaded,
        numbers,
        add: add(call, i),
    }
}

/// The function of a rule for weights of type `of`.
fn function(rule: Rule, of: &str, mixed: bool) -> String {
    format!("update<{}, {}, {of}, {of}, float>", rule.0, if mixed { "float" } else { of })
}

const WEIGHT: &[(&str, &[DType])] = &[("weight", FLOATS)];

/// A step of one weight.
fn one(rule: Rule, mixed: bool, numbers: fn(&Call<'_>) -> Numbers) -> Vec<Kernel> {
    let name = function(rule, "$0", mixed);
    vec![Kernel::cuda("update", &[&name], WEIGHT, move |call, launcher| {
        let of = (rule.1, mixed);
        step(call, 0, call.inputs, of, NONE, numbers(call)).issue(launcher, 0)
    })]
}

/// A step that is taken only if the new weight is wanted.
fn if_wanted(rule: Rule, numbers: fn(&Call<'_>) -> Numbers) -> Vec<Kernel> {
    let name = function(rule, "$0", false);
    vec![kernel("update", &[&name], WEIGHT, move |call, launcher| {
        step(call, 0, call.inputs, (rule.1, false), NONE, numbers(call)).issue(launcher, 0)
    })]
}

fn descent(d: Descent) -> Numbers {
    numbers![d.lr, d.wd, d.rescale, d.clip, d.momentum]
}

fn sgd(call: &Call<'_>) -> Numbers {
    descent(call.attrs.get::<SgdParam>().descent())
}

fn momentum(call: &Call<'_>) -> Numbers {
    descent(call.attrs.get::<SgdMomParam>().descent())
}

fn adam(call: &Call<'_>) -> Numbers {
    let p = call.attrs.get::<AdamParam>();
    numbers![p.lr, p.wd, p.rescale_grad, p.clip_gradient, p.beta1, p.beta2, p.epsilon]
}

fn rmsprop(call: &Call<'_>) -> Numbers {
    let p = call.attrs.get::<RmsPropParam>();
    let of_gradient = [p.rescale_grad, p.clip_gradient];
    numbers![p.lr, p.wd, of_gradient[0], of_gradient[1], p.gamma1, p.epsilon, p.clip_weights]
}

fn rmsprop_alex(call: &Call<'_>) -> Numbers {
    let p = call.attrs.get::<RmsPropAlexParam>();
    numbers![
        p.lr,
        p.wd,
        p.rescale_grad,
        p.clip_gradient,
        p.gamma1,
        1.0 - p.gamma1,
        p.gamma2,
        p.epsilon,
        p.clip_weights
    ]
}

fn sign_sgd(call: &Call<'_>) -> Numbers {
    let p = call.attrs.get::<SignSgdParam>();
    numbers![p.lr, p.lr * p.wd, p.rescale_grad, p.clip_gradient]
}

fn signum(call: &Call<'_>) -> Numbers {
    let p = call.attrs.get::<SignumParam>();
    let (left, right) = (1.0 - p.momentum, 1.0 - p.lr * p.wd_lh);
    numbers![p.lr, p.wd, p.rescale_grad, p.clip_gradient, p.momentum, left, right]
}

fn ftrl(call: &Call<'_>) -> Numbers {
    let p = call.attrs.get::<FtrlParam>();
    numbers![p.lr, p.wd, p.rescale_grad, p.clip_gradient, p.lamda1, p.beta]
}

fn ftml(call: &Call<'_>) -> Numbers {
    let p = call.attrs.get::<FtmlParam>();
    let rest = |beta: f32| match call.inputs[0].dtype() {
        DType::F64 => 1.0 - f64::from(beta).powi(p.t),
        _ => f64::from(1.0 - beta.powi(p.t)),
    };
    let limit = p.clip_grad;
    let (first, second) = (rest(p.beta1), rest(p.beta2));
    numbers![p.lr, p.wd, p.rescale_grad, limit, p.beta1, p.beta2, p.epsilon, first, second]
}

const ADAMW: Rule = Rule("AdamW", 2);

fn adamw_numbers(p: &AdamWParam) -> Numbers {
    let limit = p.clip_gradient;
    numbers![0.0, 0.0, p.lr, p.eta, p.wd, p.epsilon, limit, p.beta1, p.beta2]
}

/// The address of the last input, a number.
fn last(call: &Call<'_>) -> *mut u8 {
    call.inputs[call.inputs.len() - 1].ptr()
}

fn adamw(mixed: bool) -> Vec<Kernel> {
    let types: &[_] = &[("weight", FLOATS), ("rescale_grad", &[DType::F32])];
    let name = function(ADAMW, "$0", mixed);
    vec![Kernel::cuda("update", &[&name], types, move |call, launcher| {
        let (loaded, of) = ([last(call), NONE[1]], (ADAMW.1, mixed));
        let numbers = adamw_numbers(call.attrs.get());
        step(call, 0, call.inputs, of, loaded, numbers).issue(launcher, 0)
    })]
}

/// The number of the instance, of three, of a function that serves a weight.
fn instance(weight: &View) -> usize {
    FLOATS.iter().position(|d| *d == weight.dtype()).unwrap_or_default()
}

/// A function for each dtype of a weight, in the order of [`FLOATS`].
fn instances(function: impl Fn(&str) -> String) -> Vec<String> {
    FLOATS.iter().map(|d| function(crate::operator::c_type(*d))).collect()
}

/// The arrays of each weight: weight, gradient, states, and with `mixed` the copy.
fn groups<'a>(
    call: &Call<'a>,
    states: usize,
    mixed: bool,
) -> impl Iterator<Item = (usize, &'a [View])> {
    let stride = 2 + states + usize::from(mixed);
    call.inputs.chunks_exact(stride).take(call.outputs.len()).enumerate()
}

/// Steps of many weights.
fn many(rule: Rule, mixed: bool, of: fn(&Call<'_>, usize) -> (Loaded, Numbers)) -> Vec<Kernel> {
    let names = instances(|dtype| function(rule, dtype, mixed));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    vec![Kernel::cuda("update", &names, &[], move |call, launcher| {
        groups(call, rule.1, mixed).try_for_each(|(i, arrays)| {
            let (loaded, numbers) = of(call, i);
            let made = step(call, i, arrays, (rule.1, mixed), loaded, numbers);
            made.issue(launcher, instance(&arrays[0]))
        })
    })]
}

const SGD: Rule = Rule("Sgd", 0);
const MOMENTUM: Rule = Rule("Momentum", 1);

fn multi_sgd(call: &Call<'_>, i: usize) -> (Loaded, Numbers) {
    let p = call.attrs.get::<MultiSgdParam>();
    (NONE, numbers![p.lrs[i], p.wds[i], p.rescale_grad, p.clip_gradient])
}

fn multi_momentum(call: &Call<'_>, i: usize) -> (Loaded, Numbers) {
    let p = call.attrs.get::<MultiSgdMomParam>();
    (NONE, numbers![p.lrs[i], p.wds[i], p.rescale_grad, p.clip_gradient, p.momentum])
}

/// Rate and decay of weight `i`: the last two inputs, in single precision.
fn preloaded(call: &Call<'_>, i: usize) -> Loaded {
    [2, 1].map(|k| call.inputs[call.inputs.len() - k].ptr().wrapping_add(4 * i))
}

fn preloaded_sgd(call: &Call<'_>, i: usize) -> (Loaded, Numbers) {
    let p = call.attrs.get::<PreloadedSgdParam>();
    (preloaded(call, i), numbers![0.0, 0.0, p.rescale_grad, p.clip_gradient])
}

fn preloaded_momentum(call: &Call<'_>, i: usize) -> (Loaded, Numbers) {
    let p = call.attrs.get::<PreloadedSgdMomParam>();
    (preloaded(call, i), numbers![0.0, 0.0, p.rescale_grad, p.clip_gradient, p.momentum])
}

fn multi_adamw(call: &Call<'_>, i: usize) -> (Loaded, Numbers) {
    let p = call.attrs.get::<MultiAdamWParam>();
    ([last(call), NONE[1]], adamw_numbers(&p.of(i)))
}

/// The numbers of LAMB's direction and averages.
fn lamb(p: &Phase1Param) -> [f64; 8] {
    let correction = |beta: f32| match p.bias_correction {
        true => 1.0 / (1.0 - f64::from(beta).powi(p.t)),
        false => 1.0,
    };
    let of = [p.epsilon, p.wd, p.rescale_grad, p.clip_gradient, p.beta1, p.beta2].map(f64::from);
    let [eps, wd, rescale, clip, beta1, beta2] = of;
    [correction(p.beta1), correction(p.beta2), eps, wd, rescale, clip, beta1, beta2]
}

fn lamb_first(mixed: bool) -> Vec<Kernel> {
    let of = if mixed { "float, $0, float" } else { "$0, $0, $0" };
    let name = format!("update<LambDirection, {of}, float>");
    vec![Kernel::cuda("update", &[&name], WEIGHT, move |call, launcher| {
        let numbers = Numbers::of(&lamb(call.attrs.get()));
        let mut made = step(call, 0, call.inputs, (2, mixed), NONE, numbers);
        // The output has the type of the calculation, and the weight is left as it is.
        (made.changes, made.narrow) = (false, made.weight);
        made.issue(launcher, 0)
    })]
}

fn lamb_rate(p: &Phase2Param) -> [f64; 3] {
    [p.lr, p.lower_bound, p.upper_bound].map(f64::from)
}

fn lamb_second(mixed: bool) -> Vec<Kernel> {
    let of = if mixed { "float, float, $0, float" } else { "$0, $0, $0, $0" };
    let name = format!("update<LambStep, {of}>");
    vec![Kernel::cuda("update", &[&name], WEIGHT, move |call, launcher| {
        let [lr, lower, upper] = lamb_rate(call.attrs.get());
        let x = call.inputs;
        let made = Step {
            weight: if mixed { &x[4] } else { &x[0] },
            changes: mixed,
            narrow: &x[0],
            gradient: &x[1],
            states: &[],
            out: target(call, 0),
            loaded: [x[2].ptr(), x[3].ptr()],
            numbers: Numbers::of(&[0.0, 0.0, lr, lower, upper]),
            add: add(call, 0),
        };
        made.issue(launcher, 0)
    })]
}

fn multi_lamb(mixed: bool) -> Vec<Kernel> {
    let wide = |dtype: &str| if mixed { "float".to_owned() } else { dtype.to_owned() };
    let update = |rule: &str, last: &'static str| {
        let rule = rule.to_owned();
        move |d: &str| format!("update<{rule}, {}, {d}, {d}, {last}>", wide(d))
    };
    let averages = instances(update("LambAverages", "float"));
    let norms = instances(|d| format!("lamb_norms<{}, {d}>", wide(d)));
    let whole = instances(update("LambWhole", "double"));
    let names: Vec<String> = [averages, norms, whole, vec!["sum_parts<double>".into()]].concat();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    vec![Kernel::cuda("update", &names, &[], move |call, launcher| {
        let p = call.attrs.get::<MultiLambParam>();
        groups(call, 2, mixed).try_for_each(|(i, arrays)| {
            let of = lamb(&p.phase1(i));
            let mut made = step(call, i, arrays, (2, mixed), NONE, Numbers::of(&of));
            let (out, n) = (made.out, made.weight.size());
            (made.changes, made.out) = (false, std::ptr::null_mut());
            let k = instance(&arrays[0]);
            made.issue(launcher, k)?;
            let grid = parts(n);
            let count = grid.blocks[0] as usize;
            let room = launcher.memory().take(16 * (count + 1))?;
            let squares = room.wrapping_add(16 * count);
            let [mean, var] = [0, 1].map(|s| made.states[s].ptr());
            let (narrow, w) = (made.narrow.ptr(), made.weight.ptr());
            let mut args = args![n as i64, narrow, w, mean, var, made.numbers, room];
            launcher.launch(3 + k, grid, &mut args)?;
            let mut args = args![count as i64, 2i64, room.cast_const(), squares];
            launcher.launch(9, Grid { blocks: [2, 1, 1], ..Grid::blocks(1) }, &mut args)?;
            let [lr, lower, upper] = lamb_rate(&p.phase2(i));
            made.numbers = Numbers::of(&[0.0, 0.0, lr, lower, upper, of[0], of[1], of[2], of[3]]);
            made.loaded = [squares, squares.wrapping_add(8)];
            (made.changes, made.out) = (mixed, out);
            made.issue(launcher, 6 + k)
        })
    })]
}

fn lars() -> Vec<Kernel> {
    vec![kernel("update", &["lars<$0>"], &[("lrs", FLOATS)], |call, launcher| {
        let p = call.attrs.get::<LarsParam>();
        let [rates, w, g, wd] = [0, 1, 2, 3].map(|i| call.inputs[i].ptr());
        let (y, n) = (call.outputs[0].ptr(), call.outputs[0].size());
        let (eta, eps, rescale) = (p.eta, p.eps, p.rescale_grad);
        let mut args = args![n as i64, rates, w, g, wd, y, eta, eps, rescale, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn reset() -> Vec<Kernel> {
    vec![Kernel::cuda("update", &[], &[], |call, launcher| {
        call.inputs.iter().try_for_each(|x| launcher.clear(x.ptr(), x.size_bytes()))
    })]
}

fn group_adagrad() -> Vec<Kernel> {
    vec![Kernel::cuda("update", &["group_adagrad<$0>"], WEIGHT, |call, launcher| {
        let p = call.attrs.get::<GroupAdagradParam>();
        let [w, g, history] = [0, 1, 2].map(|i| &call.inputs[i]);
        let (rows, y) = (history.size(), target(call, 0));
        let width = (w.size() / rows.max(1)) as i64;
        let of = [w, g, history].map(View::ptr);
        let (lr, rescale, clip, eps) = (p.lr, p.rescale_grad, p.clip_gradient, p.epsilon);
        let (n, add) = (rows as i64, add(call, 0));
        let mut args = args![n, width, of[0], of[1], of[2], y, lr, rescale, clip, eps, add];
        launcher.launch(0, Grid::blocks(rows), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("sgd_update", || one(SGD, false, sgd)),
    ("sgd_mom_update", || one(MOMENTUM, false, momentum)),
    ("nag_mom_update", || one(Rule("Nesterov", 1), false, momentum)),
    ("mp_sgd_update", || one(SGD, true, sgd)),
    ("mp_sgd_mom_update", || one(MOMENTUM, true, momentum)),
    ("mp_nag_mom_update", || one(Rule("Nesterov", 1), true, momentum)),
    ("adam_update", || one(Rule("Adam", 2), false, adam)),
    ("rmsprop_update", || one(Rule("RmsProp", 1), false, rmsprop)),
    ("rmspropalex_update", || if_wanted(Rule("RmsPropAlex", 3), rmsprop_alex)),
    ("signsgd_update", || if_wanted(Rule("SignSgd", 0), sign_sgd)),
    ("signum_update", || if_wanted(Rule("Signum", 1), signum)),
    ("ftrl_update", || if_wanted(Rule("Ftrl", 2), ftrl)),
    ("ftml_update", || if_wanted(Rule("Ftml", 3), ftml)),
    ("_adamw_update", || adamw(false)),
    ("_mp_adamw_update", || adamw(true)),
    ("_multi_adamw_update", || many(ADAMW, false, multi_adamw)),
    ("_multi_mp_adamw_update", || many(ADAMW, true, multi_adamw)),
    ("multi_sgd_update", || many(SGD, false, multi_sgd)),
    ("multi_sgd_mom_update", || many(MOMENTUM, false, multi_momentum)),
    ("multi_mp_sgd_update", || many(SGD, true, multi_sgd)),
    ("multi_mp_sgd_mom_update", || many(MOMENTUM, true, multi_momentum)),
    ("preloaded_multi_sgd_update", || many(SGD, false, preloaded_sgd)),
    ("preloaded_multi_sgd_mom_update", || many(MOMENTUM, false, preloaded_momentum)),
    ("preloaded_multi_mp_sgd_update", || many(SGD, true, preloaded_sgd)),
    ("preloaded_multi_mp_sgd_mom_update", || many(MOMENTUM, true, preloaded_momentum)),
    ("lamb_update_phase1", || lamb_first(false)),
    ("mp_lamb_update_phase1", || lamb_first(true)),
    ("lamb_update_phase2", || lamb_second(false)),
    ("mp_lamb_update_phase2", || lamb_second(true)),
    ("_multi_lamb_update", || multi_lamb(false)),
    ("_multi_mp_lamb_update", || multi_lamb(true)),
    ("multi_sum_sq", multi_sum_sq),
    ("multi_lars", lars),
    ("all_finite", all_finite),
    ("multi_all_finite", multi_all_finite),
    ("reset_arrays", reset),
    ("_contrib_group_adagrad_update", group_adagrad),
];
