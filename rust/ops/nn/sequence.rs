//! `SequenceMask`, `SequenceLast`, `SequenceReverse`: batches of sequences of different length.

use super::infer::complete;
use super::loss::copy_first;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, Kernel, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_dtype};

params! {
    /// Parameters of `SequenceMask`.
    pub struct SequenceMaskParam {
        use_sequence_length: bool, default(false), "Is there an input sequence_length?";
        value: f32, default(0.0), "What masked elements become.";
        axis: i32, default(0), "The time axis, 0 or 1; the other one is the batch.";
    }
}

params! {
    /// Parameters of `SequenceLast` and `SequenceReverse`.
    pub struct SequenceParam {
        use_sequence_length: bool, default(false), "Is there an input sequence_length?";
        axis: i32, default(0), "The time axis, 0 or 1; the other one is the batch.";
    }
}

const MASK: &str = r#"
Sets the elements of each sequence from its length on to ``value``.

Notes
-----
Data ``(T, N, ...)``, or ``(N, T, ...)`` with ``axis=1``. ``sequence_length`` ``(N,)`` of any dtype
exists only with ``use_sequence_length=True``; without it the output is the data. The output
has the shape and dtype of the data, which may be any. Masked elements get no gradient.

Examples
--------
>>> nd.SequenceMask(nd.ones((3, 2)), nd.array([1, 2]), use_sequence_length=True)
[[1. 1.]
 [0. 1.]
 [0. 0.]]
"#;

const LAST: &str = r#"
Takes the last element of each sequence: ``y[n] = x[length[n] - 1, n]``.

Notes
-----
Data ``(T, N, ...)``, or ``(N, T, ...)`` with ``axis=1``; the output is ``(N, ...)``.
``sequence_length`` ``(N,)`` of any dtype exists only with ``use_sequence_length=True``; without it
all sequences have length T. Lengths are taken into 1 to T. Any dtype.

Examples
--------
>>> nd.SequenceLast(nd.array([[1, 2], [3, 4]]), nd.array([1, 2]), use_sequence_length=True)
[1. 4.]
"#;

const REVERSE: &str = r#"
Reverses each sequence up to its length; what follows stays.

Notes
-----
Data ``(T, N, ...)``; the time axis must be 0. ``sequence_length`` ``(N,)`` of any dtype exists only
with ``use_sequence_length=True``; without it all sequences have length T. The output has
the shape and dtype of the data, which may be any.

Examples
--------
>>> nd.SequenceReverse(nd.array([[1, 2], [3, 4]]), nd.array([1, 2]), use_sequence_length=True)
[[1. 4.]
 [3. 2.]]
"#;

/// Reads the settings of either parameter struct: (with lengths, time axis).
pub(in crate::ops) fn settings(attrs: &Attrs) -> (bool, usize) {
    match attrs.typed().downcast_ref::<SequenceMaskParam>() {
        Some(p) => (p.use_sequence_length, p.axis as usize),
        None => {
            let p: &SequenceParam = attrs.get();
            (p.use_sequence_length, p.axis as usize)
        }
    }
}

pub fn operators() -> Vec<OpDef> {
    let kernel = |run: fn(&Call<'_>) -> Result<()>| Kernel::cpu(run).skips_null();
    let finish = |def: OpDef, doc: &str, back: &str| {
        def.doc(doc)
            .inputs_are(&[
                ("data", "The sequences (T, N, ...)."),
                ("sequence_length", "Their lengths (N,), with use_sequence_length=True."),
            ])
            .input_names_by(|attrs| {
                let n = if settings(attrs).0 { 2 } else { 1 };
                ["data", "sequence_length"][..n].iter().map(|s| (*s).to_owned()).collect()
            })
            .infer_type(infer_type)
            .gradient(Gradient::declared(back, |_, inputs, _| {
                let lengths = if inputs > 1 { vec![Dep::Input(1)] } else { vec![] };
                [vec![Dep::OutGrad(0)], lengths].concat()
            }))
    };
    vec![
        finish(OpDef::new::<SequenceMaskParam>("SequenceMask"), MASK, "_backward_SequenceMask")
            .aliases(&["_npx_sequence_mask"])
            .infer_shape(same_shape)
            .inplace(&[InplacePair::new(0, 0)])
            .kernel(kernel(|call| mask(call, false))),
        OpDef::new::<SequenceMaskParam>("_backward_SequenceMask")
            .inplace(&[InplacePair::new(0, 0)])
            .kernel(kernel(|call| mask(call, true))),
        finish(OpDef::new::<SequenceParam>("SequenceLast"), LAST, "_backward_SequenceLast")
            .infer_shape(last_shape)
            .kernel(kernel(last)),
        OpDef::new::<SequenceParam>("_backward_SequenceLast").kernel(kernel(last_grad)),
        finish(
            OpDef::new::<SequenceParam>("SequenceReverse"),
            REVERSE,
            "_backward_SequenceReverse",
        )
        .infer_shape(same_shape)
        .kernel(kernel(reverse)),
        OpDef::new::<SequenceParam>("_backward_SequenceReverse").kernel(kernel(reverse)),
    ]
}

fn infer_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let Some(data) = inputs[0].or(outputs[0]) else { return Ok(false) };
    assign_type(&mut inputs[0], "data", data)?;
    assign_type(&mut outputs[0], "output", data)?;
    for lengths in &mut inputs[1..] {
        *lengths = lengths.or(Some(data));
    }
    Ok(true)
}

/// Checks the axis and infers the lengths from the data.
fn lengths_shape(attrs: &Attrs, inputs: &mut [Shape], only_first: bool) -> Result<usize> {
    let (_, axis) = settings(attrs);
    if axis > 1 || (only_first && axis != 0) {
        let expected = if only_first { "0" } else { "0 or 1" };
        return Err(Error::argument("axis", "value", axis as i32, expected));
    }
    super::infer::expect_rank(&inputs[0], "data", 2..=usize::MAX)?;
    if inputs[0].rank_known() && inputs.len() > 1 {
        let batch = Shape::new(&[inputs[0].dims()[1 - axis]]);
        assign_shape(&mut inputs[1], "sequence_length", &batch)?;
    }
    Ok(axis)
}

fn same_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    let reverse = attrs.typed().downcast_ref::<SequenceMaskParam>().is_none();
    lengths_shape(attrs, inputs, reverse)?;
    complete(inputs, outputs)
}

fn last_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let axis = lengths_shape(attrs, inputs, false)?;
    if inputs[0].rank_known() {
        let mut out = inputs[0].clone();
        out.dims_mut().remove(axis);
        assign_shape(&mut outputs[0], "output", &out)?;
    }
    complete(inputs, outputs)
}

/// Extents: time, batch, the rest, and steps of time and batch in elements.
struct Extents {
    time: usize,
    batch: usize,
    rest: usize,
    time_step: usize,
    batch_step: usize,
}

fn extents(attrs: &Attrs, data: &Shape) -> Extents {
    let (_, axis) = settings(attrs);
    let rest = data.product(2..data.ndim());
    let (a, b) = (data.product(0..1), data.product(1..2));
    if axis == 0 {
        Extents { time: a, batch: b, rest, time_step: b * rest, batch_step: rest }
    } else {
        Extents { time: b, batch: a, rest, time_step: rest, batch_step: b * rest }
    }
}

/// The lengths, all `time` if there are none, cut to `least..=time`.
fn lengths(view: Option<&View>, e: &Extents, least: usize) -> Vec<usize> {
    let Some(view) = view else { return vec![e.time; e.batch] };
    // SAFETY: an input is not written while the kernel runs.
    with_dtype!(view.dtype(), T => unsafe { view.slice::<T>() }
        .iter()
        .map(|l| (Element::to_f64(*l).max(0.0) as usize).min(e.time).max(least))
        .collect())
}

/// Gradients of lengths, which are output 1 if there are any, are zero.
pub fn zero_lengths(call: &Call<'_>) {
    if call.req.get(1).is_some_and(|r| *r != OpReq::Null) {
        let out = &call.outputs[1];
        // SAFETY: the output is ours to write; zero bytes are zero in every dtype.
        unsafe { out.ptr().write_bytes(0, out.size_bytes()) };
    }
}

fn mask(call: &Call<'_>, backward: bool) -> Result<()> {
    zero_lengths(call);
    copy_first(call)?;
    if call.req[0] == OpReq::Null || call.inputs.len() < 2 {
        return Ok(());
    }
    let value = call.attrs.get::<SequenceMaskParam>().value;
    let value = if backward { 0.0 } else { f64::from(value) };
    let out = &call.outputs[0];
    let e = extents(call.attrs, out.shape());
    let lengths = lengths(call.inputs.get(1), &e, 0);
    with_dtype!(out.dtype(), T => {
        let y = Shared(out.as_ptr::<T>());
        parallel_for(e.batch, 16, |range| {
            for (n, t) in range.flat_map(|n| (lengths[n]..e.time).map(move |t| (n, t))) {
                let at = t * e.time_step + n * e.batch_step;
                // SAFETY: steps stay inside the output; sequences belong to one task.
                unsafe { std::slice::from_raw_parts_mut(y.at(at), e.rest) }.fill(T::from_f64(value));
            }
        });
        Ok(())
    })
}

fn last(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let e = extents(call.attrs, data.shape());
    let (x, y, size) = (data.ptr(), out.ptr(), data.dtype().size());
    for (n, length) in lengths(call.inputs.get(1), &e, 1.min(e.time)).into_iter().enumerate() {
        if length > 0 {
            let from = ((length - 1) * e.time_step + n * e.batch_step) * size;
            let (to, bytes) = (n * e.rest * size, e.rest * size);
            // SAFETY: steps stay inside the data; the output has `rest` elements a sequence.
            unsafe { std::ptr::copy_nonoverlapping(x.add(from), y.add(to), bytes) };
        }
    }
    Ok(())
}

fn last_grad(call: &Call<'_>) -> Result<()> {
    zero_lengths(call);
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let out = &call.outputs[0];
    let e = extents(call.attrs, out.shape());
    let (dy, dx, size) = (call.inputs[0].ptr(), out.ptr(), out.dtype().size());
    // SAFETY: as in `last`; the output overlaps no input, and zero bytes are zero in every dtype.
    unsafe {
        dx.write_bytes(0, out.size_bytes());
        for (n, length) in lengths(call.inputs.get(1), &e, 1.min(e.time)).into_iter().enumerate() {
            if length > 0 {
                let to = ((length - 1) * e.time_step + n * e.batch_step) * size;
                let (from, bytes) = (n * e.rest * size, e.rest * size);
                std::ptr::copy_nonoverlapping(dy.add(from), dx.add(to), bytes);
            }
        }
    }
    Ok(())
}

/// Its own gradient: the same permutation.
fn reverse(call: &Call<'_>) -> Result<()> {
    zero_lengths(call);
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let e = extents(call.attrs, data.shape());
    let lengths = lengths(call.inputs.get(1), &e, 0);
    let size = data.dtype().size();
    let (x, y) = (Shared(data.ptr()), Shared(out.ptr()));
    parallel_for(e.batch, 16, |range| {
        for (n, t) in range.flat_map(|n| (0..e.time).map(move |t| (n, t))) {
            let from = if t < lengths[n] { lengths[n] - 1 - t } else { t };
            let at = |t: usize| (t * e.time_step + n * e.batch_step) * size;
            // SAFETY: steps stay inside both; sequences belong to one task.
            unsafe { std::ptr::copy_nonoverlapping(x.at(at(from)), y.at(at(t)), e.rest * size) };
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::testing::*;

    const WITH: [(&str, &str); 1] = [("use_sequence_length", "True")];

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn lengths_count() {
        let x = Tensor::of(&[3, 2], &[0., 1., 2., 3., 4., 5.]);
        let at = |l: &[f64], dtype| Tensor::new(&[2], dtype, l);
        let of = |op, l: &[f64]| values(op, &WITH, &[x.clone(), at(l, DType::I32)]);
        assert_eq!(of("SequenceMask", &[1., 2.]), [0., 1., 0., 3., 0., 0.]);
        assert_eq!(of("SequenceLast", &[1., 3.]), [0., 5.]);
        assert_eq!(of("SequenceReverse", &[2., 3.]), [2., 5., 0., 3., 4., 1.]);
        assert_eq!(values("SequenceLast", &[], &[x.clone()]), [4., 5.]);
        assert_eq!(values("SequenceMask", &[], &[x.clone()]), x.values());
        let p = [WITH[0], ("axis", "1"), ("value", "-1")];
        let y =
            values("SequenceMask", &p, &[Tensor::of(&[2, 3], &[1.; 6]), at(&[1., 2.], DType::F64)]);
        assert_eq!(y, [1., -1., -1., 1., 1., -1.]);
        assert!(infer_shapes("SequenceReverse", &[("axis", "1")], &[Some(&[2, 3])]).is_err());
    }

    #[test]
    fn gradients_match_differences() {
        let inputs = [Tensor::noise(&[3, 2, 2], 1), Tensor::of(&[2], &[1., 3.])];
        for op in ["SequenceMask", "SequenceLast", "SequenceReverse"] {
            check_gradient(op, &WITH, &inputs, &[0], true);
            check_gradient(op, &[], &inputs[..1], &[0], true);
            check_half(op, &[], &inputs[..1], true);
        }
        let p = [WITH[0], ("axis", "1")];
        let inputs = [Tensor::noise(&[2, 3, 2], 1), Tensor::of(&[2], &[2., 3.])];
        check_gradient("SequenceLast", &p, &inputs, &[0], true);
    }
}
