//! Operators that move elements: repeating, reversing, diagonals, blocks. Each states how its
//! output walks over its input; the gradient is the same walk in the opposite direction.

mod blocks;
pub(in crate::ops) mod broadcasting;
pub(in crate::ops) mod diagonal;

use super::common::{all_known, wanted, zero_view};
use super::moves::{Path, PathFn, along};
use crate::error::{Error, Result};
use crate::kernels::layout::copy_strided;
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::operator::infer::{assign_shape, elementwise_shape};
use crate::operator::{Attrs, Gradient, Kernel, OpDef, Tuple};
use crate::ops::device::shape as device;
use crate::params;
use crate::shape::{Dims, Shape};
use crate::tensor::View;

params! {
    /// Parameters of `slice_like`.
    pub struct SliceLikeParam {
        axes: Tuple, default(Tuple::new()), "Axes that are cut to the extent of the other input; \
                                             all if empty.";
    }
}

params! {
    /// Parameters of `reverse`.
    pub struct ReverseParam {
        axis: Tuple, required, "Axes to reverse.";
    }
}

params! {
    /// Parameters of `tile`.
    pub struct TileParam {
        reps: Option<Tuple>, required, "Repetitions of each axis, aligned at the right; None is \
                                        none.";
    }
}

params! {
    /// Parameters of `repeat`.
    pub struct RepeatParam {
        repeats: i32, required, "How often each element is repeated.";
        axis: Option<i32>, default(None), "The axis; None flattens the input first.";
    }
}

/// What is known of shapes before all extents are; it adds to inputs and outputs.
type PartFn = fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<()>;

/// An operator of one data input whose output is a path over it. Of further inputs only the shapes
/// are read.
pub(in crate::ops) fn moving(def: OpDef, path: PathFn) -> Vec<OpDef> {
    moving_partly(def, path, |_, _, _| Ok(()))
}

/// As [`moving`], with a rule for shapes of which only parts are known.
fn moving_partly(def: OpDef, path: PathFn, part: PartFn) -> Vec<OpDef> {
    let back = format!("_backward_{}", def.name);
    let input = def.input_docs.first().map_or("data".to_owned(), |input| input.name.clone());
    let forward = def
        .infer_shape(move |attrs, inputs, outputs| {
            part(attrs, inputs, outputs)?;
            if !inputs.iter().all(Shape::is_known) {
                return Ok(false);
            }
            let out = path(attrs, inputs)?.out;
            assign_shape(&mut outputs[0], "output", &Shape::from(&out[..]))?;
            Ok(all_known(inputs, outputs))
        })
        .infer_type(super::common::first_type)
        .gradient(Gradient::use_none(&back))
        .kernel(
            Kernel::cpu(move |call| {
                if wanted(call, 0) && call.outputs[0].size() > 0 {
                    let shapes: Vec<Shape> =
                        call.inputs.iter().map(|v| v.shape().clone()).collect();
                    let p = path(call.attrs, &shapes)?;
                    walk_forward(&p, &call.inputs[0], &call.outputs[0]);
                }
                Ok(())
            })
            .skips_null(),
        )
        .kernels([device::on_path(&input, path)]);
    let mut backward = OpDef::plain(&back);
    backward.schema = forward.schema.clone();
    let backward = backward.kernel(
        Kernel::cpu(move |call| {
            for i in 1..call.outputs.len() {
                if wanted(call, i) {
                    zero_view(&call.outputs[i]);
                }
            }
            if wanted(call, 0) {
                let shapes: Vec<Shape> = call.outputs.iter().map(|v| v.shape().clone()).collect();
                let p = path(call.attrs, &shapes)?;
                walk_backward(&p, &call.inputs[0], &call.outputs[0]);
            }
            Ok(())
        })
        .skips_null(),
    );
    vec![forward, backward.kernels([device::back_on_path("data", path)])]
}

fn walk_forward(p: &Path, from: &View, to: &View) {
    if to.size() == 0 {
        return;
    }
    // SAFETY: a path addresses elements of its input only; the output is apart.
    unsafe { copy_strided(&along(p, from), &to.reshaped(Shape::from(&p.dims[..]))) };
}

/// Writes the gradient: elements that no output came from get 0, those that repeat get the sum.
fn walk_backward(p: &Path, grad: &View, to: &View) {
    let repeats = p.dims.iter().zip(&p.strides).any(|(&d, &s)| s == 0 && d > 1);
    if repeats {
        // The axes that do not repeat cover the input exactly, in order: sum over the others.
        let whole = grad.reshaped(Shape::from(&p.dims[..]));
        let kept: Dims =
            p.dims.iter().zip(&p.strides).map(|(&d, &s)| if s == 0 { 1 } else { d }).collect();
        reduce_to(Reduction::Sum, &whole, &to.reshaped(Shape::from(&kept[..])));
        return;
    }
    if grad.size() < to.size() {
        zero_view(to);
    }
    if grad.size() > 0 {
        // SAFETY: a path without repetition addresses each element of the input at most once.
        unsafe { copy_strided(&grad.reshaped(Shape::from(&p.dims[..])), &along(p, to)) };
    }
}

fn slice_like(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, like) = (&inputs[0], &inputs[1]);
    let axes = &attrs.get::<SliceLikeParam>().axes;
    let mut out = Dims::from_slice(s.dims());
    let all: Vec<i64> = (0..s.ndim() as i64).collect();
    for &a in if axes.is_empty() { &all[..] } else { &axes[..] } {
        let axis = s.axis(a)?;
        let extent = like.dims().get(axis).copied().unwrap_or(-1);
        if extent < 0 || extent > s.dims()[axis] {
            return Err(Error::value(format!(
                "cannot slice axis {axis} of shape {s} like shape {like}: expected an extent of at \
                 most {}",
                s.dims()[axis]
            )));
        }
        out[axis] = extent;
    }
    Ok(Path::plain(out, 0, s.strides()))
}

fn reverse(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    backwards(&inputs[0], &attrs.get::<ReverseParam>().axis)
}

/// The walk that turns around along these axes, one after the other: an axis named twice keeps its
/// direction.
pub(in crate::ops) fn backwards(s: &Shape, axes: &[i64]) -> Result<Path> {
    let mut strides = s.strides();
    let mut start = 0;
    for &a in axes {
        let axis = s.axis(a)?;
        start += (s.dims()[axis] - 1).max(0) * strides[axis];
        strides[axis] = -strides[axis];
    }
    Ok(Path::plain(Dims::from_slice(s.dims()), start, strides))
}

fn reverse_part(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<()> {
    elementwise_shape(attrs, inputs, outputs).map(|_| ())
}

/// How often each axis is repeated, aligned at the right.
fn repetitions(attrs: &Attrs) -> &[i64] {
    attrs.get::<TileParam>().reps.as_deref().unwrap_or(&[])
}

/// Each extent is repeated; those that are unknown stay so.
fn tile_part(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<()> {
    let (s, reps) = (&inputs[0], repetitions(attrs));
    if !s.rank_known() {
        return Ok(());
    }
    let n = s.ndim().max(reps.len());
    // Axes count from the last one; those that one of the two does not have are 1 there.
    let from_end = |list: &[i64], i: usize| list.len().checked_sub(n - i).map_or(1, |at| list[at]);
    let extents = (0..n).map(|i| match (from_end(s.dims(), i), from_end(reps, i)) {
        (_, r) if r < 0 => -1, // refused once all extents are known
        (d, _) if d < 0 => -1,
        (d, r) => d.saturating_mul(r),
    });
    let out: Shape = extents.collect();
    assign_shape(&mut outputs[0], "output", &out)
}

fn tile(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, reps) = (&inputs[0], repetitions(attrs));
    let n = s.ndim().max(reps.len());
    let (mut out, mut dims, mut strides) = (Dims::new(), Dims::new(), Dims::new());
    let own = s.strides();
    for axis in 0..n {
        let rep = (axis + reps.len()).checked_sub(n).map_or(1, |i| reps[i]);
        let (d, st) = (axis + s.ndim()).checked_sub(n).map_or((1, 0), |i| (s.dims()[i], own[i]));
        if rep < 0 {
            return Err(Error::invalid("number in reps", rep, "at least 0"));
        }
        out.push(d.saturating_mul(rep));
        dims.extend_from_slice(&[rep, d]);
        strides.extend_from_slice(&[0, st]);
    }
    Ok(Path { out, dims, start: 0, strides })
}

fn repeat(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, p) = (&inputs[0], attrs.get::<RepeatParam>());
    let times = i64::from(p.repeats);
    if times < 0 {
        return Err(Error::invalid("repeats", times, "at least 0"));
    }
    let Some(axis) = p.axis else {
        let n = s.size() as i64;
        let (dims, strides) = (Dims::from_slice(&[n, times]), Dims::from_slice(&[1, 0]));
        return Ok(Path {
            out: Dims::from_slice(&[n.saturating_mul(times)]),
            dims,
            start: 0,
            strides,
        });
    };
    let axis = s.axis(axis.into())?;
    let mut out = Dims::from_slice(s.dims());
    out[axis] = out[axis].saturating_mul(times);
    let (mut dims, mut strides) = (Dims::from_slice(s.dims()), s.strides());
    dims.insert(axis + 1, times);
    strides.insert(axis + 1, 0);
    Ok(Path { out, dims, start: 0, strides })
}

/// The extents on axes that are not repeated, and the repeated one where it is known.
fn repeat_part(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<()> {
    let p = attrs.get::<RepeatParam>();
    let (Some(axis), true) = (p.axis, inputs[0].rank_known()) else { return Ok(()) };
    let mut out = inputs[0].clone();
    let axis = out.axis(axis.into())?;
    let extent = &mut out.dims_mut()[axis];
    *extent = if *extent < 0 { -1 } else { extent.saturating_mul(i64::from(p.repeats).max(0)) };
    assign_shape(&mut outputs[0], "output", &out)
}

/// The extents of the second input on the axes that are cut, those of the data on others.
fn slice_like_part(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<()> {
    let (s, like) = (&inputs[0], &inputs[1]);
    if !s.rank_known() || !like.rank_known() {
        return Ok(());
    }
    let axes = &attrs.get::<SliceLikeParam>().axes;
    let all: Vec<i64> = (0..s.ndim() as i64).collect();
    let mut out = s.clone();
    for &a in if axes.is_empty() { &all[..] } else { &axes[..] } {
        let axis = s.axis(a)?;
        out.dims_mut()[axis] = like.dims().get(axis).copied().unwrap_or(-1);
    }
    assign_shape(&mut outputs[0], "output", &out)
}

fn text(what: &str, notes: &str, example: &str) -> String {
    format!(
        "{what}\n\nNotes\n-----\n{notes} Any dtype; the output has that of the data.\n\nExamples\n\
         --------\n>>> {example}\n"
    )
}

/// Documents the only input of an operator.
fn data(def: OpDef) -> OpDef {
    def.inputs_are(&[("data", "The input array.")])
}

/// Documents the inputs of an operator that reads only the shape of its second one.
fn like(def: OpDef, data: &str, shape: &str) -> OpDef {
    def.inputs_are(&[(data, "The data."), (shape, "Gives the shape; only its extents matter.")])
        .ignores(&[1])
}

pub fn operators() -> Vec<OpDef> {
    let own = [
        moving_partly(
            like(OpDef::new::<SliceLikeParam>("slice_like"), "data", "shape_like").doc(&text(
                "The leading part of the data with the extents of ``shape_like``.",
                "An extent larger than the data's is an error.",
                "nd.slice_like(nd.ones((4, 5)), nd.ones((2, 3))).shape\n(2, 3)",
            )),
            slice_like,
            slice_like_part,
        ),
        moving_partly(
            data(OpDef::new::<ReverseParam>("reverse")).aliases(&["flip"]).doc(&text(
                "Reverses the order of elements along axes.",
                "An axis named twice is reversed twice. An axis out of range is an error.",
                "nd.reverse(nd.array([[1, 2], [3, 4]]), axis=1)\n[[2. 1.] [4. 3.]]",
            )),
            reverse,
            reverse_part,
        ),
        moving_partly(
            data(OpDef::new::<TileParam>("tile"))
                .doc(&text(
                    "Repeats the whole array along its axes.",
                    "The gradient sums over the repetitions.",
                    "nd.tile(nd.array([1, 2]), reps=(2, 2)).shape\n(2, 4)",
                ))
                .aliases(&["_npi_tile"]),
            tile,
            tile_part,
        ),
        moving_partly(
            data(OpDef::new::<RepeatParam>("repeat"))
                .doc(&text(
                    "Repeats each element.",
                    "The gradient sums over the repetitions.",
                    "nd.repeat(nd.array([1, 2]), repeats=2)\n[1. 1. 2. 2.]",
                ))
                .aliases(&["_np_repeat"]),
            repeat,
            repeat_part,
        ),
    ];
    let own = own.concat();
    [own, blocks::operators(), broadcasting::operators(), diagonal::operators()].concat()
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let cases: &[(&str, &[(&str, &str)], &[i64])] = &[
            (
                "slice",
                &[("begin", "(None, 4)"), ("end", "(None, 0)"), ("step", "(2, -2)")],
                &[4, 5],
            ),
            ("reverse", &[("axis", "(0, 1)")], &[3, 4]),
            ("tile", &[("reps", "(2, 1, 3)")], &[2, 3]),
            ("tile", &[("reps", "(2,)")], &[2, 3]),
            ("repeat", &[("repeats", "3")], &[2, 3]),
            ("repeat", &[("repeats", "2"), ("axis", "0")], &[2, 3]),
            ("depth_to_space", &[("block_size", "2")], &[1, 8, 2, 3]),
            ("space_to_depth", &[("block_size", "2")], &[1, 2, 4, 2]),
            ("broadcast_to", &[("shape", "(0, 4, 3)")], &[2, 1, 3]),
            ("broadcast_axis", &[("axis", "(0, 2)"), ("size", "(2, 3)")], &[1, 2, 1]),
            ("diag", &[("k", "1")], &[3, 4]),
            ("diag", &[("k", "-1")], &[3]),
        ];
        for (op, params, dims) in cases {
            check_gradient(op, params, &[Tensor::noise(dims, 3)], &[0], true);
        }
        let pair = |a: &[i64], b: &[i64]| [Tensor::noise(a, 3), Tensor::noise(b, 4)];
        check_gradient("slice_like", &[], &pair(&[4, 5], &[2, 3]), &[0], true);
        check_gradient("broadcast_like", &[], &pair(&[2, 1], &[2, 3]), &[0], true);
    }

    #[test]
    fn values_and_errors() {
        let x = Tensor::of(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
        let at = |op, params: &[(&str, &str)]| values(op, params, &[x.clone()]);
        assert_eq!(at("transpose", &[]), [1., 4., 2., 5., 3., 6.]);
        assert_eq!(
            at("slice", &[("begin", "(0, 2)"), ("end", "(2, None)"), ("step", "(1, -2)")]),
            [3., 1., 6., 4.]
        );
        assert_eq!(at("reverse", &[("axis", "1")]), [3., 2., 1., 6., 5., 4.]);
        assert_eq!(at("reverse", &[("axis", "(1, 0, 1)")]), [4., 5., 6., 1., 2., 3.]);
        assert_eq!(
            at("tile", &[("reps", "(1, 2)")]),
            [1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.]
        );
        for (op, params) in [("reverse", ("axis", "2")), ("broadcast_to", ("shape", "(4, 3)"))] {
            assert!(infer_shapes(op, &[params], &[Some(&[2, 3])]).is_err(), "{op}");
        }
    }
}
