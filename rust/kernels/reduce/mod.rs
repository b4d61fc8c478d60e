//! Reductions over any set of axes.
//!
//! Axes are merged into runs that are all kept or all reduced. Where the innermost run is reduced,
//! each output element is made of rows (`rows`); where it is kept, a row of outputs takes in
//! whole rows (`columns`). The position of the greatest or least element is found along one axis
//! (`positions`).
//!
//! **Accuracy.** A sum of `n` elements is a tree: leaves of at most 64 additions in a row, then
//! pairs. So an element passes through at most `DEPTH(n) = 96 + log2(n)` additions, and the error
//! of a sum is at most `DEPTH(n) * u * sum(|x|)`, where `u` is half a unit in the last place of the
//! accumulator (2^-24 in float32). (N. Higham, The Accuracy of Floating Point Summation, SIAM J.
//! Sci. Comput. 14, 1993.)
//!
//! **Determinism.** Work is split by shapes only: results have the same bits for any number of
//! threads.

mod columns;
mod fold;
mod positions;
mod rows;
#[cfg(test)]
mod tests;

use super::parallel::{Shared, parallel_for};
use super::scratch::with_scratch;
use crate::dtype::DType;
use crate::tensor::View;
use crate::with_dtype;
use columns::{Matrices, Pointers, fold_columns, levels};
pub use fold::Accumulate;
use fold::*;
use half::f16;
pub use positions::positions;
use rows::{fold_rows, fold_scattered, total};

/// What is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Sum,
    /// The sum divided by the number of elements reduced.
    Mean,
    Product,
    Max,
    Min,
    /// The sum with NaN as 0.
    NanSum,
    /// The product with NaN as 1.
    NanProduct,
    /// The sum of absolute values.
    Norm1,
    /// The root of the sum of squares. It overflows only where the root itself does.
    Norm2,
}

/// Runs of axes: extent and whether they are reduced, outermost first; axes of extent 1 are left
/// out.
fn runs(dims: &[i64], reduced: &[bool]) -> Vec<(usize, bool)> {
    let mut runs: Vec<(usize, bool)> = Vec::new();
    for (&d, &r) in dims.iter().zip(reduced) {
        match runs.last_mut() {
            _ if d == 1 => {}
            Some((n, same)) if *same == r => *n *= d as usize,
            _ => runs.push((d as usize, r)),
        }
    }
    runs
}

/// Offsets in the input of all combinations of the runs with `flag`; an element of the innermost
/// run has `size` elements of the input.
fn offsets(runs: &[(usize, bool)], flag: bool, size: usize) -> Vec<usize> {
    let mut stride = size;
    let mut at = vec![0];
    // From the innermost run outwards; earlier runs vary slowest.
    for &(n, r) in runs.iter().rev() {
        if r == flag {
            at = (0..n).flat_map(|k| at.iter().map(move |a| a + k * stride)).collect();
        }
        stride *= n;
    }
    at
}

/// Runs `$body` with the alias `$T` set to the element type of a floating-point dtype, and for
/// every other dtype `$other`: every type that a reduction is compiled for costs build time.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr, $other:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            _ => $other,
        }
    };
}

/// Reduces `input` over the axes flagged in `reduced` into `out`, which has the kept extents in
/// order.
pub fn reduce(how: Reduction, input: &View, reduced: &[bool], out: &View) {
    let dtype = input.dtype();
    match how {
        Reduction::Sum => with_dtype!(dtype, T => fold::<T, Sum>(input, reduced, out)),
        Reduction::Mean => with_dtype!(dtype, T => fold::<T, Mean>(input, reduced, out)),
        Reduction::Product => with_dtype!(dtype, T => fold::<T, Product>(input, reduced, out)),
        Reduction::Max => with_dtype!(dtype, T => fold::<T, Max>(input, reduced, out)),
        Reduction::Min => with_dtype!(dtype, T => fold::<T, Min>(input, reduced, out)),
        Reduction::Norm1 => with_dtype!(dtype, T => fold::<T, Norm1>(input, reduced, out)),
        Reduction::NanSum => with_float!(dtype, T => fold::<T, NanSum>(input, reduced, out),
            reduce(Reduction::Sum, input, reduced, out)),
        Reduction::NanProduct => {
            with_float!(dtype, T => fold::<T, NanProduct>(input, reduced, out),
            reduce(Reduction::Product, input, reduced, out))
        }
        Reduction::Norm2 => match dtype {
            DType::F32 => norm2::<f32>(input, reduced, out),
            DType::F64 => norm2::<f64>(input, reduced, out),
            _ => with_dtype!(dtype, T => fold::<T, Norm2>(input, reduced, out)),
        },
    }
}

/// Reduces `input` to the shape of `out`, which could be broadcast to it: the axes that are missing
/// or of extent 1 there are summed (or whatever `how` says).
pub fn reduce_to(how: Reduction, input: &View, out: &View) {
    let skip = input.ndim() - out.ndim();
    let reduced: Vec<bool> = (0..input.ndim())
        .map(|i| i < skip || (out.dims()[i - skip] == 1 && input.dims()[i] != 1))
        .collect();
    reduce(how, input, &reduced, out);
}

/// Root of the sum of squares. Where a sum leaves the range in which squares are exact, it is
/// recalculated from scaled numbers.
fn norm2<T: Accumulate>(input: &View, reduced: &[bool], out: &View) {
    fold::<T, Norm2>(input, reduced, out);
    let n = out.size();
    let y = out.as_ptr::<T>();
    // Squares of numbers below the root of this are rounded to few bits, or to 0.
    let small = T::SCALE.powf(-0.5);
    let is_large = |x: f64| x.is_infinite();
    let is_small = |x: f64| x < small;
    // SAFETY: the output has `n` elements.
    let any = |test: &dyn Fn(f64) -> bool| (0..n).any(|i| test(unsafe { *y.add(i) }.to_f64()));
    let (any_large, any_small) = (any(&is_large), any(&is_small));
    if !any_large && !any_small {
        return;
    }
    with_scratch::<T, _>(n, |again| {
        // SAFETY: the scratch has the size of the output and its alignment.
        let view = unsafe { View::new(again.as_mut_ptr().cast(), out.shape().clone(), T::DTYPE) };
        let passes: [(bool, Pass, &dyn Fn(f64) -> bool); 2] = [
            (any_large, fold::<T, LargeNorm2>, &is_large),
            (any_small, fold::<T, SmallNorm2>, &is_small),
        ];
        for (needed, pass, test) in passes {
            if !needed {
                continue;
            }
            pass(input, reduced, &view);
            for (i, again) in again.iter().enumerate() {
                // SAFETY: the output has `n` elements.
                let slot = unsafe { &mut *y.add(i) };
                if test(slot.to_f64()) {
                    *slot = *again;
                }
            }
        }
    });
}

type Pass = fn(&View, &[bool], &View);

fn fold<T: Accumulate, F: Fold<T>>(input: &View, reduced: &[bool], out: &View) {
    let count: usize =
        input.dims().iter().zip(reduced).filter(|d| *d.1).map(|d| *d.0 as usize).product();
    let n_out = out.size();
    let (x, y) = (Shared(input.as_ptr::<T>()), Shared(out.as_ptr::<T>()));
    if n_out == 0 {
        return;
    }
    if count == 0 {
        for i in 0..n_out {
            // SAFETY: inside of the output.
            unsafe { *y.at(i) = F::end(F::start(), 0) };
        }
        return;
    }
    let runs = runs(input.dims(), reduced);
    match runs.split_last() {
        Some((&(row, true), outer)) => fold_to_elements::<T, F>(x, outer, row, y, (n_out, count)),
        Some((&(width, false), outer)) => fold_to_rows::<T, F>(x, outer, width, y, count),
        None => fold_to_rows::<T, F>(x, &[], 1, y, count),
    }
}

/// Elements that a task reads at least.
const GRAIN: usize = 1 << 15;
/// Elements of a part of a long reduction with few outputs; parts are tasks.
const PART: usize = 1 << 18;

/// Reduces rows of `row` elements, in the order of the runs outside of them.
fn fold_to_elements<T: Accumulate, F: Fold<T>>(
    x: Shared<T>,
    outer: &[(usize, bool)],
    row: usize,
    y: Shared<T>,
    (n_out, count): (usize, usize),
) {
    let grain = (GRAIN / count).max(1);
    if count == row && row < 2 * PART {
        // Rows follow one another.
        return parallel_for(n_out, grain, |range| {
            // SAFETY: rows of the input, elements of the output; every index belongs to one task.
            unsafe {
                let (x, y) = (x.at(range.start * row), y.at(range.start));
                fold_rows::<T, F>(x.cast_const(), range.len(), row, y);
            }
        });
    }
    let (kept, summed) = (offsets(outer, false, row), offsets(outer, true, row));
    let parts = row.div_ceil(PART).max(count.div_ceil(PART).min(summed.len()));
    // Either the rows or the list of rows is cut.
    let (cut_row, cut_list) =
        if row >= PART { (PART, summed.len()) } else { (row, summed.len().div_ceil(parts)) };
    let parts = row.div_ceil(cut_row) * summed.len().div_ceil(cut_list);
    with_scratch::<F::Value, _>(n_out * parts, |values| {
        let values = Shared(values.as_mut_ptr());
        parallel_for(n_out * parts, (GRAIN * parts / count).max(1), |range| {
            for task in range {
                let (o, part) = (task / parts, task % parts);
                let (start, list) = if cut_row < row {
                    (part * cut_row, &summed[..])
                } else {
                    let from = part * cut_list;
                    (0, &summed[from..(from + cut_list).min(summed.len())])
                };
                // SAFETY: the offsets address rows of the input; every value belongs to one task.
                unsafe {
                    let x = x.at(kept[o] + start).cast_const();
                    let lanes = fold_scattered::<T, F>(x, list, cut_row.min(row - start));
                    *values.at(task) = total::<T, F>(lanes);
                }
            }
        });
        for o in 0..n_out {
            // SAFETY: each output has `parts` values.
            unsafe {
                let all = std::slice::from_raw_parts(values.at(o * parts), parts);
                *y.at(o) = F::end(in_pairs::<T, F>(all), count);
            }
        }
    });
}

/// Joins values in pairs.
fn in_pairs<T: Accumulate, F: Fold<T>>(values: &[F::Value]) -> F::Value {
    match values {
        [] => F::start(),
        [one] => *one,
        _ => {
            let (a, b) = values.split_at(values.len() / 2);
            F::join(in_pairs::<T, F>(a), in_pairs::<T, F>(b))
        }
    }
}

/// Columns of a task: its values stay in the first cache.
const COLUMNS: usize = 1024;
/// Rows narrower than this are taken several at a time.
const NARROW: usize = 64;

/// Reduces to rows of `width` outputs.
fn fold_to_rows<T: Accumulate, F: Fold<T>>(
    x: Shared<T>,
    outer: &[(usize, bool)],
    width: usize,
    y: Shared<T>,
    count: usize,
) {
    // The run outside of the kept one is reduced: matrices of `each` rows.
    let (each, outer) = outer.split_last().map_or((1, outer), |(last, rest)| (last.0, rest));
    let (kept, matrices) =
        (offsets(outer, false, each * width), offsets(outer, true, each * width));
    let block = width.min(COLUMNS);
    let blocks = width.div_ceil(block);
    // Parts are sets of matrices or, of a single matrix, of rows.
    let wanted = (count * block).div_ceil(PART).min(32);
    let part = match matrices.len() {
        1 => each.div_ceil(wanted).next_multiple_of(NARROW),
        n => n.div_ceil(wanted),
    };
    let parts = if matrices.len() == 1 { each } else { matrices.len() }.div_ceil(part);
    let grain = (GRAIN * parts / (block * count)).max(1);
    with_scratch::<F::Value, _>(
        if parts > 1 { kept.len() * width * parts } else { 0 },
        |partial| {
            let partial = Shared(partial.as_mut_ptr());
            parallel_for(kept.len() * blocks * parts, grain, |range| {
                for task in range {
                    let (at, p) = (task / parts, task % parts);
                    let (o, c) = (at / blocks, at % blocks * block);
                    let len = block.min(width - c);
                    let (offsets, first, rows) = match matrices.len() {
                        1 => (&matrices[..], p * part, part.min(each - p * part)),
                        n => (&matrices[p * part..((p + 1) * part).min(n)], 0, each),
                    };
                    // SAFETY: inside of the input.
                    let x = unsafe { x.at(kept[o] + first * width + c).cast_const() };
                    let from = Matrices { x, offsets, each: rows, stride: width };
                    fold_block::<T, F>(&from, len, |values| {
                        for (k, &v) in values.iter().enumerate() {
                            // SAFETY: inside of the output and of the parts; tasks have columns of
                            // their own.
                            unsafe {
                                match parts {
                                    1 => *y.at(o * width + c + k) = F::end(v, count),
                                    _ => *partial.at((o * width + c + k) * parts + p) = v,
                                }
                            }
                        }
                    });
                }
            });
            for i in 0..if parts > 1 { kept.len() * width } else { 0 } {
                // SAFETY: each output has `parts` values.
                unsafe {
                    let all = std::slice::from_raw_parts(partial.at(i * parts), parts);
                    *y.at(i) = F::end(in_pairs::<T, F>(all), count);
                }
            }
        },
    );
}

/// Folds the first `width` columns of matrices and hands over the values. Rows that are narrow and
/// follow one another are taken several at a time, as one wide row.
fn fold_block<T: Accumulate, F: Fold<T>>(
    from: &Matrices<'_, T>,
    width: usize,
    done: impl FnOnce(&[F::Value]),
) {
    let together = if width == from.stride && width < NARROW { NARROW / width } else { 1 };
    let (each, rest) = (from.each / together, from.each % together);
    let n = from.offsets.len();
    let wide = width * together;
    let room = wide * levels(n * each) + width * levels(n * rest);
    with_scratch::<F::Value, _>(room, |room| {
        let (values, tail) = room.split_at_mut(wide * levels(n * each));
        if each > 0 {
            let rows = Matrices { each, stride: from.stride * together, ..*from };
            // SAFETY: the rows lie in the matrices; the scratch has room for their levels.
            unsafe { fold_columns::<T, F, _>(&rows, 0, n * each, wide, values.as_mut_ptr()) };
            let mut groups = together;
            while groups > 1 {
                let half = groups / 2;
                let (first, second) = values.split_at_mut((groups - half) * width);
                for (a, b) in first.iter_mut().zip(&second[..half * width]) {
                    *a = F::join(*a, *b);
                }
                groups -= half;
            }
        }
        if rest > 0 {
            // SAFETY: as above; the last rows of each matrix follow those taken together.
            unsafe {
                let rows =
                    Matrices { x: from.x.add(each * together * from.stride), each: rest, ..*from };
                fold_columns::<T, F, _>(&rows, 0, n * rest, width, tail.as_mut_ptr());
            }
            for (a, b) in values.iter_mut().zip(&tail[..width]) {
                *a = if each > 0 { F::join(*a, *b) } else { *b };
            }
        }
        done(&values[..width]);
    });
}

/// `out = inputs[0] + inputs[1] + ...` for arrays of `n` elements, as accurate as any sum here;
/// `out` may be one of the inputs.
///
/// # Safety
/// Every pointer is valid for `n` elements; `out` is an input or overlaps none.
pub unsafe fn add_arrays<T: Accumulate>(inputs: &[*const T], out: *mut T, n: usize) {
    let bases: Vec<Shared<T>> = inputs.iter().map(|p| Shared(p.cast_mut())).collect();
    let out = Shared(out);
    parallel_for(n.div_ceil(COLUMNS), (GRAIN / COLUMNS / bases.len().max(1)).max(1), |range| {
        for block in range {
            let at = block * COLUMNS;
            let len = COLUMNS.min(n - at);
            // SAFETY: the block lies in all arrays.
            let rows: Vec<*const T> =
                bases.iter().map(|p| unsafe { p.at(at).cast_const() }).collect();
            with_scratch::<T::Sum, _>(levels(rows.len()) * COLUMNS, |values| {
                // SAFETY: every row has `len` elements; all of a block is read before it is
                // written.
                unsafe {
                    let (rows, to) = (Pointers(&rows), values.as_mut_ptr());
                    fold_columns::<T, Sum, _>(&rows, 0, bases.len(), len, to);
                    for (k, &sum) in values[..len].iter().enumerate() {
                        *out.at(at + k) = T::narrow(sum);
                    }
                }
            });
        }
    });
}
