//! Updates of weights. Each reads weight, gradient and states, changes the states in place and
//! writes the new weight, normally to the weight itself (`out=weight`). **A new one is one row of
//! [`updates!`] below.**
//!
//! The gradient is first multiplied by `rescale_grad` and clipped to `clip_gradient` unless that is
//! negative.

use super::common::{elementwise, wanted};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::copy::convert_all;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::{Call, InplacePair, Kernel, OpDef};
use crate::tensor::View;
use crate::{params, with_real};
use half::f16;

/// Elements handled together.
const BLOCK: usize = 4096;

/// `clip(rescale * g)`.
#[inline(always)]
fn prepared<R: Real>(g: R, rescale: f32, clip: f32) -> R {
    let g = g * R::of(rescale.into());
    let c = R::of(clip.into());
    if clip < 0.0 {
        g
    } else if g > c {
        c
    } else if g < -c {
        -c
    } else {
        g
    }
}

/// One update of one element: from weight, gradient and states to the new weight; states change in
/// place.
trait Update<const S: usize>: Copy + Send + Sync + 'static {
    fn step<R: Real>(&self, w: R, g: R, s: &mut [R; S]) -> R;
}

crate::simd! {
    /// Updates `n` elements; `out` may be `w`.
    ///
    /// # Safety
    /// Every pointer is valid for `n` elements; the states overlap nothing.
    unsafe fn run_block[R: Real, U: Update<S>, const S: usize][R, U, S](
        u: &U, w: *const R, g: *const R, s: [*mut R; S], out: *mut R, n: usize,
    ) -> () {
        for i in 0..n {
            // SAFETY: promised by the caller: `n` elements at every pointer.
            unsafe {
                let mut state: [R; S] = std::array::from_fn(|k| *s[k].add(i));
                let new = u.step(*w.add(i), *g.add(i), &mut state);
                for k in 0..S {
                    *s[k].add(i) = state[k];
                }
                *out.add(i) = new;
            }
        }
    }
}

/// Runs an update over the views of a call: weight, gradient, states.
fn update<const S: usize, U: Update<S>>(call: &Call<'_>, u: U) -> Result<()> {
    let out = &call.outputs[0];
    if !wanted(call, 0) {
        return Ok(());
    }
    if out.dtype() == DType::F16 {
        return half_update(call, u);
    }
    with_real!(out.dtype(), R => {
        let [w, g] = [0, 1].map(|i| Shared(call.inputs[i].as_ptr::<R>()));
        let s: [Shared<R>; S] = std::array::from_fn(|i| Shared(call.inputs[2 + i].as_ptr::<R>()));
        let o = Shared(out.as_ptr::<R>());
        parallel_for(out.size(), 1 << 14, |range| {
            let at = range.start;
            // SAFETY: all views have the weight's shape; tasks have ranges of their own.
            unsafe {
                run_block(&u, w.at(at).cast_const(), g.at(at).cast_const(), s.map(|s| s.at(at)), o.at(at), range.len());
            }
        });
        Ok(())
    })
}

/// As [`update`] on float16, calculated in float32 block by block.
fn half_update<const S: usize, U: Update<S>>(call: &Call<'_>, u: U) -> Result<()> {
    let out = &call.outputs[0];
    let at = |v: &View| Shared(v.as_ptr::<f16>());
    let (inputs, out) = (call.inputs.iter().map(at).collect::<Vec<_>>(), at(out));
    let size = call.outputs[0].size();
    parallel_for(size, BLOCK, |part| {
        let (n, first) = (part.len(), part.start);
        let mut weight = [0f32; BLOCK];
        let mut gradient = [0f32; BLOCK];
        let mut states = [[0f32; BLOCK]; S];
        let [w, g] = [&mut weight, &mut gradient].map(|block| block.as_mut_ptr());
        let s = states.each_mut().map(|state| state.as_mut_ptr());
        // SAFETY: all views have the weight's shape, and tasks parts of their own; buffers hold a
        // block.
        unsafe {
            for (input, block) in inputs.iter().zip([w, g].into_iter().chain(s)) {
                convert_all(input.at(first), block, n);
            }
            run_block(&u, w.cast_const(), g.cast_const(), s, w, n);
            convert_all(w, out.at(first), n);
            for (input, state) in inputs[2..].iter().zip(s) {
                convert_all(state, input.at(first), n);
            }
        }
    });
    Ok(())
}

/// The doctest of an update of `w` by `g` with `states` states, which lowers the weight.
pub fn example(name: &str, states: usize) -> String {
    let zeros = ", nd.zeros((2,))".repeat(states);
    let step = if name == "ftml_update" { ", t=1" } else { "" };
    format!(
        ">>> w = nd.{name}(w, g{zeros}, lr=0.1{step}, out=w)\n>>> bool((w.asnumpy() < 1).all())\n\
         True\n"
    )
}

fn doc(what: &str, states: &[&str], example: &str) -> String {
    let changed = match states {
        [] => String::new(),
        some => format!(" It changes {} in place.", some.join(", ")),
    };
    format!(
        "{what}\n\nNotes\n-----\nAll arrays have one shape and one float dtype.{changed} ``g = \
         clip(rescale_grad * grad)``, clipped to ``[-clip_gradient, clip_gradient]`` if that is \
         not negative. Not differentiable.\n\nExamples\n--------\n>>> w, g = nd.ones((2,)), \
         nd.ones((2,))\n{example}"
    )
}

macro_rules! updates {
    ($(
        $(#[doc = $about:literal])*
        $param:ident $name:literal $aliases:expr, [$($state:ident),*] {
            $($field:ident : $ty:ty, $kind:ident $(($default:expr))?, $fdoc:literal;)*
        } |$p:ident, $w:ident, $g:ident| $body:expr;
    )*) => {
        $(
            params! {
                #[doc = concat!("Parameters of `", $name, "`.")]
                #[derive(Copy)]
                pub struct $param { $($field: $ty, $kind $(($default))?, $fdoc;)* }
            }
            impl Update<{ updates!(@count $($state)*) }> for $param {
                #[inline(always)]
                fn step<R: Real>(&self, $w: R, $g: R, states: &mut [R; updates!(@count $($state)*)]) -> R {
                    let $p = self;
                    let [$($state),*] = states;
                    $body
                }
            }
        )*
        /// The updates of the table.
        fn table() -> Vec<OpDef> {
            vec![$({
                let states: &[&str] = &[$(stringify!($state)),*];
                let mut inputs = vec![("weight", "The weight."), ("grad", "Its gradient.")];
                inputs.extend(states.iter().map(|s| (*s, "A state, changed in place.")));
                let call = example($name, states.len());
                let n = states.len();
                elementwise(OpDef::new::<$param>($name))
                    .aliases(&$aliases)
                    .doc(&doc(concat!($($about),*), states, &call))
                    .inputs_are(&inputs)
                    .mutates(&(2..2 + n).collect::<Vec<_>>())
                    .inplace(&[InplacePair::new(0, 0)])
                    .not_deterministic()
                    .kernel(Kernel::cpu(|call| update(call, *call.attrs.get::<$param>())).skips_null())
            }),*]
        }
    };
    (@count) => { 0 };
    (@count $a:ident) => { 1 };
    (@count $a:ident $b:ident) => { 2 };
    (@count $a:ident $b:ident $c:ident) => { 3 };
}

/// A parameter as the type of calculation.
#[inline(always)]
fn of<R: Real>(x: f32) -> R {
    R::of(x.into())
}

updates! {
    /// Descent by the gradient's sign: ``w -= lr * (sign(g) + wd * w)``.
    SignSgdParam "signsgd_update" [], [] {
        lr: f32, required, "Learning rate.";
        wd: f32, default(0.0), "Weight decay.";
        rescale_grad: f32, default(1.0), "Factor of the gradient.";
        clip_gradient: f32, default(-1.0), "Limit of the gradient; none if negative.";
    } |p, w, g| {
        let g = prepared(g, p.rescale_grad, p.clip_gradient);
        (R::one() - of::<R>(p.lr * p.wd)) * w - of::<R>(p.lr) * sign(g)
    };
    /// Descent by the momentum's sign: ``mom = momentum * mom - (1 - momentum) * (g + wd * w)``,
    /// ``w = (1 - lr * wd_lh) * w + lr * sign(mom)``.
    SignumParam "signum_update" [], [mom] {
        lr: f32, required, "Learning rate.";
        momentum: f32, default(0.0), "Decay of the accumulated steps.";
        wd: f32, default(0.0), "Weight decay inside of the momentum.";
        rescale_grad: f32, default(1.0), "Factor of the gradient.";
        clip_gradient: f32, default(-1.0), "Limit of the gradient; none if negative.";
        wd_lh: f32, default(0.0), "Weight decay outside of the momentum.";
    } |p, w, g| {
        let g = prepared(g, p.rescale_grad, p.clip_gradient) + of::<R>(p.wd) * w;
        *mom = of::<R>(p.momentum) * *mom - of::<R>(1.0 - p.momentum) * g;
        of::<R>(1.0 - p.lr * p.wd_lh) * w + of::<R>(p.lr) * sign(*mom)
    };
    /// RMSProp (Graves): also keeps the mean ``g`` of gradients and the last step ``delta``:
    /// ``delta = gamma2 * delta - lr * grad / sqrt(n - g * g + epsilon)``, ``w += delta``.
    RmsPropAlexParam "rmspropalex_update" [], [n, g, delta] {
        lr: f32, required, "Learning rate.";
        gamma1: f32, default(0.95), "Decay of the means.";
        gamma2: f32, default(0.9), "Decay of the steps.";
        epsilon: f32, default(1e-8), "Keeps the divisor from 0.";
        wd: f32, default(0.0), "Weight decay.";
        rescale_grad: f32, default(1.0), "Factor of the gradient.";
        clip_gradient: f32, default(-1.0), "Limit of the gradient; none if negative.";
        clip_weights: f32, default(-1.0), "Limit of the weights; none if negative.";
    } |p, w, grad| {
        let x = prepared(grad * of::<R>(p.rescale_grad) + of::<R>(p.wd) * w, 1.0, p.clip_gradient);
        let (new, old) = (of::<R>(1.0 - p.gamma1), of::<R>(p.gamma1));
        *n = new * x * x + old * *n;
        *g = new * x + old * *g;
        *delta = of::<R>(p.gamma2) * *delta
            - of::<R>(p.lr) * x / (*n - *g * *g + of::<R>(p.epsilon)).sqrt();
        prepared(w + *delta, 1.0, p.clip_weights)
    };
    /// FTRL-Proximal (McMahan et al., 2013) with the states ``z`` and ``n``.
    FtrlParam "ftrl_update" ["_sparse_ftrl_update"], [z, n] {
        lr: f32, required, "Learning rate.";
        lamda1: f32, default(0.01), "Weight of the absolute values.";
        beta: f32, default(1.0), "Added to the root of n.";
        wd: f32, default(0.0), "Weight of the squares.";
        rescale_grad: f32, default(1.0), "Factor of the gradient.";
        clip_gradient: f32, default(-1.0), "Limit of the gradient; none if negative.";
    } |p, w, g| {
        let g = prepared(g, p.rescale_grad, p.clip_gradient);
        let (lr, l1) = (of::<R>(p.lr), of::<R>(p.lamda1));
        let grown = *n + g * g;
        *z += g - (grown.sqrt() - n.sqrt()) * w / lr;
        *n = grown;
        // In this form, NaN stays NaN.
        if z.abs() <= l1 {
            R::zero()
        } else {
            (sign(*z) * l1 - *z) / ((of::<R>(p.beta) + grown.sqrt()) / lr + of::<R>(p.wd))
        }
    };
    /// FTML (Zheng and Kwok, 2017) at step ``t`` with the states ``d``, ``v`` and ``z``.
    FtmlParam "ftml_update" [], [d, v, z] {
        lr: f32, required, "Learning rate.";
        beta1: f32, default(0.6), "Decay of the centre.";
        beta2: f32, default(0.999), "Decay of the mean of squares.";
        epsilon: f64, default(1e-8), "Keeps the divisor from 0.";
        t: i32, required, "Number of the step, from 1.";
        wd: f32, default(0.0), "Weight decay.";
        rescale_grad: f32, default(1.0), "Factor of the gradient.";
        clip_grad: f32, default(-1.0), "Limit of the gradient; none if negative.";
    } |p, w, g| {
        let g = prepared(g * of::<R>(p.rescale_grad) + of::<R>(p.wd) * w, 1.0, p.clip_grad);
        let (b1, b2) = (of::<R>(p.beta1), of::<R>(p.beta2));
        *v = b2 * *v + (R::one() - b2) * g * g;
        let root = (*v / (R::one() - b2.powi(p.t))).sqrt() + R::of(p.epsilon);
        let next = (R::one() - b1.powi(p.t)) / of::<R>(p.lr) * root;
        *z = b1 * *z + (R::one() - b1) * g - (next - b1 * *d) * w;
        *d = next;
        -*z / next
    };
}

#[inline(always)]
fn sign<R: Real>(x: R) -> R {
    if x > R::zero() {
        R::one()
    } else if x < R::zero() {
        -R::one()
    } else {
        R::zero()
    }
}

pub fn operators() -> Vec<OpDef> {
    table()
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn close(a: &[f64], b: &[f64]) {
        assert!(
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6),
            "{a:?} {b:?}"
        );
    }

    #[test]
    fn steps_are_as_documented() {
        let t = |x: f64| Tensor::of(&[1], &[x]);
        close(
            &values("signsgd_update", &[("lr", "0.1"), ("wd", "0.5")], &[t(2.), t(3.)]),
            &[2. - 0.1 * (1. + 1.)],
        );
        let ran = run(
            "signum_update",
            &[("lr", "0.1"), ("momentum", "0.5")],
            &[t(2.), t(3.), t(1.)],
            false,
        )
        .unwrap();
        close(&ran.outputs[0].values(), &[2. - 0.1]);
        close(&ran.input(2).values(), &[0.5 - 1.5]);
    }

    #[test]
    fn half_precision_follows_single() {
        let x = [1, 2, 3, 4].map(|s| Tensor::noise(&[700], s));
        let x = [0, 1, 2].map(|i| x[i].clone()).to_vec();
        let n: Vec<f64> = Tensor::noise(&[700], 9).values().iter().map(|v| v.abs() + 0.5).collect();
        let to = |d| {
            let mut all: Vec<Tensor> =
                x.iter().map(|t| t.cast(crate::DType::F16).cast(d)).collect();
            all.push(Tensor::of(&[700], &n).cast(crate::DType::F16).cast(d));
            all
        };
        let params = [("lr", "0.1")];
        let half = values("ftrl_update", &params, &to(crate::DType::F16));
        let single = values("ftrl_update", &params, &to(crate::DType::F32));
        assert!(half.iter().zip(&single).all(|(a, b)| (a - b).abs() < 4e-3));
    }
}
