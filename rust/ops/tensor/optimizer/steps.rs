//! The arithmetic of optimizer updates: what is done to the gradient first, the steps that several
//! operators take, and the passes over arrays of any float dtype.

use crate::dtype::Element;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::{Call, OpReq};
use crate::tensor::View;
use half::f16;

/// Runs `$body` with the alias `$E` set to the element type of the weight.
macro_rules! with_stored {
    ($weight:expr, $E:ident => $body:expr) => {{
        match $weight.dtype() {
            $crate::dtype::DType::F16 => {
                type $E = half::f16;
                $body
            }
            $crate::dtype::DType::F64 => {
                type $E = f64;
                $body
            }
            _ => {
                type $E = f32;
                $body
            }
        }
        Ok(())
    }};
}
pub(super) use with_stored;

/// The gradient after scaling, clipping and (if `wd` is given) weight decay.
#[derive(Clone, Copy)]
pub(super) struct Prepared<T> {
    rescale: T,
    /// Infinite where nothing is clipped: loops without this branch vectorise.
    clip: T,
    wd: T,
}

impl<T: Real> Prepared<T> {
    pub(super) fn new(rescale: f32, clip: f32, wd: f32) -> Self {
        let of = |x: f32| T::of(x as f64);
        let clip = if clip >= 0.0 { clip } else { f32::INFINITY };
        Prepared { rescale: of(rescale), clip: of(clip), wd: of(wd) }
    }

    /// Scaled and clipped.
    #[inline(always)]
    pub(super) fn scaled(&self, g: T) -> T {
        limit(g * self.rescale, self.clip)
    }

    /// As `scaled`, with the decay of the weight added after clipping.
    #[inline(always)]
    pub(super) fn decayed(&self, g: T, w: T) -> T {
        self.scaled(g) + self.wd * w
    }

    /// With the decay added before clipping, as the adaptive methods do.
    #[inline(always)]
    pub(super) fn decayed_then_clipped(&self, g: T, w: T) -> T {
        limit(g * self.rescale + self.wd * w, self.clip)
    }
}

/// Limits to `-c ..= c`; NaN stays.
#[inline(always)]
pub(super) fn limit<T: Real>(x: T, c: T) -> T {
    if x > c {
        c
    } else if x < -c {
        -c
    } else {
        x
    }
}

/// An element type with the type its updates are calculated in.
pub(super) trait Stored: Element {
    type Calc: Real;
}

impl Stored for f16 {
    type Calc = f32;
}
impl Stored for f32 {
    type Calc = f32;
}
impl Stored for f64 {
    type Calc = f64;
}

/// What an update does to one element: `(weight, gradient, states) -> weight`, with new states. A
/// copy is made for each task.
pub(in crate::ops) trait Step<C, const S: usize>:
    Fn(C, C, &mut [C; S]) -> C + Copy + Send + Sync
{
}

impl<C, const S: usize, F> Step<C, S> for F where F: Fn(C, C, &mut [C; S]) -> C + Copy + Send + Sync {}

/// The rates of a descent: those of `sgd_update` and its kin.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Descent {
    pub lr: f32,
    pub wd: f32,
    pub momentum: f32,
    pub rescale: f32,
    pub clip: f32,
}

impl Descent {
    fn constants<R: Real>(self) -> (R, R, Prepared<R>) {
        let of = |x: f32| R::of(x.into());
        (of(self.lr), of(self.momentum), Prepared::new(self.rescale, self.clip, self.wd))
    }

    /// `w - lr * (g + wd * w)`.
    pub fn plain<R: Real>(self) -> impl Step<R, 0> {
        let (lr, _, grad) = self.constants::<R>();
        move |w, g, _| w - lr * grad.decayed(g, w)
    }

    /// `m = momentum * m - lr * (g + wd * w)`, `w + m`.
    pub fn with_momentum<R: Real>(self) -> impl Step<R, 1> {
        let (lr, keep, grad) = self.constants::<R>();
        move |w, g, [m]| {
            *m = keep * *m - lr * grad.decayed(g, w);
            w + *m
        }
    }

    /// As `with_momentum`, with the momentum after the next step.
    pub fn nesterov<R: Real>(self) -> impl Step<R, 1> {
        let (lr, keep, grad) = self.constants::<R>();
        move |w, g, [m]| {
            let g = grad.decayed(g, w);
            *m = keep * *m - lr * g;
            w + keep * *m - lr * g
        }
    }
}

/// The running averages of gradient and square, as Adam keeps them.
#[derive(Clone, Copy)]
pub(super) struct Averages<R> {
    b1: R,
    b2: R,
}

impl<R: Real> Averages<R> {
    pub fn new(beta1: f32, beta2: f32) -> Self {
        Averages { b1: R::of(beta1.into()), b2: R::of(beta2.into()) }
    }

    /// Takes in a gradient.
    #[inline(always)]
    pub fn take(&self, g: R, mean: &mut R, var: &mut R) {
        *mean = self.b1 * *mean + (R::one() - self.b1) * g;
        *var = self.b2 * *var + (R::one() - self.b2) * g * g;
    }
}

/// The arrays of one update.
pub(super) struct Arrays<'a> {
    /// Weight, gradient, states, and where there is one the weight in float32.
    pub inputs: &'a [View],
    /// The new weight; `None` if it is not wanted.
    pub out: Option<&'a View>,
}

impl<'a> Arrays<'a> {
    /// Those of an operator on one weight.
    pub fn of(call: &Call<'a>) -> Self {
        Arrays { inputs: call.inputs, out: wanted(call, 0) }
    }
}

/// Output `i`, if it is wanted.
pub(super) fn wanted<'a>(call: &Call<'a>, i: usize) -> Option<&'a View> {
    (call.req[i] != OpReq::Null).then(|| &call.outputs[i])
}

/// Calls `step(weight, gradient, states) -> weight` on every element; states are changed in place.
pub(super) fn update<E: Stored, const S: usize>(a: &Arrays<'_>, step: impl Step<E::Calc, S>) {
    each::<E, E, E, E, E::Calc, S>((&a.inputs[0], false), &a.inputs[1..], a.out, step);
}

/// As [`update`], calculated in `f32` on states and a copy of the weight of that type, the last
/// input; weight and gradient themselves may have less precision.
pub(super) fn update_copy<E: Stored, const S: usize>(a: &Arrays<'_>, step: impl Step<f32, S>) {
    each::<f32, E, f32, E, f32, S>((&a.inputs[2 + S], true), &a.inputs[1..], a.out, step);
}

/// As [`update`], for a weight, a gradient, states and an output of any dtypes, calculated as `C`.
/// `others` begins with gradient and states; the weight is changed, too, if asked for.
pub(super) fn each<W: Element, G: Element, T: Element, O: Element, C: Real, const S: usize>(
    (weight, change): (&View, bool),
    others: &[View],
    out: Option<&View>,
    step: impl Step<C, S>,
) {
    let (w, g) = (Shared(weight.as_ptr::<W>()), Shared(others[0].as_ptr::<G>()));
    let states: [Shared<T>; S] = std::array::from_fn(|k| Shared(others[1 + k].as_ptr::<T>()));
    let out = out.map(|view| Shared(view.as_ptr::<O>()));
    parallel_for(weight.size(), 1 << 14, |r| {
        // Of the task's own: what is read through a reference would be read again after each store.
        let (weight, states, out, step) = ((w, change), states, out, step);
        let whole = r.start + r.len() / BLOCK * BLOCK;
        // SAFETY: all views have as many elements; tasks have elements of their own.
        unsafe {
            for at in (r.start..whole).step_by(BLOCK) {
                block::<W, G, T, O, C, S, BLOCK>(at, weight, g, states, out, step);
            }
            for at in whole..r.end {
                block::<W, G, T, O, C, S, 1>(at, weight, g, states, out, step);
            }
        }
    });
}

/// Elements read before any is written, so that the compiler vectorises without checking which
/// arrays are one: enough for a loop (16 of a step without states are unrolled, and stay scalar).
const BLOCK: usize = 32;

/// The elements `at..at + LEN` of [`each`]. An output that is the weight itself is read before it
/// is written.
///
/// # Safety
/// All arrays have these elements, and nothing else uses them now.
#[inline(always)]
unsafe fn block<W, G, T, O, C, const S: usize, const LEN: usize>(
    at: usize,
    (weight, change): (Shared<W>, bool),
    gradient: Shared<G>,
    states: [Shared<T>; S],
    out: Option<Shared<O>>,
    step: impl Step<C, S>,
) where
    W: Element,
    G: Element,
    T: Element,
    O: Element,
    C: Real,
{
    // SAFETY: promised by the caller.
    unsafe {
        let mut new: [C; LEN] = read(weight, at);
        let gradient: [C; LEN] = read(gradient, at);
        let mut state: [[C; LEN]; S] = std::array::from_fn(|k| read(states[k], at));
        for i in 0..LEN {
            let mut own = std::array::from_fn(|k| state[k][i]);
            new[i] = step(new[i], gradient[i], &mut own);
            for k in 0..S {
                state[k][i] = own[k];
            }
        }
        for k in 0..S {
            write(states[k], at, &state[k]);
        }
        if change {
            write(weight, at, &new);
        }
        if let Some(out) = out {
            write(out, at, &new);
        }
    }
}

/// # Safety
/// The array has elements `at..at + LEN`.
#[inline(always)]
unsafe fn read<E: Element, C: Real, const LEN: usize>(from: Shared<E>, at: usize) -> [C; LEN] {
    // SAFETY: promised by the caller.
    let from = unsafe { from.at(at) };
    // SAFETY: as above.
    std::array::from_fn(|i| unsafe { C::of((*from.add(i)).to_f64()) })
}

/// # Safety
/// The array has elements `at..at + LEN`, and nothing else uses them now.
#[inline(always)]
unsafe fn write<E: Element, C: Real, const LEN: usize>(to: Shared<E>, at: usize, x: &[C; LEN]) {
    // SAFETY: promised by the caller.
    let to = unsafe { to.at(at) };
    for (i, &value) in x.iter().enumerate() {
        // SAFETY: as above.
        unsafe { *to.add(i) = E::from_f64(value.to_f64()) };
    }
}

/// The sum of `value(i)` over `0..n` in float64: by blocks of fixed extent, so that it does not
/// depend on threads.
pub(super) fn total<const N: usize>(
    n: usize,
    value: impl Fn(usize) -> [f64; N] + Send + Sync,
) -> [f64; N] {
    const BLOCK: usize = 1 << 12;
    let mut parts = vec![[0.0; N]; n.div_ceil(BLOCK)];
    let to = Shared(parts.as_mut_ptr());
    parallel_for(n.div_ceil(BLOCK), 4, |range| {
        for block in range {
            let mut sum = [0.0; N];
            for i in block * BLOCK..n.min((block + 1) * BLOCK) {
                let v = value(i);
                for k in 0..N {
                    sum[k] += v[k];
                }
            }
            // SAFETY: each part belongs to one task.
            unsafe { *to.at(block) = sum };
        }
    });
    let mut sum = [0.0; N];
    for part in parts {
        for k in 0..N {
            sum[k] += part[k];
        }
    }
    sum
}
