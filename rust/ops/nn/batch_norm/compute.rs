//! Kernels of batch normalisation.

use super::{BatchNormParam, extents, param, unwidened};
use crate::error::Result;
use crate::kernels::norm::{Affine, Channels, Gradients};
use crate::kernels::parallel::{OnElements, Shared};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::{Attrs, Call, OpReq};
use crate::tensor::View;
use crate::with_real;

/// The least extent of a plane whose elements are normalised as they are asked for: each part of a
/// plane costs a division and a call.
const LEAST_PLANE: usize = 16;

/// Whether each element can be calculated by itself, and planes are long enough for that.
pub fn has_parts(attrs: &Attrs, inputs: &[View], is_train: bool) -> bool {
    !uses_batch(&param(attrs), is_train)
        && unwidened(attrs, &inputs[0]).is_some_and(|s| s.inner >= LEAST_PLANE)
}

pub fn run_in_parts(call: &Call<'_>, with: &mut dyn FnMut(OnElements<'_>)) -> Result<()> {
    with_real!(call.inputs[0].dtype(), T => {
        with_affine::<T>(call, |extents, affine| {
            let [x, y] = [&call.inputs[0], &call.outputs[0]].map(|v| Shared(v.as_ptr::<T>()));
            // SAFETY: as in `forward`.
            unsafe {
                write_moving_statistics(call, &affine);
                with(&|elements| extents.normalise_elements(elements, x.ptr(), affine, y.ptr()));
            }
        });
        Ok(())
    })
}

/// Whether the statistics are those of the data.
fn uses_batch(param: &BatchNormParam, is_train: bool) -> bool {
    is_train && !param.use_global_stats
}

/// Calls `f` with the extents and the scale of every channel; mean and inverse standard deviation
/// are yet to be written.
fn with_affine<T: Real>(call: &Call<'_>, f: impl FnOnce(Channels, Affine<T>)) {
    let param = param(call.attrs);
    let [data, gamma, beta, ..] = call.inputs else { unreachable!("five") };
    let extents = extents(&param, data);
    with_scratch(2 * extents.channels, |room: &mut [T]| {
        let (own_mean, own_inv_std) = room.split_at_mut(extents.channels);
        // The statistics are calculated even where they are not wanted.
        let [m, v] = [(1, own_mean), (2, own_inv_std)].map(|(i, own)| match call.req[i] {
            OpReq::Null => own.as_mut_ptr(),
            _ => call.outputs[i].as_ptr::<T>(),
        });
        let affine = Affine {
            mean: m.cast_const(),
            inv_std: v.cast_const(),
            gamma: (!param.fix_gamma).then(|| gamma.as_ptr::<T>().cast_const()),
            beta: beta.as_ptr::<T>().cast_const(),
        };
        f(extents, affine);
    });
}

/// Mean and inverse standard deviation of every channel, by the moving averages.
///
/// # Safety
/// `to` is of [`with_affine`]; nothing writes the moving averages now.
unsafe fn write_moving_statistics<T: Real>(call: &Call<'_>, to: &Affine<T>) {
    let eps = T::of(param(call.attrs).eps);
    let [moving_mean, moving_var] = &call.inputs[3..] else { unreachable!("five") };
    let [m, v] = [to.mean, to.inv_std].map(<*const T>::cast_mut);
    // SAFETY: promised by the caller; the statistics overlap no input.
    unsafe {
        m.copy_from_nonoverlapping(moving_mean.as_ptr(), moving_mean.size());
        for (c, &variance) in moving_var.slice::<T>().iter().enumerate() {
            *v.add(c) = T::one() / (variance + eps).sqrt();
        }
    }
}

pub fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let param = param(call.attrs);
    let x = call.inputs[0].as_ptr::<T>().cast_const();
    let y = match call.req[0] {
        OpReq::Null => std::ptr::null_mut(),
        _ => call.outputs[0].as_ptr::<T>(),
    };
    let done: OnElements<'_> = &|elements| call.around.after(elements);
    // SAFETY: inference gave the views these extents. The statistics overlap no input, and the
    // output is the data or apart from all; nothing writes the moving averages now.
    with_affine::<T>(call, |extents, affine| unsafe {
        if uses_batch(&param, call.ctx.is_train) {
            return extents.normalise_by_batch(x, T::of(param.eps), affine, y, done);
        }
        write_moving_statistics(call, &affine);
        extents.normalise(x, affine, y, done);
    });
    Ok(())
}

/// Moves the averages towards the statistics of a batch.
///
/// # Safety
/// The views, of one extent, are mean, inverse standard deviation, and the two moving averages,
/// which are ours to write.
pub unsafe fn update_moving<T: Real>(param: &BatchNormParam, views: &[View]) {
    let [mean, inv_std, moving_mean, moving_var] = views else { unreachable!("four views") };
    let keep = T::of(param.momentum.into());
    let (new, eps) = (T::one() - keep, T::of(param.eps));
    // SAFETY: promised by the caller.
    unsafe {
        let stats = mean.slice::<T>().iter().zip(inv_std.slice::<T>());
        let moving = moving_mean.slice_mut::<T>().iter_mut().zip(moving_var.slice_mut::<T>());
        for ((mm, mv), (&m, &s)) in moving.zip(stats) {
            *mm = *mm * keep + m * new;
            let variance = T::one() / (s * s) - eps;
            // Rounding may leave less than 0; NaN stays NaN.
            *mv = *mv * keep + if variance < T::zero() { T::zero() } else { variance } * new;
        }
    }
}

pub fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let param = param(call.attrs);
    let [grad, data, gamma, mean, inv_std, ..] = call.inputs else {
        unreachable!("declared dependencies")
    };
    let extents = extents(&param, data);
    let batch_stats = uses_batch(&param, call.ctx.is_train);
    let target = |i: usize| match call.req.get(i) {
        Some(OpReq::Null) | None => std::ptr::null_mut(),
        Some(_) => call.outputs[i].as_ptr::<T>(),
    };
    // SAFETY: gradients have the extents of their inputs; the data's may be the memory of `grad` or
    // `data`, all others are apart. The moving averages are declared as mutated.
    unsafe {
        if batch_stats {
            update_moving::<T>(&param, &call.inputs[3..7]);
        }
        for i in 3..call.outputs.len() {
            if call.req[i] != OpReq::Null {
                call.outputs[i].slice_mut::<T>().fill(T::zero());
            }
        }
        let affine = Affine {
            mean: mean.as_ptr::<T>().cast_const(),
            inv_std: inv_std.as_ptr::<T>().cast_const(),
            gamma: (!param.fix_gamma).then(|| gamma.as_ptr::<T>().cast_const()),
            beta: std::ptr::null(),
        };
        let to = Gradients { data: target(0), gamma: target(1), beta: target(2) };
        let (dy, x) = (grad.as_ptr::<T>(), data.as_ptr::<T>());
        if extents.inner == 1 && extents.channels > 1 {
            transposed(&extents, (dy, x), affine, !batch_stats, to);
        } else {
            let wanted: OnElements<'_> = &|elements| call.around.before(elements);
            extents.backward(dy, x, affine, !batch_stats, to, wanted);
        }
    }
    Ok(())
}

/// The backward pass where channels are innermost: through scratch in which they are not.
///
/// # Safety
/// As [`Channels::backward`], with `inner == 1`.
unsafe fn transposed<T: Real>(
    extents: &Channels,
    (dy, x): (*mut T, *mut T),
    affine: Affine<T>,
    fixed: bool,
    to: Gradients<T>,
) {
    use crate::ops::nn::window::swap_inner;
    let (rows, columns) = (extents.outer, extents.channels);
    let size = rows * columns;
    with_scratch(3 * size, |room: &mut [T]| {
        let (a, rest) = room.split_at_mut(size);
        let (b, c) = rest.split_at_mut(size);
        let turned = Channels { outer: 1, channels: columns, inner: rows };
        // SAFETY: the scratch holds three tensors; the views are the caller's promise.
        unsafe {
            swap_inner(dy, (1, rows, columns), a.as_mut_ptr());
            swap_inner(x, (1, rows, columns), b.as_mut_ptr());
            let wanted = !to.data.is_null();
            let inner = Gradients { data: if wanted { c.as_mut_ptr() } else { to.data }, ..to };
            turned.backward(a.as_ptr(), b.as_ptr(), affine, fixed, inner, &|_| ());
            if wanted {
                swap_inner(c.as_ptr(), (1, columns, rows), to.data);
            }
        }
    });
}
