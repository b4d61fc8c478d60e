//! Layers that do not multiply matrices: activations, softmax, dropout.

use super::formula::{Formula, unary_kernels, unary_slope_kernel};
use super::{FLOATS, KernelsOf, add, begin, kernel, too_many_axes, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::broadcast::broadcast_strides;
use crate::operator::{Attrs, Axes, Call, Compare, Grid, Kernel, Launcher, Match, OpReq};
use crate::ops::elementwise::unary_formulas;
use crate::ops::nn::dropout::{DropoutParam, drops, has_mask};
use crate::ops::nn::leaky_relu::{LeakyReluParam, LeakyType, channels, from_output};
use crate::ops::nn::softmax::{SoftmaxActivationParam, SoftmaxMode, SoftmaxParam};
use crate::ops::nn::softmax_output::{self, Normalization, SoftmaxOutputParam};
use crate::ops::tensor::extras::HardSigmoidParam;
use crate::tensor::View;

fn is(parameter: &str, value: &str) -> Match {
    Match::Attr(parameter.into(), Compare::Eq, value.into())
}

fn is_not(parameter: &str, value: &str) -> Match {
    Match::Attr(parameter.into(), Compare::Ne, value.into())
}

/// The logarithm of 1 + exp(x) without overflow, and its derivative of the output.
const SOFTRELU: [Formula; 2] = [
    Formula { operands: &["x"], text: "x.max(num(0.)) + (-x.abs()).exp().ln_1p()" },
    Formula { operands: &["y"], text: "-((-y).exp_m1())" },
];

/// The functions of `Activation` with their formulas: those of the operators of the same names.
fn activations() -> [(&'static str, [Option<Formula>; 3]); 5] {
    let softrelu = [Some(SOFTRELU[0]), Some(SOFTRELU[1]), None];
    let own = ["relu", "sigmoid", "tanh", "softsign"].map(|name| (name, unary_formulas(name)));
    let [relu, sigmoid, tanh, softsign] = own;
    [relu, sigmoid, tanh, softsign, ("softrelu", softrelu)]
}

fn activation() -> Vec<Kernel> {
    let each = activations().into_iter();
    let of = |(name, formulas)| {
        let floats = unary_kernels(name, "data", &formulas).into_iter().next();
        floats.map(|kernel| kernel.only(is("act_type", name)))
    };
    each.filter_map(of).collect()
}

fn activation_back() -> Vec<Kernel> {
    let of =
        |(name, formulas)| unary_slope_kernel(name, "data", &formulas).only(is("act_type", name));
    activations().into_iter().map(of).collect()
}

/// The number of a rectifier in `activation.cu`.
fn leaky_kind(attrs: &Attrs) -> i32 {
    match attrs.get::<LeakyReluParam>().act_type {
        LeakyType::Elu => 1,
        LeakyType::Selu => 2,
        LeakyType::Gelu => 3,
        LeakyType::Rrelu => 4,
        _ => 0,
    }
}

/// Rectifiers without a second array.
fn is_plain() -> Match {
    let both = |a: Match, b: Match| Match::And(Box::new(a), Box::new(b));
    both(is_not("act_type", "prelu"), is_not("act_type", "rrelu"))
}

fn leaky() -> Vec<Kernel> {
    let made = kernel("activation", &["leaky<$0>"], &[("data", FLOATS)], |call, launcher| {
        let (x, y, n) = (&call.inputs[0], &call.outputs[0], call.outputs[0].size());
        let slope = f64::from(call.attrs.get::<LeakyReluParam>().slope);
        let kind = leaky_kind(call.attrs);
        let mut args = args![n as i64, x.ptr(), y.ptr(), kind, slope, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    vec![made.only(is_plain()), prelu(), random_leaky()]
}

fn leaky_back() -> Vec<Kernel> {
    let made = kernel("activation", &["leaky_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        let (g, v, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let slope = f64::from(call.attrs.get::<LeakyReluParam>().slope);
        let (n, kind) = (y.size(), leaky_kind(call.attrs));
        let from_output = i32::from(from_output(call.attrs));
        let mut args =
            args![n as i64, g.ptr(), v.ptr(), y.ptr(), kind, slope, from_output, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    vec![made.only(is_not("act_type", "prelu")), prelu_back()]
}

fn random_leaky() -> Kernel {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    let mut made = Kernel::cuda("activation", &["random_leaky<$0>"], types, |call, launcher| {
        let (p, n) = (call.attrs.get::<LeakyReluParam>(), call.inputs[0].size());
        if n == 0 {
            return Ok(());
        }
        let (x, [y, mask]) = (call.inputs[0].ptr(), [0, 1].map(|i| call.outputs[i].ptr()));
        let [low, high] = [p.lower_bound, p.upper_bound].map(f64::from);
        let [train, write] = [call.ctx.is_train, wanted(call, 0)].map(i32::from);
        let mut args = args![n as i64, x, y, mask, call.ctx.random, low, high, train, write];
        launcher.launch(0, Grid::over(n.div_ceil(4)), &mut args)
    });
    // The slopes are written even where they were not requested.
    made.skips_null = false;
    made.only(is("act_type", "rrelu")).only_writes()
}

/// Elements that lie side by side with one slope of prelu, and the number of slopes.
fn slopes(data: &View, slopes: &View) -> [i64; 2] {
    let (inner, slopes) = channels(data.shape(), slopes.size());
    [slopes, inner].map(|n| n as i64)
}

fn prelu() -> Kernel {
    let made = kernel("activation", &["prelu<$0>"], &[("data", FLOATS)], |call, launcher| {
        let (x, slope, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let ([count, inner], n) = (slopes(x, slope), y.size());
        let mut args = args![n as i64, count, inner, x.ptr(), slope.ptr(), y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    made.only(is("act_type", "prelu"))
}

fn prelu_back() -> Kernel {
    let functions = ["prelu_back<$0>", "slope_back<$0>"];
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    let made = Kernel::cuda("activation", &functions, types, |call, launcher| {
        let [g, x, slope] = call.inputs else { unreachable!("declared dependencies") };
        let ([count, inner], n) = (slopes(x, slope), x.size());
        if wanted(call, 0) {
            let dx = call.outputs[0].ptr();
            let mut args =
                args![n as i64, count, inner, g.ptr(), x.ptr(), slope.ptr(), dx, add(call, 0)];
            launcher.launch(0, Grid::over(n), &mut args)?;
        }
        if wanted(call, 1) {
            let (outer, to) = (n as i64 / (count * inner).max(1), call.outputs[1].ptr());
            let mut args = args![outer, count, inner, g.ptr(), x.ptr(), to, add(call, 1)];
            launcher.launch(1, Grid::blocks(count as usize), &mut args)?;
        }
        Ok(())
    });
    made.only(is("act_type", "prelu"))
}

fn hard_sigmoid() -> Vec<Kernel> {
    vec![kernel("activation", &["hard_sigmoid<$0>"], &[("data", FLOATS)], |call, launcher| {
        let p = call.attrs.get::<HardSigmoidParam>();
        let (x, y, n) = (&call.inputs[0], &call.outputs[0], call.outputs[0].size());
        let [a, b] = [p.alpha, p.beta].map(f64::from);
        let mut args = args![n as i64, x.ptr(), y.ptr(), a, b, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn hard_sigmoid_back() -> Vec<Kernel> {
    let functions = ["hard_sigmoid_back<$0>"];
    vec![kernel("activation", &functions, &[("data", FLOATS)], |call, launcher| {
        let p = call.attrs.get::<HardSigmoidParam>();
        let ([g, x], dx) = ([0, 1].map(|i| call.inputs[i].ptr()), &call.outputs[0]);
        let ([a, b], n) = ([p.alpha, p.beta].map(f64::from), dx.size());
        let mut args = args![n as i64, g, x, dx.ptr(), a, b, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Rows of a softmax: their number, their length, the distance of their elements.
type Rows = (usize, usize, usize);

fn along_axis(call: &Call<'_>) -> Rows {
    let (shape, param) = (call.inputs[0].shape(), call.attrs.get::<SoftmaxParam>());
    let axis = i64::from(param.axis).rem_euclid(shape.ndim() as i64) as usize;
    let inner = shape.product(axis + 1..shape.ndim());
    (shape.product(0..axis) * inner, shape.product(axis..axis + 1), inner)
}

fn temperature(call: &Call<'_>) -> f64 {
    1.0 / call.attrs.get::<SoftmaxParam>().temperature.unwrap_or(1.0)
}

/// Rows, scale and whether the logarithm is taken.
type Plan = fn(&Call<'_>) -> (Rows, f64, bool);

/// A softmax whose output has the dtype of its data.
const OF_ONE: &[(&str, &[DType])] = &[("data", FLOATS)];

/// The lengths of rows, which are input `at` where there are any, and whether they have 64 bits.
fn lengths(call: &Call<'_>, at: usize) -> (*mut u8, i32) {
    match call.inputs.get(at) {
        Some(view) => (view.ptr(), i32::from(view.dtype() == DType::I64)),
        None => (std::ptr::null_mut(), 0),
    }
}

fn issue_softmax(
    plan: Plan,
    (lengths, wide): (*mut u8, i32),
    call: &Call<'_>,
    launcher: &mut dyn Launcher,
) -> Result<()> {
    let ((rows, length, inner), scale, log) = plan(call);
    let (x, y, log) = (call.inputs[0].ptr(), call.outputs[0].ptr(), i32::from(log));
    let [count, length, inner] = [rows, length, inner].map(|n| n as i64);
    let mut args = args![count, length, inner, x, y, lengths, wide, scale, log, add(call, 0)];
    launcher.launch(0, Grid::blocks(rows), &mut args)
}

fn issue_softmax_back(
    plan: Plan,
    (lengths, wide): (*mut u8, i32),
    call: &Call<'_>,
    launcher: &mut dyn Launcher,
) -> Result<()> {
    if call.outputs.len() > 1 {
        begin(call, launcher, 1)?; // the gradient of the lengths
    }
    let ((rows, length, inner), scale, log) = plan(call);
    let [g, y] = [0, 1].map(|i| call.inputs[i].ptr());
    let (dx, log) = (call.outputs[0].ptr(), i32::from(log));
    let [count, length, inner] = [rows, length, inner].map(|n| n as i64);
    let mut args = args![count, length, inner, g, y, dx, lengths, wide, scale, log, add(call, 0)];
    launcher.launch(0, Grid::blocks(rows), &mut args)
}

const ALL: (*mut u8, i32) = (std::ptr::null_mut(), 0);

/// A layer without lengths.
fn softmax_layer(plan: Plan) -> Vec<Kernel> {
    vec![kernel("softmax", &["softmax<$0, $0>"], OF_ONE, move |call, launcher| {
        issue_softmax(plan, ALL, call, launcher)
    })]
}

fn softmax_layer_back(plan: Plan) -> Vec<Kernel> {
    vec![kernel("softmax", &["softmax_back<$0, $0>"], OF_ONE, move |call, launcher| {
        issue_softmax_back(plan, ALL, call, launcher)
    })]
}

/// Of some or all elements of rows, to any dtype.
fn softmax(plan: Plan) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), ("output", FLOATS)];
    vec![kernel("softmax", &["softmax<$0, $1>"], types, move |call, launcher| {
        issue_softmax(plan, lengths(call, 1), call, launcher)
    })]
}

fn softmax_back(plan: Plan) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("output", FLOATS), ("data", FLOATS)];
    vec![kernel("softmax", &["softmax_back<$0, $1>"], types, move |call, launcher| {
        issue_softmax_back(plan, lengths(call, 2), call, launcher)
    })]
}

fn of_softmax(call: &Call<'_>) -> (Rows, f64, bool) {
    (along_axis(call), temperature(call), false)
}

fn of_log(call: &Call<'_>) -> (Rows, f64, bool) {
    (along_axis(call), temperature(call), true)
}

fn of_softmin(call: &Call<'_>) -> (Rows, f64, bool) {
    (along_axis(call), -temperature(call), false)
}

fn of_activation(call: &Call<'_>) -> (Rows, f64, bool) {
    let shape = call.inputs[0].shape();
    let channel = call.attrs.get::<SoftmaxActivationParam>().mode == SoftmaxMode::Channel;
    let split = if channel { 2.min(shape.ndim()) } else { shape.ndim() };
    let inner = shape.product(split..shape.ndim());
    ((shape.product(0..1) * inner, shape.product(1..split), inner), 1.0, false)
}

fn of_output(call: &Call<'_>) -> (Rows, f64, bool) {
    let param = call.attrs.get::<SoftmaxOutputParam>();
    let (outer, length, inner) = softmax_output::extents(param, call.inputs[0].shape());
    ((outer * inner, length, inner), 1.0, false)
}

fn softmax_output_back() -> Vec<Kernel> {
    let functions = ["softmax_output_back<$0>", "count_labels<$0>"];
    vec![Kernel::cuda("softmax", &functions, &[("data", FLOATS)], |call, launcher| {
        if wanted(call, 1) && call.req[1] != OpReq::Add {
            launcher.clear(call.outputs[1].ptr(), call.outputs[1].size_bytes())?;
        }
        if !wanted(call, 0) {
            return Ok(());
        }
        let param = call.attrs.get::<SoftmaxOutputParam>();
        let (p, label, dx) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let (outer, length, inner) = softmax_output::extents(param, p.shape());
        let same_shape = label.shape() == p.shape();
        let (mut scale, mut count) = (f64::from(param.grad_scale), std::ptr::null_mut());
        let ignored = f64::from(param.ignore_label);
        match param.normalization {
            _ if same_shape => {}
            Normalization::Null => scale /= inner.max(1) as f64,
            Normalization::Batch => scale /= (outer.max(1) * inner.max(1)) as f64,
            Normalization::Valid => {
                count = launcher.memory().take(8)?;
                let mut args = args![(outer * inner) as i64, label.ptr(), ignored, count];
                launcher.launch(1, Grid::blocks(1), &mut args)?;
            }
        }
        let spread = if param.multi_output { 0.0 } else { f64::from(param.smooth_alpha) };
        let (on, off) = (1.0 - spread, spread / (length as f64 - 1.0).max(1.0));
        let head = call.inputs.get(2).map_or(std::ptr::null_mut(), View::ptr);
        let n = dx.size();
        let [length, inner] = [length, inner].map(|n| n as i64);
        let flags = [param.use_ignore, same_shape].map(i32::from);
        let mut args = args![
            n as i64,
            length,
            inner,
            p.ptr(),
            label.ptr(),
            head,
            count,
            dx.ptr(),
            scale,
            ignored,
            on,
            off,
            flags[0],
            flags[1],
            add(call, 0)
        ];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn dropout() -> Vec<Kernel> {
    let functions = ["drop_mask<$0>", "drop<$0>"];
    let mut made = Kernel::cuda("random", &functions, &[("data", FLOATS)], |call, launcher| {
        let (x, mask) = (&call.inputs[0], &call.outputs[1]);
        let dropped = drops(call);
        if dropped || (call.ctx.need_grad && has_mask(call)) {
            let keep = 1.0 - call.attrs.get::<DropoutParam>().p;
            let (n, all) = (mask.size(), i32::from(!dropped));
            let mut args = args![n as i64, mask.ptr(), call.ctx.random, keep, all];
            launcher.launch(0, Grid::over(n.div_ceil(4)), &mut args)?;
        }
        match dropped {
            _ if !wanted(call, 0) => Ok(()),
            true => times_mask(call, launcher, x, mask),
            false => times_mask(call, launcher, x, x),
        }
    });
    // The mask is written even where it was not requested.
    made.skips_null = false;
    vec![made]
}

/// Output 0 is `x` times the mask, or `x` itself where both are one.
fn times_mask(call: &Call<'_>, launcher: &mut dyn Launcher, x: &View, mask: &View) -> Result<()> {
    let y = &call.outputs[0];
    if x.ptr() == mask.ptr() {
        return match (x.ptr() == y.ptr(), call.req[0]) {
            (_, OpReq::Add) => Err(Error::internal("dropout cannot add what it passes on")),
            (true, _) => Ok(()),
            (false, _) => launcher.copy(y.ptr(), x.ptr(), y.size_bytes()),
        };
    }
    let steps = broadcast_strides(mask.shape(), x.shape());
    let axes = Axes::new(x.dims(), &[&steps]).ok_or_else(too_many_axes)?;
    let n = y.size();
    let mut args = args![n as i64, x.ptr(), mask.ptr(), y.ptr(), axes, add(call, 0)];
    launcher.launch(1, Grid::over(n), &mut args)
}

fn dropout_back() -> Vec<Kernel> {
    let functions = ["drop_mask<$0>", "drop<$0>"];
    let made = kernel("random", &functions, &[("data", FLOATS)], |call, launcher| {
        let (g, mask) = (&call.inputs[0], &call.inputs[1]);
        times_mask(call, launcher, g, if has_mask(call) { mask } else { g })
    });
    vec![made]
}

/// A kernel whose outputs are not added to: a temporary is.
fn writing(kernels: Vec<Kernel>) -> Vec<Kernel> {
    kernels.into_iter().map(Kernel::only_writes).collect()
}

pub const TABLE: &[KernelsOf] = &[
    ("Activation", activation),
    ("_backward_Activation", activation_back),
    ("LeakyReLU", leaky),
    ("_backward_LeakyReLU", leaky_back),
    ("hard_sigmoid", hard_sigmoid),
    ("_backward_hard_sigmoid", hard_sigmoid_back),
    ("softmax", || softmax(of_softmax)),
    ("log_softmax", || softmax(of_log)),
    ("softmin", || softmax(of_softmin)),
    ("_backward_softmax", || softmax_back(of_softmax)),
    ("_backward_log_softmax", || softmax_back(of_log)),
    ("_backward_softmin", || softmax_back(of_softmin)),
    ("SoftmaxActivation", || softmax_layer(of_activation)),
    ("_backward_SoftmaxActivation", || softmax_layer_back(of_activation)),
    ("SoftmaxOutput", || softmax_layer(of_output)),
    ("_backward_SoftmaxOutput", softmax_output_back),
    ("Dropout", || writing(dropout())),
    ("_backward_Dropout", || writing(dropout_back())),
];
