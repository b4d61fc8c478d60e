//! Operators that move elements: repeating, reversing, diagonals, blocks. Each says how its output
//! walks over its input; the gradient is the same walk the other way round.

use super::common::{all_known, from_first, wanted, zero_view};
use crate::error::{Error, Result};
use crate::kernels::layout::copy_strided;
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::operator::infer::{assign_shape, elementwise_shape, same_type};
use crate::operator::{Attrs, Call, Gradient, Kernel, OpDef, Tuple};
use crate::params;
use crate::shape::{Dims, Numbers, Shape};
use crate::tensor::View;

params! {
    /// Parameters of `slice_like`.
    pub struct SliceLikeParam {
        axes: Tuple, default(Tuple::new()), "Axes that are cut to the extent of the other input; all if empty.";
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
        reps: Option<Tuple>, required, "Repetitions of each axis, aligned at the right; None is none.";
    }
}

params! {
    /// Parameters of `repeat`.
    pub struct RepeatParam {
        repeats: i32, required, "How often each element is repeated.";
        axis: Option<i32>, default(None), "The axis; None flattens the input first.";
    }
}

params! {
    /// Parameters of `depth_to_space` and `space_to_depth`.
    pub struct BlockParam {
        block_size: i32, required, "Extent of the blocks.";
    }
}

params! {
    /// Parameters of `diag`.
    pub struct DiagParam {
        k: i32, default(0), "Which diagonal: positive above the main one, negative below.";
        axis1: i32, default(0), "First axis of the matrices.";
        axis2: i32, default(1), "Second axis of the matrices.";
    }
}

params! {
    /// Parameters of `broadcast_to`.
    pub struct BroadcastToParam {
        shape: Tuple, default(Tuple::new()), "The target shape; 0 keeps the input's extent.";
    }
}

params! {
    /// Parameters of `broadcast_axis`.
    pub struct BroadcastAxisParam {
        axis: Tuple, default(Tuple::new()), "Axes of extent 1 to repeat.";
        size: Tuple, default(Tuple::new()), "Their new extents.";
    }
}

params! {
    /// Parameters of `broadcast_like`.
    pub struct BroadcastLikeParam {
        lhs_axes: Option<Tuple>, default(None), "Axes of lhs that repeat; all if None.";
        rhs_axes: Option<Tuple>, default(None), "The axes of rhs that give their extents.";
    }
}

/// How an output walks over its input: the element of the input under the output's first one, and a
/// stride for every axis of `dims`, a finer shape of the output.
pub struct Path {
    /// Shape of the output.
    pub out: Dims,
    pub dims: Dims,
    pub start: i64,
    pub strides: Dims,
}

impl Path {
    fn plain(out: Dims, start: i64, strides: Dims) -> Self {
        Path { dims: out.clone(), out, start, strides }
    }
}

type PathFn = fn(&Attrs, &[Shape]) -> Result<Path>;

/// What is known of shapes before all extents are; it adds to inputs and outputs.
type PartFn = fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<()>;

/// An operator of one data input whose output is a path over it. Inputs beside the first give
/// shapes only.
fn moving(def: OpDef, path: PathFn) -> Vec<OpDef> {
    moving_partly(def, path, |_, _, _| Ok(()))
}

/// As [`moving`], with a rule for shapes of which only parts are known.
fn moving_partly(def: OpDef, path: PathFn, part: PartFn) -> Vec<OpDef> {
    let back = format!("_backward_{}", def.name);
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
        );
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
    vec![forward, backward]
}

/// The elements of `whole` that a path goes over.
fn along(p: &Path, whole: &View) -> View {
    let offset = p.start as isize * whole.dtype().size() as isize;
    // SAFETY: a path addresses elements of its input only; where there are none nothing is read.
    unsafe {
        let start = whole.ptr().wrapping_offset(offset);
        View::with_strides(start, Shape::from(&p.dims[..]), p.strides.clone(), whole.dtype())
    }
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
                "cannot slice axis {axis} of shape {s} like shape {like}"
            )));
        }
        out[axis] = extent;
    }
    Ok(Path::plain(out, 0, s.strides()))
}

fn reverse(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let s = &inputs[0];
    let mut strides = s.strides();
    let mut start = 0;
    for &a in &attrs.get::<ReverseParam>().axis {
        let axis = s.axis(a)?;
        if strides[axis] > 0 {
            start += (s.dims()[axis] - 1).max(0) * strides[axis];
            strides[axis] = -strides[axis];
        }
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
            return Err(Error::value(format!("reps has a negative number {rep}")));
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
        return Err(Error::value(format!("repeats is {times}, expected at least 0")));
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

fn block_shape(s: &Shape, attrs: &Attrs) -> Result<(i64, i64, i64, i64, i64)> {
    let b = i64::from(attrs.get::<BlockParam>().block_size);
    match s.dims() {
        &[n, c, h, w] if b > 0 => Ok((b, n, c, h, w)),
        _ => Err(Error::argument("data", "shape", s, "4 axes (and a positive block_size)")),
    }
}

fn depth_to_space(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (b, n, c, h, w) = block_shape(&inputs[0], attrs)?;
    if c % (b * b) != 0 {
        return Err(Error::argument(
            "data",
            "shape",
            &inputs[0],
            format!("channels divisible by {}", b * b),
        ));
    }
    let d = c / (b * b);
    // The input as (n, b, b, d, h, w).
    let st = Shape::new(&[n, b, b, d, h, w]).strides();
    let dims = Dims::from_slice(&[n, d, h, b, w, b]);
    let strides = Dims::from_slice(&[st[0], st[3], st[4], st[1], st[5], st[2]]);
    Ok(Path { out: Dims::from_slice(&[n, d, h * b, w * b]), dims, start: 0, strides })
}

fn space_to_depth(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (b, n, c, h, w) = block_shape(&inputs[0], attrs)?;
    if h % b != 0 || w % b != 0 {
        return Err(Error::argument(
            "data",
            "shape",
            &inputs[0],
            format!("height and width divisible by {b}"),
        ));
    }
    // The input as (n, c, h / b, b, w / b, b).
    let st = Shape::new(&[n, c, h / b, b, w / b, b]).strides();
    let dims = Dims::from_slice(&[n, b, b, c, h / b, w / b]);
    let strides = Dims::from_slice(&[st[0], st[3], st[5], st[1], st[2], st[4]]);
    Ok(Path { out: Dims::from_slice(&[n, c * b * b, h / b, w / b]), dims, start: 0, strides })
}

/// The diagonal of the matrices in two axes (the last axis of the output); vectors become matrices
/// elsewhere.
fn diagonal(s: &Shape, k: i64, axis1: i64, axis2: i64) -> Result<Path> {
    let (a, b) = (s.axis(axis1)?, s.axis(axis2)?);
    if a == b {
        return Err(Error::value(format!("axis1 and axis2 are both {a}")));
    }
    let st = s.strides();
    let (rows, columns) = (s.dims()[a], s.dims()[b]);
    let length = if k >= 0 { rows.min(columns - k) } else { columns.min(rows + k) }.max(0);
    let start = if k >= 0 { k * st[b] } else { -k * st[a] };
    let others = || (0..s.ndim()).filter(|&i| i != a && i != b);
    let mut out: Dims = others().map(|i| s.dims()[i]).collect();
    let mut strides: Dims = others().map(|i| st[i]).collect();
    out.push(length);
    strides.push(st[a] + st[b]);
    Ok(Path::plain(out, if length == 0 { 0 } else { start }, strides))
}

fn repeat_to(s: &Shape, out: Dims) -> Result<Path> {
    let mut strides = s.strides();
    for (axis, stride) in strides.iter_mut().enumerate() {
        if s.dims()[axis] != out[axis] {
            if s.dims()[axis] != 1 {
                let out = Shape::from(&out[..]);
                return Err(Error::value(format!(
                    "cannot broadcast shape {s} to {out}: axis {axis} is not of extent 1"
                )));
            }
            *stride = 0;
        }
    }
    // Repeated axes of the gradient are those of stride 0 whose extent is not 1.
    Ok(Path::plain(out, 0, strides))
}

fn broadcast_to(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, shape) = (&inputs[0], &attrs.get::<BroadcastToParam>().shape);
    if shape.len() != s.ndim() {
        let shape = Numbers(shape);
        return Err(Error::value(format!(
            "cannot broadcast shape {s} to {shape}: another number of axes"
        )));
    }
    repeat_to(s, shape.iter().zip(s.dims()).map(|(&t, &d)| if t == 0 { d } else { t }).collect())
}

fn broadcast_axis(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, p) = (&inputs[0], attrs.get::<BroadcastAxisParam>());
    if p.axis.len() != p.size.len() {
        return Err(Error::value(format!("{} axes but {} sizes", p.axis.len(), p.size.len())));
    }
    let mut out = Dims::from_slice(s.dims());
    for (&a, &n) in p.axis.iter().zip(&p.size) {
        out[s.axis(a)?] = n;
    }
    repeat_to(s, out)
}

fn broadcast_like(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, like, p) = (&inputs[0], &inputs[1], attrs.get::<BroadcastLikeParam>());
    let mut out = Dims::from_slice(s.dims());
    match (&p.lhs_axes, &p.rhs_axes) {
        (Some(l), Some(r)) if l.len() == r.len() => {
            for (&a, &b) in l.iter().zip(r) {
                out[s.axis(a)?] = like.dims()[like.axis(b)?];
            }
        }
        (None, None) if s.ndim() == like.ndim() => out = Dims::from_slice(like.dims()),
        _ => return Err(Error::value(format!("cannot broadcast shape {s} like shape {like}"))),
    }
    repeat_to(s, out)
}

fn text(what: &str, notes: &str, example: &str) -> String {
    format!(
        "{what}\n\nNotes\n-----\n{notes} Any dtype; the output has that of the data.\n\nExamples\n--------\n>>> {example}\n"
    )
}

/// `diag` of a vector makes a matrix; of anything else takes diagonals.
fn diag() -> Vec<OpDef> {
    fn vector_path(attrs: &Attrs, n: i64) -> (i64, Path) {
        let k = i64::from(attrs.get::<DiagParam>().k);
        let side = n + k.abs();
        let start = if k >= 0 { k } else { -k * side };
        (side, Path::plain(Dims::from_slice(&[n]), start, Dims::from_slice(&[side + 1])))
    }
    fn path(attrs: &Attrs, s: &Shape) -> Result<Path> {
        let p: &DiagParam = attrs.get();
        diagonal(s, p.k.into(), p.axis1.into(), p.axis2.into())
    }
    let doc = text(
        "The diagonals of matrices, or a matrix with the input on its diagonal if that has one axis.",
        "The diagonal becomes the last axis.",
        "nd.diag(nd.array([[1, 2], [3, 4]]))\n[1. 4.]",
    );
    let forward = |call: &Call<'_>| -> Result<()> {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        if wanted(call, 0) {
            match x.ndim() {
                1 => walk_backward(&vector_path(call.attrs, x.dims()[0]).1, x, y),
                _ => walk_forward(&path(call.attrs, x.shape())?, x, y),
            }
        }
        Ok(())
    };
    let backward = |call: &Call<'_>| -> Result<()> {
        let (g, dx) = (&call.inputs[0], &call.outputs[0]);
        if wanted(call, 0) {
            match dx.ndim() {
                1 => walk_forward(&vector_path(call.attrs, dx.dims()[0]).1, g, dx),
                _ => walk_backward(&path(call.attrs, dx.shape())?, g, dx),
            }
        }
        Ok(())
    };
    vec![
        OpDef::new::<DiagParam>("diag")
            .doc(&doc)
            .inputs_are(&[("data", "The input array.")])
            .infer_shape(|attrs, inputs, outputs| {
                from_first(inputs, outputs, |s| match s.dims() {
                    &[n] => {
                        let side = vector_path(attrs, n).0;
                        Ok(Shape::from([side, side]))
                    }
                    _ => Ok(Shape::from(&path(attrs, s)?.out[..])),
                })
            })
            .infer_type(same_type)
            .gradient(Gradient::use_none("_backward_diag"))
            .kernel(Kernel::cpu(forward).skips_null()),
        OpDef::new::<DiagParam>("_backward_diag").kernel(Kernel::cpu(backward).skips_null()),
    ]
}

pub fn operators() -> Vec<OpDef> {
    let data = |def: OpDef| def.inputs_are(&[("data", "The input array.")]);
    let like = |def: OpDef, a: &str, b: &str| {
        def.inputs_are(&[(a, "The data."), (b, "Gives the shape; only its extents matter.")])
            .ignores(&[1])
    };
    let none = "An axis that is not there is an error.";
    [
        moving(like(OpDef::new::<SliceLikeParam>("slice_like"), "data", "shape_like").doc(&text("The leading part of the data with the extents of ``shape_like``.", "An extent larger than the data's is an error.", "nd.slice_like(nd.ones((4, 5)), nd.ones((2, 3))).shape\n(2, 3)")), slice_like),
        moving_partly(data(OpDef::new::<ReverseParam>("reverse")).aliases(&["flip"]).doc(&text("Reverses the order of elements along axes.", none, "nd.reverse(nd.array([[1, 2], [3, 4]]), axis=1)\n[[2. 1.] [4. 3.]]")), reverse, reverse_part),
        moving_partly(data(OpDef::new::<TileParam>("tile")).doc(&text("Repeats the whole array along its axes.", "The gradient sums over the repetitions.", "nd.tile(nd.array([1, 2]), reps=(2, 2)).shape\n(2, 4)")).aliases(&["_npi_tile"]), tile, tile_part),
        moving(data(OpDef::new::<RepeatParam>("repeat")).doc(&text("Repeats each element.", "The gradient sums over the repetitions.", "nd.repeat(nd.array([1, 2]), repeats=2)\n[1. 1. 2. 2.]")).aliases(&["_np_repeat"]), repeat),
        moving(data(OpDef::new::<BlockParam>("depth_to_space")).doc(&text("Moves blocks of channels into space: ``(N, C, H, W)`` becomes ``(N, C / b^2, H b, W b)``.", "Channels that do not divide are an error.", "nd.depth_to_space(nd.ones((1, 4, 2, 2)), block_size=2).shape\n(1, 1, 4, 4)")), depth_to_space),
        moving(data(OpDef::new::<BlockParam>("space_to_depth")).doc(&text("Moves blocks of space into channels: ``(N, C, H, W)`` becomes ``(N, C b^2, H / b, W / b)``.", "Extents that do not divide are an error.", "nd.space_to_depth(nd.ones((1, 1, 4, 4)), block_size=2).shape\n(1, 4, 2, 2)")), space_to_depth),
        moving(data(OpDef::new::<BroadcastToParam>("broadcast_to")).doc(&text("Repeats axes of extent 1 to a shape.", "The gradient sums over the repetitions. Extents that fit neither way are an error.", "nd.broadcast_to(nd.ones((1, 3)), shape=(4, 0)).shape\n(4, 3)")), broadcast_to),
        moving(data(OpDef::new::<BroadcastAxisParam>("broadcast_axis")).aliases(&["broadcast_axes"]).doc(&text("Repeats some axes of extent 1.", "The gradient sums over the repetitions. An axis of another extent is an error.", "nd.broadcast_axis(nd.ones((1, 3)), axis=0, size=4).shape\n(4, 3)")), broadcast_axis),
        moving(like(OpDef::new::<BroadcastLikeParam>("broadcast_like"), "lhs", "rhs").doc(&text("Repeats axes of extent 1 of ``lhs`` to the extents of ``rhs``.", "The gradient sums over the repetitions.", "nd.broadcast_like(nd.ones((1, 3)), nd.ones((4, 3))).shape\n(4, 3)")), broadcast_like),
        diag(),
    ]
    .concat()
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
        assert_eq!(
            at("tile", &[("reps", "(1, 2)")]),
            [1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.]
        );
        for (op, params) in [("reverse", ("axis", "2")), ("broadcast_to", ("shape", "(4, 3)"))] {
            assert!(infer_shapes(op, &[params], &[Some(&[2, 3])]).is_err(), "{op}");
        }
    }
}
