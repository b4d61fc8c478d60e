//! Products of matrices in batches with factors (`linalg`), and those of attention over interleaved
//! projections.

use super::dense::{Layout, Product, left, right};
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Call, Compare, Grid, Kernel, Launcher, Match};
use crate::ops::linalg::products::{SyrkParam, options};
use crate::ops::nn::attention::{
    ENCDEC_QK, ENCDEC_VALUES, Kind, Projection, SELF_QK, SELF_VALUES, extents, heads, place,
};
use crate::tensor::View;

/// Rows are the last axis but one.
fn by_rows(kernel: Kernel) -> Vec<Kernel> {
    vec![kernel.only(Match::Attr("axis".into(), Compare::Eq, "-2".into())).multiplies()]
}

/// Matrices of a view: their number, rows and columns.
fn matrices(view: &View) -> [usize; 3] {
    let (s, rank) = (view.shape(), view.ndim());
    [s.product(0..rank - 2), s.product(rank - 2..rank - 1), s.product(rank - 1..rank)]
}

fn multiply(call: &Call<'_>, launcher: &mut dyn Launcher, add: i32) -> Result<()> {
    let (o, out) = (options(call.attrs), &call.outputs[0]);
    let ([count, m, n], [_, rows, columns]) = (matrices(out), matrices(&call.inputs[0]));
    let k = if o.turn_a { rows } else { columns };
    let a = left(call.inputs[0].ptr(), o.turn_a, (m, k));
    let b = right(call.inputs[1].ptr(), o.turn_b, (k, n));
    let mut product = Product::new(out.dtype(), [m, n, k], count, a, b, out.ptr());
    product.alpha = o.alpha;
    product.issue(launcher, 0, add)
}

fn gemm2() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("A", FLOATS)];
    by_rows(kernel("dense", &["matmul<$0>"], types, |call, launcher| {
        multiply(call, launcher, add(call, 0))
    }))
}

/// `beta C` first, to which the product is added.
fn gemm() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("A", FLOATS)];
    by_rows(kernel("dense", &["matmul<$0>", "times<$0>"], types, |call, launcher| {
        let (c, y, n) = (&call.inputs[2], &call.outputs[0], call.outputs[0].size());
        let beta = options(call.attrs).beta;
        let mut args = args![n as i64, c.ptr(), y.ptr(), beta, add(call, 0)];
        launcher.launch(1, Grid::over(n), &mut args)?;
        multiply(call, launcher, 1)
    }))
}

fn syrk() -> Vec<Kernel> {
    let made = kernel("dense", &["matmul<$0>"], &[("A", FLOATS)], |call, launcher| {
        let (p, a, out) = (call.attrs.get::<SyrkParam>(), &call.inputs[0], &call.outputs[0]);
        let [count, rows, columns] = matrices(a);
        let (m, k) = if p.transpose { (columns, rows) } else { (rows, columns) };
        let one = left(a.ptr(), p.transpose, (m, k));
        let other = right(a.ptr(), !p.transpose, (k, m));
        let mut product = Product::new(out.dtype(), [m, m, k], count, one, other, out.ptr());
        product.alpha = p.alpha;
        product.issue(launcher, 0, add(call, 0))
    });
    vec![made.multiplies()]
}

/// The matrices (L, d) of all images and heads among interleaved projections: their address, the
/// step of rows, and the step from one to the next.
struct Projected {
    at: *mut u8,
    row: i64,
    stack: i64,
}

impl Projected {
    fn of(view: &View, place: Projection, heads: usize) -> Self {
        let (batch, width) = (view.dims()[1], view.dims()[2]);
        let d = width / (heads * place.of) as i64;
        let at = view.ptr().wrapping_add(place.which * d as usize * view.dtype().size());
        Projected { at, row: batch * width, stack: place.of as i64 * d }
    }

    /// With rows that the product keeps.
    fn by_rows(&self) -> (*mut u8, Layout) {
        (self.at, Layout { row: self.row, near: 1, far: 0, stack: self.stack })
    }

    /// With columns that the product keeps.
    fn by_columns(&self) -> (*mut u8, Layout) {
        (self.at, Layout { row: 1, near: self.row, far: 0, stack: self.stack })
    }
}

/// The scores (rows, L) of all images and heads, by rows or by columns.
fn scores(view: &View, by_rows: bool) -> (*mut u8, Layout) {
    let (rows, columns) = (view.dims()[1], view.dims()[2]);
    let stack = rows * columns;
    let layout =
        if by_rows { Layout::rows(columns, stack) } else { Layout::columns(columns, stack) };
    (view.ptr(), layout)
}

/// A product that goes to projections.
fn into(
    dtype: DType,
    extents: [usize; 3],
    count: usize,
    a: (*mut u8, Layout),
    b: (*mut u8, Layout),
    to: &Projected,
) -> Product {
    let mut product = Product::new(dtype, extents, count, a, b, to.at);
    (product.c_row, product.c_stack) = (to.row, to.stack);
    product
}

fn attention(kind: Kind) -> Vec<Kernel> {
    let tensor = match kind {
        Kind::Scores { queries: Projection { of: 1, .. }, .. } => "queries",
        Kind::Values(Projection { of: 2, .. }) => "keys_values",
        Kind::Scores { keys: Projection { of: 2, .. }, .. } => "keys_values",
        _ => "queries_keys_values",
    };
    let made = kernel("dense", &["matmul<$0>"], &[(tensor, FLOATS)], move |call, launcher| {
        let (out, heads) = (&call.outputs[0], heads(call.attrs) as usize);
        let rows = out.dims()[usize::from(matches!(kind, Kind::Scores { .. }))] as usize;
        let [count, m, l, d] = extents(kind, heads, call.inputs, rows);
        let of = |p: Projection| Projected::of(&call.inputs[p.input], p, heads);
        let dtype = out.dtype();
        let product = match kind {
            Kind::Scores { queries, keys } => {
                let (a, b) = (of(queries).by_rows(), of(keys).by_rows());
                let mut product = Product::new(dtype, [m, l, d], count, a, b, out.ptr());
                product.alpha = 1.0 / (d as f64).sqrt();
                product
            }
            Kind::Values(values) => {
                let (a, b) = (scores(&call.inputs[1], true), of(values).by_columns());
                into(dtype, [m, d, l], count, a, b, &Projected::of(out, place(0, 1, 0), heads))
            }
        };
        product.issue(launcher, 0, add(call, 0))
    });
    vec![made.multiplies()]
}

/// The gradient of a product of attention by its interleaved projections; the columns of those that
/// it does not read are zero.
fn attention_back(kind: Kind) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    let made = Kernel::cuda("dense", &["matmul<$0>"], types, move |call, launcher| {
        let (g, inputs, dtype) = (&call.inputs[0], &call.inputs[1..], call.inputs[0].dtype());
        let heads = heads(call.attrs) as usize;
        let rows = g.dims()[usize::from(matches!(kind, Kind::Scores { .. }))] as usize;
        let [count, m, l, d] = extents(kind, heads, inputs, rows);
        for (i, out) in call.outputs.iter().enumerate() {
            if wanted(call, i) && add(call, i) == 0 {
                launcher.clear(out.ptr(), out.size_bytes())?;
            }
        }
        let of = |p: Projection| Projected::of(&inputs[p.input], p, heads);
        let to = |p: Projection| Projected::of(&call.outputs[p.input], p, heads);
        let mut products: Vec<(usize, Product)> = Vec::new();
        match kind {
            Kind::Scores { queries, keys } => {
                let (a, b) = (scores(g, true), of(keys).by_columns());
                products.push((queries.input, into(dtype, [m, d, l], count, a, b, &to(queries))));
                let (a, b) = (scores(g, false), of(queries).by_columns());
                products.push((keys.input, into(dtype, [l, d, m], count, a, b, &to(keys))));
                for (_, product) in &mut products {
                    product.alpha = 1.0 / (d as f64).sqrt();
                }
            }
            Kind::Values(values) => {
                let grads = Projected::of(g, place(0, 1, 0), heads);
                let (a, b) = (scores(&inputs[1], false), grads.by_columns());
                products.push((values.input, into(dtype, [l, d, m], count, a, b, &to(values))));
                let (a, b) = (grads.by_rows(), of(values).by_rows());
                let out = call.outputs[1].ptr();
                products.push((1, Product::new(dtype, [m, l, d], count, a, b, out)));
            }
        }
        let mut wanted = products.iter().filter(|(i, _)| wanted(call, *i));
        wanted.try_for_each(|(_, product)| product.issue(launcher, 0, 1))
    });
    vec![made.multiplies()]
}

pub const TABLE: &[KernelsOf] = &[
    ("_linalg_gemm", gemm),
    ("_linalg_gemm2", gemm2),
    ("_linalg_syrk", syrk),
    ("_contrib_interleaved_matmul_selfatt_qk", || attention(SELF_QK)),
    ("_contrib_interleaved_matmul_selfatt_valatt", || attention(SELF_VALUES)),
    ("_contrib_interleaved_matmul_encdec_qk", || attention(ENCDEC_QK)),
    ("_contrib_interleaved_matmul_encdec_valatt", || attention(ENCDEC_VALUES)),
    ("_backward_interleaved_matmul_selfatt_qk", || attention_back(SELF_QK)),
    ("_backward_interleaved_matmul_selfatt_valatt", || attention_back(SELF_VALUES)),
    ("_backward_interleaved_matmul_encdec_qk", || attention_back(ENCDEC_QK)),
    ("_backward_interleaved_matmul_encdec_valatt", || attention_back(ENCDEC_VALUES)),
];
