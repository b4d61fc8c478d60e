//! `einsum` and `tensordot`, and the plans of the cases of `dot` and `matmul` that are not the
//! product of two matrices.

use super::contraction::{Label, Plan, PlanFn, by_plan, infer_shape};
use super::{kernel, only, text};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::infer::same_type;
use crate::operator::{Attrs, Gradient, OpDef, ParamStruct, Registry, Tuple};
use crate::params;
use crate::shape::Shape;

params! {
    /// Parameters of `_npi_einsum`.
    pub struct EinsumParam {
        num_args: i32, required.ge(1.0), "Number of inputs.";
        subscripts: String, default(String::new()), "Labels of the operands' axes, and after -> of \
                                                     the output's.";
        optimize: i32, default(0), "Accepted, without effect: operands are multiplied from the \
                                    left.";
    }
}

params! {
    /// Parameters of `_npi_tensordot`.
    pub struct TensordotParam {
        a_axes_summed: Tuple, required, "Axes of the first array that are summed over.";
        b_axes_summed: Tuple, required, "The axes of the second that go with them.";
    }
}

params! {
    /// Parameters of `_npi_tensordot_int_axes`.
    pub struct TensordotCountParam {
        axes: i32, required.ge(0.0), "How many axes are summed over: the last of a, the first of \
                                      b.";
    }
}

fn contracting<P: ParamStruct>(name: &str, back: &str, plan: PlanFn) -> [OpDef; 2] {
    let [forward, backward] = by_plan(plan);
    let def = OpDef::new::<P>(name)
        .infer_shape(infer_shape(plan))
        .infer_type(same_type)
        .expensive()
        .gradient(Gradient::use_in(back))
        .kernel(kernel(move |call| forward(call)));
    [def, OpDef::new::<P>(back).kernel(kernel(move |call| backward(call)))]
}

/// The labels of `n` axes that stand for the dots: of the last axes the same.
fn dots(n: usize) -> impl Iterator<Item = Label> {
    (0..n as Label).rev().map(|i| u32::from(char::MAX) + 1 + i)
}

/// The labels that a text gives to `rank` axes.
fn labelled(text: &str, rank: usize) -> Result<Vec<Label>> {
    let refused = |why: &str| Error::invalid("subscripts", text, why);
    let (before, after) = match text.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    };
    let letters = |part: &str| -> Result<Vec<Label>> {
        match part.chars().find(|c| !c.is_ascii_alphabetic()) {
            Some(c) => Err(refused(&format!("letters and one '...' per operand, not '{c}'"))),
            None => Ok(part.chars().map(u32::from).collect()),
        }
    };
    let (mut labels, last) = (letters(before)?, letters(after.unwrap_or(""))?);
    let named = labels.len() + last.len();
    if named > rank || (after.is_none() && named < rank) {
        return Err(refused(&format!("a label for each of {rank} axes")));
    }
    labels.extend(dots(rank - named));
    labels.extend(last);
    Ok(labels)
}

fn einsum_plan(attrs: &Attrs, ranks: &[usize]) -> Result<Plan> {
    let given = attrs.get::<EinsumParam>().subscripts.replace(' ', "");
    let (left, right) = match given.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&given[..], None),
    };
    let texts: Vec<&str> = left.split(',').collect();
    if texts.len() != ranks.len() {
        let expected = format!("{} operands between commas", ranks.len());
        return Err(Error::invalid("subscripts", &given, expected));
    }
    let pairs = texts.iter().zip(ranks);
    let operands: Vec<Vec<Label>> =
        pairs.map(|(text, rank)| labelled(text, *rank)).collect::<Result<_>>()?;
    let all: Vec<Label> = operands.concat();
    let is_dot = |l: &Label| *l > u32::from(char::MAX);
    let most = all.iter().filter(|l| is_dot(l)).max().map_or(0, |l| l - u32::from(char::MAX));
    let out = match right {
        Some(text) if most > 0 && !text.contains("...") => {
            let expected = "'...' in the output, as the operands have it";
            return Err(Error::invalid("subscripts", &given, expected));
        }
        Some(text) => {
            let dotted = if text.contains("...") { most as usize } else { 0 };
            labelled(text, text.replace("...", "").len() + dotted)?
        }
        None => {
            let mut once: Vec<Label> = all.iter().copied().filter(|l| !is_dot(l)).collect();
            once.retain(|l| all.iter().filter(|other| *other == l).count() == 1);
            once.sort_unstable();
            dots(most as usize).chain(once).collect()
        }
    };
    let wrong = out.iter().enumerate().any(|(i, l)| !all.contains(l) || out[..i].contains(l));
    if wrong {
        let expected = "labels of the output that the operands have, each once";
        return Err(Error::invalid("subscripts", &given, expected));
    }
    Ok(Plan { operands, out })
}

/// The plan of two operands of which these axes are summed over in pairs.
fn paired(ranks: &[usize], a: &[usize], b: &[usize]) -> Plan {
    let first: Vec<Label> = (0..ranks[0] as Label).collect();
    let own = |i: usize| ranks[0] as Label + i as Label;
    let pair = |i: usize| b.iter().position(|axis| *axis == i).map(|at| a[at] as Label);
    let second: Vec<Label> = (0..ranks[1]).map(|i| pair(i).unwrap_or(own(i))).collect();
    let kept = |l: &Label| !first.contains(l) || !second.contains(l);
    let out = first.iter().chain(&second).copied().filter(kept).collect();
    Plan { operands: vec![first, second], out }
}

fn tensordot_plan(attrs: &Attrs, ranks: &[usize]) -> Result<Plan> {
    let p = attrs.get::<TensordotParam>();
    let places = |axes: &Tuple, rank: usize, name: &str| -> Result<Vec<usize>> {
        let of = Shape::of_rank(rank);
        let places: Vec<usize> = axes.iter().map(|a| of.axis(*a)).collect::<Result<_>>()?;
        match (1..places.len()).find(|i| places[..*i].contains(&places[*i])) {
            Some(i) => Err(Error::invalid(name, axes[i], "axes that differ")),
            None => Ok(places),
        }
    };
    let a = places(&p.a_axes_summed, ranks[0], "a_axes_summed")?;
    let b = places(&p.b_axes_summed, ranks[1], "b_axes_summed")?;
    match a.len() == b.len() {
        true => Ok(paired(ranks, &a, &b)),
        false => Err(Error::invalid(
            "number of axes in b_axes_summed",
            b.len(),
            format!("{}, as in a_axes_summed", a.len()),
        )),
    }
}

fn tensordot_count_plan(attrs: &Attrs, ranks: &[usize]) -> Result<Plan> {
    let n = attrs.get::<TensordotCountParam>().axes as usize;
    if ranks.iter().any(|rank| *rank < n) {
        let least = ranks.iter().min().copied().unwrap_or(0);
        return Err(Error::invalid("axes", n, format!("at most {least}, the number of axes")));
    }
    let (a, b): (Vec<usize>, Vec<usize>) = ((ranks[0] - n..ranks[0]).collect(), (0..n).collect());
    Ok(paired(ranks, &a, &b))
}

/// `dot`: the last axis of `a` with the last but one of `b`, or its only one; numbers scale.
pub fn dot_plan(_: &Attrs, ranks: &[usize]) -> Result<Plan> {
    Ok(match (ranks[0], ranks[1]) {
        (0, _) | (_, 0) => paired(ranks, &[], &[]),
        (a, b) => paired(ranks, &[a - 1], &[b.saturating_sub(2)]),
    })
}

/// `matmul`: stacks of matrices, which are repeated; a vector is a row on the left and a column on
/// the right.
pub fn matmul_plan(_: &Attrs, ranks: &[usize]) -> Result<Plan> {
    if let Some(i) = ranks.iter().position(|rank| *rank == 0) {
        let expected = "at least one axis";
        return Err(Error::argument(["a", "b"][i], "shape", "()", expected));
    }
    let (inner, row, column) = (0, 1, 2);
    let (a, b) = (ranks[0].saturating_sub(2), ranks[1].saturating_sub(2));
    let mut first: Vec<Label> = dots(a).collect();
    let mut second: Vec<Label> = dots(b).collect();
    let mut out: Vec<Label> = dots(a.max(b)).collect();
    if ranks[0] > 1 {
        first.push(row);
        out.push(row);
    }
    first.push(inner);
    second.push(inner);
    if ranks[1] > 1 {
        second.push(column);
        out.push(column);
    }
    Ok(Plan { operands: vec![first, second], out })
}

const PAIR: &[(&str, &str)] = &[("a", "The first array."), ("b", "The second array.")];

fn is_float(dtype: DType) -> bool {
    dtype.is_float()
}

fn einsum() -> [OpDef; 2] {
    let [forward, backward] =
        contracting::<EinsumParam>("_npi_einsum", "_backward_npi_einsum", einsum_plan);
    let forward = forward.variadic("num_args", "The operands.").doc(&text(
        "The sum of products of the operands over axes with labels.",
        "out[o] is the sum, over all labels that the output lacks, of the products of the \
         operands' elements. Letters label axes, ``...`` stands for any others, a label twice in \
         one operand is its diagonal; without ``->`` the output has the labels that occur once, in \
         order. Axes of one label have one extent, or 1. One dtype, a number.",
        "_npi_einsum(nd.array([[1, 2], [3, 4]]), nd.array([1, 1]), subscripts='ij,j->i')\n[3. 7.]",
    ));
    [only(forward, |dtype| dtype != DType::Bool, "a number, not bool"), backward]
}

fn tensordots() -> Vec<OpDef> {
    let notes =
        "The other axes of ``a``, then those of ``b``, are the output's. One dtype, a float.";
    let [pairs, pairs_back] =
        contracting::<TensordotParam>("_npi_tensordot", "_backward_npi_tensordot", tensordot_plan);
    let pairs = pairs.inputs_are(PAIR).doc(&text(
        "The sum of products over pairs of axes.",
        notes,
        "_npi_tensordot(nd.ones((2, 3)), nd.ones((3, 2)), a_axes_summed=(1,), \
         b_axes_summed=(0,))\n[[3. 3.]\n [3. 3.]]",
    ));
    let [count, count_back] = contracting::<TensordotCountParam>(
        "_npi_tensordot_int_axes",
        "_backward_npi_tensordot_int_axes",
        tensordot_count_plan,
    );
    let count = count.inputs_are(PAIR).doc(&text(
        "The sum of products over the last axes of one array and the first of another.",
        notes,
        "_npi_tensordot_int_axes(nd.ones((2, 3)), nd.ones((3, 2)), axes=1)\n[[3. 3.]\n [3. 3.]]",
    ));
    vec![only(pairs, is_float, "a float"), pairs_back, only(count, is_float, "a float"), count_back]
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let mut all: Vec<OpDef> = einsum().into();
    all.extend(tensordots());
    all
}
