//! Sums of products over axes with labels: what `einsum` and its kin compute.
//!
//! Axes of the operands have labels. Axes of one label have one extent or are repeated; those that
//! the output lacks are summed over. Operands are multiplied from the left to the right: two of
//! them become stacks of matrices, and the kernels of products multiply these. The gradient of an
//! operand is the sum of products of the output gradient and the other operands.

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::copy::{Buffer, copy, fill};
use crate::kernels::gemm::Mat;
use crate::kernels::layout::copy_strided;
use crate::kernels::reduce::{Reduction, reduce};
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, NativeFn, OpReq};
use crate::ops::nn::dot::products;
use crate::ops::nn::widening::widened;
use crate::shape::{Dims, Shape};
use crate::tensor::View;
use crate::with_dtype;
use std::collections::BTreeMap;
use std::sync::Arc;

pub type Label = u32;

/// The labels of the axes of operands and output.
pub struct Plan {
    pub operands: Vec<Vec<Label>>,
    pub out: Vec<Label>,
}

/// A plan from the parameters and the numbers of axes.
pub type PlanFn = fn(&Attrs, &[usize]) -> Result<Plan>;
type Extents = BTreeMap<Label, i64>;

impl Plan {
    /// The extents of all labels, -1 where unknown.
    fn extents(&self, shapes: &[Shape]) -> Result<Extents> {
        let mut extents = Extents::new();
        for (labels, shape) in self.operands.iter().zip(shapes) {
            for (at, (&label, &extent)) in labels.iter().zip(shape.dims()).enumerate() {
                let first = labels.iter().position(|l| *l == label).unwrap_or(at);
                if extent >= 0 && shape.dims()[first] >= 0 && extent != shape.dims()[first] {
                    let expected = "one extent where an operand has a label twice";
                    return Err(Error::invalid("shape", shape, expected));
                }
                let known = extents.entry(label).or_insert(extent);
                *known = match (*known, extent) {
                    (a, b) if a == b => a,
                    (1, b) => b,
                    (a, 1) => a,
                    (-1, b) => b,
                    (a, -1) => a,
                    (a, b) => {
                        let all: Vec<_> = shapes.iter().map(Shape::to_string).collect();
                        let expected = format!(
                            "one extent, or 1, where axes are paired; these have {a} and {b}"
                        );
                        return Err(Error::invalid("shapes", all.join(", "), expected));
                    }
                };
            }
        }
        Ok(extents)
    }

    fn shape(&self, shapes: &[Shape]) -> Result<Shape> {
        let extents = self.extents(shapes)?;
        Ok(self.out.iter().map(|label| extents[label]).collect())
    }
}

/// An array with a label for each axis, all different.
struct Term {
    labels: Vec<Label>,
    view: View,
    /// The memory of the view, unless it is an operand's.
    _room: Option<Buffer>,
}

impl Term {
    /// An operand: of axes with one label the diagonal, without axes that are repeated.
    fn of(view: &View, given: &[Label], extents: &Extents) -> Term {
        let (mut labels, mut dims, mut strides) = (Vec::new(), Dims::new(), Dims::new());
        for ((&label, &extent), &stride) in given.iter().zip(view.dims()).zip(view.strides()) {
            if extent == 1 && extents[&label] != 1 {
                continue;
            }
            match labels.iter().position(|l| *l == label) {
                Some(at) => strides[at] += stride,
                None => {
                    labels.push(label);
                    dims.push(extent);
                    strides.push(stride);
                }
            }
        }
        let shape = Shape::from(&dims[..]);
        // SAFETY: the elements of the diagonals lie in the operand.
        let view = unsafe { View::with_strides(view.ptr(), shape, strides, view.dtype()) };
        Term { labels, view, _room: None }
    }

    /// Memory for a term. Products of some operands may be greater than all arrays of the call.
    fn room(labels: Vec<Label>, shape: Shape, dtype: DType) -> Result<Term> {
        let bytes = shape.size().saturating_mul(dtype.size());
        let Some(mut room) = Buffer::try_new(bytes) else {
            let expected = "operands in an order whose products fit into memory";
            return Err(Error::invalid("shape of a product of operands", shape, expected));
        };
        Ok(Term { labels, view: room.view(0, shape, dtype), _room: Some(room) })
    }

    fn extent(&self, label: Label) -> i64 {
        self.labels.iter().position(|l| *l == label).map_or(1, |at| self.view.dims()[at])
    }

    /// Its elements along these labels, repeated along those that it lacks.
    fn along(&self, labels: &[Label], dims: &[i64]) -> View {
        let at = |label: &Label| self.labels.iter().position(|l| l == label);
        let strides = labels.iter().map(|l| at(l).map_or(0, |at| self.view.strides()[at]));
        let (view, strides) = (&self.view, strides.collect());
        // SAFETY: the strides are the view's own, or 0.
        unsafe { View::with_strides(view.ptr(), Shape::new(dims), strides, view.dtype()) }
    }

    /// The row-major array of its elements with these axes, all of its own.
    fn ordered(self, labels: &[Label]) -> Result<Term> {
        if self.labels == labels && self.view.is_contiguous() {
            return Ok(self);
        }
        let dims: Vec<i64> = labels.iter().map(|l| self.extent(*l)).collect();
        let to = Term::room(labels.to_vec(), Shape::new(&dims), self.view.dtype())?;
        if to.view.size() > 0 {
            // SAFETY: the same elements in another order, in memory of their own.
            unsafe { copy_strided(&self.along(labels, &dims), &to.view) };
        }
        Ok(to)
    }

    /// The row-major array of the sums over all axes but these.
    fn summed(self, kept: &[Label]) -> Result<Term> {
        let gone: Vec<Label> = self.labels.iter().copied().filter(|l| !kept.contains(l)).collect();
        if gone.is_empty() {
            return self.ordered(kept);
        }
        let full = self.ordered(&[kept, &gone].concat())?;
        let flags: Vec<bool> = (0..full.labels.len()).map(|i| i >= kept.len()).collect();
        let shape = Shape::new(&full.view.dims()[..kept.len()]);
        let to = Term::room(kept.to_vec(), shape, full.view.dtype())?;
        reduce(Reduction::Sum, &full.view, &flags, &to.view);
        Ok(to)
    }
}

/// The product of two terms, summed over what is not `kept`.
fn multiplied(a: Term, b: Term, kept: &[Label]) -> Result<Term> {
    let shared = |l: &Label| a.labels.contains(l) && b.labels.contains(l);
    let of = |labels: &[Label], keep: &dyn Fn(&Label) -> bool| -> Vec<Label> {
        labels.iter().copied().filter(|l| keep(l)).collect()
    };
    let stack = of(&a.labels, &|l| shared(l) && kept.contains(l));
    let inner = of(&a.labels, &|l| shared(l) && !kept.contains(l));
    let rows = of(&a.labels, &|l| !shared(l) && kept.contains(l));
    let columns = of(&b.labels, &|l| !shared(l) && kept.contains(l));
    let size = |term: &Term, labels: &[Label]| -> usize {
        labels.iter().map(|l| term.extent(*l) as usize).product()
    };
    let count = size(&a, &stack);
    let (m, n, k) = (size(&a, &rows), size(&b, &columns), size(&a, &inner));
    let out = [&stack[..], &rows, &columns].concat();
    let one = |l: &Label| if a.labels.contains(l) { a.extent(*l) } else { b.extent(*l) };
    let to = Term::room(out.clone(), out.iter().map(one).collect(), a.view.dtype())?;
    let a = a.summed(&[&stack[..], &rows, &inner].concat())?;
    let b = b.summed(&[&stack[..], &inner, &columns].concat())?;
    match to.view.dtype() {
        _ if k == 0 => fill(&to.view, 0.0),
        DType::F32 => multiply::<f32>(count, (m, n, k), [&a, &b, &to]),
        DType::F64 => multiply::<f64>(count, (m, n, k), [&a, &b, &to]),
        _ => multiply_whole(count, (m, n, k), [&a, &b, &to]),
    }
    Ok(to)
}

fn multiply<T: crate::kernels::real::Real>(
    count: usize,
    (m, n, k): (usize, usize, usize),
    [a, b, to]: [&Term; 3],
) {
    let mat = |term: &Term, width| Mat::rows(term.view.as_ptr::<T>(), width);
    products(count, (m, n, k), [mat(a, k), mat(b, n), mat(to, n)]);
}

/// The same for integers, which wrap.
fn multiply_whole(count: usize, (m, n, k): (usize, usize, usize), [a, b, to]: [&Term; 3]) {
    with_dtype!(to.view.dtype(), T => {
        // SAFETY: the terms hold these matrices, and the last one is apart from the others.
        let (a, b, to) = unsafe {
            (a.view.slice::<T>(), b.view.slice::<T>(), to.view.slice_mut::<T>())
        };
        for (at, to) in to.iter_mut().enumerate().take(count * m * n) {
            let (i, row, column) = (at / (m * n), at / n % m, at % n);
            let (a, b) = (&a[(i * m + row) * k..], &b[i * k * n + column..]);
            let sum = (0..k).fold(0i64, |sum, j| {
                sum.wrapping_add(a[j].to_int().wrapping_mul(b[j * n].to_int()))
            });
            *to = T::from_int(sum);
        }
    });
}

/// The sum of products of terms, from the left, with the axes `out`.
fn evaluate(first: Term, others: Vec<Term>, out: &[Label]) -> Result<Term> {
    let (mut result, mut left) = (first, others.into_iter());
    while let Some(next) = left.next() {
        let later = left.as_slice().iter().flat_map(|term| term.labels.iter().copied());
        let kept: Vec<Label> = out.iter().copied().chain(later).collect();
        result = multiplied(result, next, &kept)?;
    }
    result.summed(out)
}

fn forward(plan: &Plan, call: &Call<'_>) -> Result<()> {
    let shapes: Vec<Shape> = call.inputs.iter().map(|view| view.shape().clone()).collect();
    let extents = plan.extents(&shapes)?;
    let operands = call.inputs.iter().zip(&plan.operands);
    let mut terms = operands.map(|(view, labels)| Term::of(view, labels, &extents));
    if let Some(first) = terms.next() {
        let result = evaluate(first, terms.collect(), &plan.out)?;
        copy(&result.view, &call.outputs[0]);
    }
    Ok(())
}

/// Inputs are the output gradient and the operands.
fn backward(plan: &Plan, call: &Call<'_>) -> Result<()> {
    let operands = &call.inputs[1..];
    let shapes: Vec<Shape> = operands.iter().map(|view| view.shape().clone()).collect();
    let extents = plan.extents(&shapes)?;
    for (i, to) in call.outputs.iter().enumerate() {
        if call.req[i] == OpReq::Null || to.size() == 0 {
            continue;
        }
        let g = Term::of(&call.inputs[0], &plan.out, &extents);
        let others = operands.iter().zip(&plan.operands).enumerate().filter(|(j, _)| *j != i);
        let terms: Vec<Term> =
            others.map(|(_, (view, labels))| Term::of(view, labels, &extents)).collect();
        fill(to, 0.0);
        let target = Term::of(to, &plan.operands[i], &extents);
        let there =
            |l: &Label| std::iter::once(&g).chain(&terms).any(|term| term.labels.contains(l));
        let found: Vec<Label> = target.labels.iter().copied().filter(there).collect();
        let result = evaluate(g, terms, &found)?;
        // SAFETY: the diagonal is part of the output, which overlaps nothing that is read.
        unsafe { copy_strided(&result.along(&target.labels, target.view.dims()), &target.view) };
    }
    Ok(())
}

/// A kernel that follows a plan; with `skip` inputs before the operands.
fn on_plan(
    plan: PlanFn,
    skip: usize,
    run: fn(&Plan, &Call<'_>) -> Result<()>,
) -> impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static {
    move |call| {
        let ranks: Vec<usize> = call.inputs[skip..].iter().map(View::ndim).collect();
        let plan = plan(call.attrs, &ranks)?;
        widened(call, |call| run(&plan, call))
    }
}

/// The output's shape by a plan, once the numbers of axes are known.
pub fn shape_by(plan: PlanFn, attrs: &Attrs, inputs: &[Shape]) -> Result<Shape> {
    let ranks: Vec<usize> = inputs.iter().map(Shape::ndim).collect();
    plan(attrs, &ranks)?.shape(inputs)
}

pub fn infer_shape(
    plan: PlanFn,
) -> impl Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> + Send + Sync + 'static {
    move |attrs, inputs, outputs| {
        if inputs.iter().all(Shape::rank_known) {
            let shape = shape_by(plan, attrs, inputs)?;
            assign_shape(&mut outputs[0], "output", &shape)?;
        }
        Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
    }
}

/// The computations of a plan, forward and backward, for an operator that has others for most
/// calls.
pub fn by_plan(plan: PlanFn) -> [NativeFn; 2] {
    [Arc::new(on_plan(plan, 0, forward)), Arc::new(on_plan(plan, 1, backward))]
}
