//! The same elements in another shape or order, joined, or repeated.

use super::{original, shaped_by, text};
use crate::error::{Error, Result, shown};
use crate::operator::{Attrs, Mapped, OpDef, ParamType, Registry, Tuple, Value};
use crate::ops::tensor::common::axis_flags;
use crate::ops::tensor::movement::broadcasting::repeat_to;
use crate::ops::tensor::movement::{backwards, moving};
use crate::ops::tensor::moves::Path;
use crate::ops::tensor::shape::axes::reorders;
use crate::ops::tensor::shape::squeezed_to_any_rank;
use crate::params;
use crate::shape::{Dims, Numbers, Shape};

params! {
    /// Parameters of `_np_transpose`.
    pub struct TransposeParam {
        axes: Option<Tuple>, default(None), "The input's axes in their new order; None reverses \
                                             them.";
    }
}

params! {
    /// Parameters of `_np_moveaxis`.
    pub struct MoveParam {
        source: Tuple, required, "The axes to move.";
        destination: Tuple, required, "Where each of them goes.";
    }
}

params! {
    /// Parameters of `_npi_flip`.
    pub struct FlipParam {
        axis: Option<Tuple>, default(None), "Axes to reverse; None is all of them.";
    }
}

params! {
    /// Parameters of `_np_reshape`.
    pub struct ReshapeParam {
        newshape: Tuple, required, "The new shape; one extent may be -1, which is inferred.";
        order: String, default("C".to_owned()), "The order of elements: C.";
    }
}

params! {
    /// Parameters of `_npx_reshape`.
    pub struct CodesParam {
        newshape: Tuple, required, "The new shape, with codes.";
        reverse: bool, default(false), "Read the codes from the right.";
        order: String, default("C".to_owned()), "The order of elements: C.";
    }
}

params! {
    /// Parameters of `_npi_broadcast_to`.
    pub struct BroadcastParam {
        shape: Tuple, default(Tuple::new()), "The new shape.";
    }
}

params! {
    /// Parameters of `_np_diagonal`.
    pub struct DiagonalParam {
        offset: i32, default(0), "Which diagonal: positive above the main one, negative below.";
        axis1: i32, default(0), "First axis of the matrices.";
        axis2: i32, default(1), "Second axis of the matrices.";
    }
}

params! {
    /// Parameters of `_npi_concatenate`.
    pub struct ConcatenateParam {
        num_args: i32, required.ge(1.0), "Number of inputs.";
        axis: String, default(String::new()), "The axis along which the inputs are joined; None is \
                                               not supported.";
        dim: i32, default(1), "The axis, where `axis` is not given.";
    }
}

params! {
    /// Parameters of `_np_diag`.
    pub struct DiagParam {
        k: i32, default(0), "Which diagonal: positive above the main one, negative below.";
    }
}

const ARRAY: &[(&str, &str)] = &[("a", "The array.")];
const ANY: &str = "Any dtype.";

fn flipped(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let s = &inputs[0];
    match &attrs.get::<FlipParam>().axis {
        Some(axes) => {
            axis_flags(axes, s)?; // refuses an axis named twice
            backwards(s, axes)
        }
        None => backwards(s, &(0..s.ndim() as i64).collect::<Vec<i64>>()),
    }
}

fn moved(source: &[i64], destination: &[i64], of: &Shape) -> Result<Vec<usize>> {
    if source.len() != destination.len() {
        let (source, expected) = (source.len(), "as many axes as source has");
        return Err(Error::argument(
            "destination",
            "length",
            destination.len(),
            format!("{source}: {expected}"),
        ));
    }
    let places = |axes: &[i64], name: &str| -> Result<Vec<usize>> {
        let places: Vec<usize> = axes.iter().map(|&a| of.axis(a)).collect::<Result<_>>()?;
        let repeats = (1..places.len()).any(|i| places[..i].contains(&places[i]));
        match repeats {
            true => Err(Error::invalid(name, Numbers(axes), "axes that differ")),
            false => Ok(places),
        }
    };
    let (from, to) = (places(source, "source")?, places(destination, "destination")?);
    let mut pairs: Vec<(usize, usize)> = to.into_iter().zip(from.iter().copied()).collect();
    pairs.sort_unstable();
    let mut order: Vec<usize> = (0..of.ndim()).filter(|axis| !from.contains(axis)).collect();
    for (at, axis) in pairs {
        order.insert(at, axis);
    }
    Ok(order)
}

fn orders(registry: &Registry) -> Vec<OpDef> {
    let transpose = original(registry, "transpose")
        .renamed("_np_transpose")
        .inputs_are(ARRAY)
        .taking(|p: &TransposeParam| {
            Ok(vec![("axes", p.axes.clone().unwrap_or_default().to_value())])
        })
        .doc(&text(
            "The array with its axes in another order.",
            ANY,
            "_np_transpose(nd.ones((2, 3))).shape\n(3, 2)",
        ));
    let [moveaxis, back] = reorders::<MoveParam>("_np_moveaxis", |attrs, of| {
        let p = attrs.get::<MoveParam>();
        moved(&p.source, &p.destination, of)
    });
    let example =
        "_np_moveaxis(nd.ones((2, 3, 4)), source=(0,), destination=(2,)).shape\n(3, 4, 2)";
    let moveaxis = moveaxis.inputs_are(ARRAY).doc(&text(
        "The array with some axes in other places; the others keep their order.",
        "Any dtype. An axis named twice is an error.",
        example,
    ));
    let flip =
        OpDef::new::<FlipParam>("_npi_flip").inputs_are(&[("data", "The array.")]).doc(&text(
            "The array with the order of elements along axes reversed.",
            ANY,
            "_npi_flip(nd.array([1, 2, 3]))\n[3. 2. 1.]",
        ));
    [vec![transpose, moveaxis, back], moving(flip, flipped)].concat()
}

/// The shape for extents of which one may be -1, to be inferred.
fn with_inferred(extents: Vec<i64>, from: &Shape) -> Result<Shape> {
    let refused = |why: &str| {
        Error::value(format!(
            "cannot reshape an array of shape {from} into {}: {why}",
            Numbers(&extents)
        ))
    };
    let open = extents.iter().filter(|&&d| d == -1).count();
    if open > 1 || extents.iter().any(|&d| d < -1) {
        return Err(refused("one extent may be -1, the others are at least 0"));
    }
    if !from.is_known() {
        return Ok(Shape::new(&extents));
    }
    let size = from.size() as i64;
    let known: Vec<i64> = extents.iter().copied().filter(|&d| d >= 0).collect();
    let rest = Shape::new(&known).checked_size()? as i64;
    let fits = if open == 0 { rest == size } else { rest > 0 && size % rest == 0 };
    if !fits {
        return Err(refused("expected as many elements"));
    }
    Ok(extents.iter().map(|&d| if d == -1 { size / rest } else { d }).collect())
}

/// The extents that the codes of `_npx_reshape` make of those of `from`: -1 is inferred, -2 copies
/// one, -3 drops one of 1, -4 copies all that are left, -5 merges two, -6 splits one.
fn coded(codes: &[i64], from: &Shape) -> Result<Vec<i64>> {
    let mut left = from.dims().iter().copied();
    let mut out = Vec::new();
    let refused = |code: i64, why: &str| {
        Error::value(format!("cannot reshape an array of shape {from}: code {code} {why}"))
    };
    let mut next = |code: i64| left.next().ok_or_else(|| refused(code, "has no axis left"));
    let mut codes = codes.iter().copied();
    while let Some(code) = codes.next() {
        match code {
            -1 => {
                let _ = next(code);
                out.push(-1);
            }
            -2 => out.push(next(code)?),
            -3 if next(code)? == 1 => {}
            -3 => return Err(refused(code, "drops an axis, expected one of extent 1")),
            -4 => {
                while let Ok(extent) = next(code) {
                    out.push(extent);
                }
            }
            -5 => out.push(next(code)?.saturating_mul(next(code)?)),
            -6 => {
                let (Some(a), Some(b)) = (codes.next(), codes.next()) else {
                    return Err(refused(code, "needs two numbers after it"));
                };
                let whole = next(code)?;
                let other = |d: i64| if d > 0 { whole / d } else { -1 };
                let (a, b) =
                    (if a == -1 { other(b) } else { a }, if b == -1 { other(a) } else { b });
                if a < 0 || b < 0 || a.saturating_mul(b) != whole {
                    return Err(refused(code, &format!("cannot split {whole} into {a} and {b}")));
                }
                out.extend([a, b]);
            }
            extent => {
                let _ = next(extent);
                out.push(extent);
            }
        }
    }
    Ok(out)
}

/// The codes from the last to the first; the two numbers of a split stay after it, exchanged.
fn reversed(codes: &[i64]) -> Vec<i64> {
    let mut out: Vec<i64> = Vec::new();
    let mut i = 0;
    while i < codes.len() {
        let take = if codes[i] == -6 { 3.min(codes.len() - i) } else { 1 };
        let mut group: Vec<i64> = codes[i..i + take].to_vec();
        group[1..].reverse();
        out.splice(0..0, group);
        i += take;
    }
    out
}

fn of_codes(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let p = attrs.get::<CodesParam>();
    if !from.is_known() {
        return Ok(Shape::unknown());
    }
    if !p.reverse {
        return with_inferred(coded(&p.newshape, from)?, from);
    }
    let turned: Shape = from.dims().iter().rev().copied().collect();
    let mut extents = coded(&reversed(&p.newshape), &turned)?;
    extents.reverse();
    with_inferred(extents, from)
}

fn reshapes(registry: &Registry) -> Vec<OpDef> {
    let plain = original(registry, "Reshape")
        .renamed("_np_reshape")
        .reading::<ReshapeParam>()
        .inputs_are(ARRAY)
        .doc(&text(
            "The elements in another shape.",
            "Any dtype. 0 is an extent of 0.",
            "_np_reshape(nd.ones((2, 3)), newshape=(3, -1)).shape\n(3, 2)",
        ));
    let plain = shaped_by(plain, |attrs, from| {
        with_inferred(attrs.get::<ReshapeParam>().newshape.to_vec(), from)
    });
    let codes = original(registry, "Reshape")
        .renamed("_npx_reshape")
        .aliases(&["_npi_reshape"])
        .reading::<CodesParam>()
        .inputs_are(ARRAY)
        .doc(&text(
            "The elements in another shape, given by codes.",
            "-1 is inferred, -2 copies an extent, -3 drops one of 1, -4 copies all that are left, \
             -5 merges two, -6 splits one into the two numbers that follow. Any dtype.",
            "_npx_reshape(nd.ones((2, 3, 4)), newshape=(-2, -5)).shape\n(2, 12)",
        ));
    vec![plain, shaped_by(codes, of_codes)]
}

fn broadcast_path(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, shape) = (&inputs[0], &attrs.get::<BroadcastParam>().shape);
    let Some(new) = shape.len().checked_sub(s.ndim()) else {
        return Err(Error::value(format!(
            "cannot broadcast shape {s} to {}: expected at most {} axes",
            shown(Numbers(shape)),
            shape.len()
        )));
    };
    let padded: Shape = std::iter::repeat_n(1, new).chain(s.dims().iter().copied()).collect();
    repeat_to(&padded, Dims::from_slice(shape))
}

fn copies(registry: &Registry) -> Vec<OpDef> {
    let copy = original(registry, "_copy").renamed("_np_copy").inputs_are(ARRAY).doc(&text(
        "A copy of the array.",
        ANY,
        "_np_copy(nd.ones((2,)))\n[1. 1.]",
    ));
    let squeeze =
        original(registry, "squeeze").renamed("_np_squeeze").inputs_are(ARRAY).doc(&text(
            "The array without axes of extent 1, all or those that are named.",
            "Any dtype. Naming an axis of another extent is an error.",
            "_np_squeeze(nd.ones((1, 2, 1))).shape\n(2,)",
        ));
    let broadcast = OpDef::new::<BroadcastParam>("_npi_broadcast_to")
        .inputs_are(&[("array", "The array.")])
        .doc(&text(
            "The array repeated to a shape, which may have more axes in front.",
            "Any dtype. The gradient sums over the repetitions.",
            "_npi_broadcast_to(nd.array([1, 2]), shape=(2, 2))\n[[1. 2.]\n [1. 2.]]",
        ));
    let mut all = vec![copy, shaped_by(squeeze, squeezed_to_any_rank)];
    all.extend(moving(broadcast, broadcast_path));
    all
}

fn joins(registry: &Registry) -> Vec<OpDef> {
    let concatenate = original(registry, "Concat")
        .renamed("_npi_concatenate")
        .outputs_are(&["out"])
        .taking(|p: &ConcatenateParam| {
            let refused = |_| Error::invalid("axis", &p.axis, "an integer");
            let dim: i32 = match p.axis.trim() {
                "" => p.dim,
                axis => axis.parse().map_err(refused)?,
            };
            Ok(vec![("num_args", Value::Int(p.num_args.into())), ("dim", Value::Int(dim.into()))])
        })
        .doc(&text(
            "The arrays one after the other along an axis.",
            "All other extents agree, and the dtypes.",
            "_npi_concatenate(nd.ones((1, 2)), nd.zeros((1, 2)), axis=0)\n[[1. 1.]\n [0. 0.]]",
        ));
    let stack = original(registry, "stack").renamed("_npi_stack").doc(&text(
        "The arrays, of one shape and dtype, along a new axis.",
        ANY,
        "_npi_stack(nd.ones((2,)), nd.zeros((2,)), axis=1)\n[[1. 0.]\n [1. 0.]]",
    ));
    vec![concatenate, stack]
}

/// The operator of diagonals for arrays of which `fits` holds.
fn of_rank(def: OpDef, fits: fn(usize) -> bool, expected: &'static str) -> OpDef {
    let infer = def.infer_shape.clone();
    def.infer_shape(move |attrs, inputs, outputs| {
        if inputs[0].rank_known() && !fits(inputs[0].ndim()) {
            return Err(Error::argument("data", "shape", &inputs[0], expected));
        }
        infer.as_ref().map_or(Ok(true), |infer| infer(attrs, inputs, outputs))
    })
}

fn diagonals(registry: &Registry) -> Vec<OpDef> {
    let diagonal = original(registry, "diag")
        .renamed("_np_diagonal")
        .taking(|p: &DiagonalParam| -> Result<Mapped> {
            let pairs = [("k", p.offset), ("axis1", p.axis1), ("axis2", p.axis2)];
            Ok(pairs.map(|(name, number)| (name, Value::Int(number.into()))).into())
        })
        .doc(&text(
            "The diagonals of the matrices in two axes, as the last axis.",
            ANY,
            "_np_diagonal(nd.array([[1, 2], [3, 4]]))\n[1. 4.]",
        ));
    let diag = original(registry, "diag")
        .renamed("_np_diag")
        .taking(|p: &DiagParam| Ok(vec![("k", Value::Int(p.k.into()))]))
        .doc(&text(
            "The diagonal of a matrix, or a matrix with the vector on its diagonal.",
            ANY,
            "_np_diag(nd.array([1, 2]))\n[[1. 0.]\n [0. 2.]]",
        ));
    vec![
        of_rank(diagonal, |rank| rank >= 2, "at least two axes"),
        of_rank(diag, |rank| rank == 1 || rank == 2, "one or two axes"),
    ]
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    let families = [orders, reshapes, copies, joins, diagonals];
    families.iter().flat_map(|family| family(registry)).collect()
}
