//! Moving elements without changing them: strided copies between arrays of any dtype.

use super::arch::channels;
use super::arch::transpose::{SIDE_4, SIDE_8, squares_4, squares_8};
use super::gemm::Mat;
use super::parallel::{Shared, parallel_for};
use crate::tensor::View;

/// Copies the elements of `from` to `to`, two views of equal shapes and dtypes with any strides.
///
/// # Safety
/// Both views are valid for their shapes and strides, do not overlap, and no two elements of `to`
/// coincide.
pub unsafe fn copy_strided(from: &View, to: &View) {
    let size = from.dtype().size();
    // SAFETY: promised by the caller.
    unsafe {
        match size {
            1 => copy_sized::<u8>(from, to),
            2 => copy_sized::<u16>(from, to),
            4 => copy_sized::<u32>(from, to),
            _ => copy_sized::<u64>(from, to),
        }
    }
}

/// Copies a matrix of `rows` times `columns` elements on this thread.
///
/// # Safety
/// Both hold these extents and do not overlap; rows of `to` are contiguous, and rows or columns of
/// `from`.
pub unsafe fn copy_matrix<T: Copy>((rows, columns): (usize, usize), from: Mat<T>, to: Mat<T>) {
    debug_assert!(to.col == 1 && (from.col == 1 || from.row == 1));
    // SAFETY: promised by the caller.
    unsafe {
        if from.col == 1 {
            for i in 0..rows {
                copy_row(from.at(i, 0).ptr, to.at(i, 0).ptr, columns);
            }
        } else {
            for first in (0..columns).step_by(TILE) {
                let height = TILE.min(columns - first);
                let (from, to) = (from.at(0, first), to.at(0, first));
                transpose((from.ptr, from.col), (to.ptr, to.row), (rows, height));
            }
        }
    }
}

/// Copies a row. Short rows are not worth a call of `memcpy` (which the compiler would also make of
/// a loop): two blocks are moved, which overlap.
///
/// # Safety
/// Both hold `n` elements and do not overlap.
#[inline(always)]
pub unsafe fn copy_row<T: Copy>(from: *const T, to: *mut T, n: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        match n {
            65.. => to.copy_from_nonoverlapping(from, n),
            33.. => copy_ends::<T, 32>(from, to, n),
            17.. => copy_ends::<T, 16>(from, to, n),
            8.. => copy_ends::<T, 8>(from, to, n),
            4.. => copy_ends::<T, 4>(from, to, n),
            _ => {
                for at in 0..n {
                    *to.add(at) = *from.add(at);
                }
            }
        }
    }
}

/// Copies the first and the last `N` elements of a row.
///
/// # Safety
/// As [`copy_row`]; `n` is at least `N`.
#[inline(always)]
unsafe fn copy_ends<T: Copy, const N: usize>(from: *const T, to: *mut T, n: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        *to.cast::<[T; N]>() = *from.cast();
        *to.add(n - N).cast::<[T; N]>() = *from.add(n - N).cast();
    }
}

crate::simd! {
    /// Copies `rows` rows of `n` elements each, a distance apart.
    ///
    /// # Safety
    /// Both hold them and do not overlap.
    pub unsafe fn copy_rows[T: Copy][T](
        from: *const T, from_row: usize, to: *mut T, to_row: usize, rows: usize, n: usize,
    ) -> () {
        for i in 0..rows {
            // SAFETY: promised by the caller.
            unsafe { copy_row(from.add(i * from_row), to.add(i * to_row), n) };
        }
    }
}

/// Elements that a task copies.
const PIECE: usize = 1 << 14;

/// Copies long rows in pieces.
fn copy_pieces<T: Copy + Send + Sync>(walk: &SignedWalk, src: Shared<T>, dst: Shared<T>) {
    let pieces = walk.row.div_ceil(PIECE);
    parallel_for(walk.rows() * pieces, 4, |range| {
        for task in range {
            let [a, b] = walk.offsets(task / pieces);
            let first = task % pieces * PIECE;
            let count = PIECE.min(walk.row - first);
            // SAFETY: the offsets are those of the views; pieces are apart.
            unsafe {
                let step = |k: usize| first as isize * walk.steps[k];
                let (a, b) = (src.ptr().offset(a + step(0)), dst.ptr().offset(b + step(1)));
                copy_line((a, walk.steps[0]), (b, walk.steps[1]), count);
            }
        }
    });
}

/// Copies elements that are `step` apart.
///
/// # Safety
/// Both hold `n` elements at their steps, and they do not overlap.
#[inline(always)]
unsafe fn copy_line<T: Copy>(from: (*const T, isize), to: (*mut T, isize), n: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        if (from.1, to.1) == (1, 1) {
            std::ptr::copy_nonoverlapping(from.0, to.0, n);
        } else {
            for i in 0..n as isize {
                *to.0.offset(i * to.1) = *from.0.offset(i * from.1);
            }
        }
    }
}

/// Side of the square tiles of a transposition: two of them fit the first cache.
const TILE: usize = 32;

/// Copies elements of the size of `T`.
///
/// # Safety
/// The views have one shape and elements of the size of `T`, and do not overlap.
unsafe fn copy_sized<T: Copy + Send + Sync>(from: &View, to: &View) {
    let dims = from.dims();
    if dims.contains(&0) {
        return;
    }
    let (src, dst) = (Shared(from.ptr().cast::<T>()), Shared(to.ptr().cast::<T>()));
    let axes = SignedWalk::axes(dims, from.strides(), to.strides());
    if let Some((outer, plane)) = transposed(&axes) {
        // SAFETY: the offsets are those of the views; parts of the output are disjoint.
        return unsafe {
            match plane.pixels() {
                Some(pixels) => move_pixels(src, dst, &outer, &plane, pixels),
                None => transpose_tiles(src, dst, &outer, &plane),
            }
        };
    }
    let walk = SignedWalk::new(axes);
    if walk.row > 2 * PIECE {
        return copy_pieces(&walk, src, dst);
    }
    let grain = (PIECE / walk.row.max(1)).max(1);
    // Along the last axis a row is one step from the row before.
    let &(extent, steps) = walk.axes.last().unwrap_or(&(1, [0, 0]));
    parallel_for(walk.rows(), grain, |range| {
        let mut at = [0; 2];
        for r in range.clone() {
            at = if r == range.start || r % extent == 0 {
                walk.offsets(r)
            } else {
                [at[0] + steps[0], at[1] + steps[1]]
            };
            // SAFETY: the offsets are those of the views.
            unsafe {
                let (a, b) = (src.ptr().offset(at[0]), dst.ptr().offset(at[1]));
                copy_line((a, walk.steps[0]), (b, walk.steps[1]), walk.row);
            }
        }
    });
}

/// The two axes of a transposition: extents, and the steps of source and destination.
struct Plane {
    /// Contiguous in the source.
    source: Axis,
    /// Contiguous in the destination.
    destination: Axis,
}

/// Where a few channels stand side by side, in pixels that follow one another, and how many.
#[derive(Clone, Copy)]
enum Pixels {
    Read(usize),
    Written(usize),
}

impl Plane {
    /// The pixels, if one side consists of them.
    fn pixels(&self) -> Option<Pixels> {
        let ((n, [_, n_out]), (m, [m_in, _])) = (self.source, self.destination);
        let few = |extent: usize, step| extent <= channels::MOST && extent as isize == step;
        match () {
            _ if few(m, n_out) => Some(Pixels::Written(m)),
            _ if few(n, m_in) => Some(Pixels::Read(n)),
            _ => None,
        }
    }
}

/// The two axes by which source and destination are contiguous, if they differ, and the walk over
/// the rest.
fn transposed(axes: &[Axis]) -> Option<(SignedWalk, Plane)> {
    let unit = |k: usize| axes.iter().position(|axis| axis.1[k] == 1);
    let (i, o) = (unit(0)?, unit(1)?);
    let plane = Plane { source: axes[i], destination: axes[o] };
    if i == o || (axes[i].0.min(axes[o].0) < 4 && plane.pixels().is_none()) {
        return None;
    }
    let rest = axes.iter().enumerate().filter(|(k, _)| *k != i && *k != o);
    let axes = rest.map(|(_, axis)| *axis).collect();
    Some((SignedWalk { axes, row: 1, steps: [1, 1] }, plane))
}

/// Copies channels to pixels, or back.
///
/// # Safety
/// As [`transpose_tiles`]; the plane has these pixels.
unsafe fn move_pixels<T: Copy + Send + Sync>(
    src: Shared<T>,
    dst: Shared<T>,
    outer: &SignedWalk,
    plane: &Plane,
    pixels: Pixels,
) {
    let (deep, count, [from_step, to_step]) = match pixels {
        Pixels::Read(deep) => (deep, plane.destination.0, [deep as isize, 1]),
        Pixels::Written(deep) => (deep, plane.source.0, [1, deep as isize]),
    };
    let piece = PIECE / deep;
    let pieces = count.div_ceil(piece);
    parallel_for(outer.rows() * pieces, (piece / count).max(1), |range| {
        for task in range {
            let [a, b] = outer.offsets(task / pieces);
            let first = task % pieces * piece;
            let n = piece.min(count - first);
            // SAFETY: the pixels lie inside of both views; tasks have pixels of their own.
            unsafe {
                let from = src.ptr().offset(a + first as isize * from_step);
                let to = dst.ptr().offset(b + first as isize * to_step);
                match pixels {
                    Pixels::Read(_) => channels::part(deep, from, (to, plane.source.1[1]), n),
                    Pixels::Written(_) => {
                        channels::weave(deep, (from, plane.destination.1[0]), to, n);
                    }
                }
            }
        }
    });
}

/// Transposes matrices tile by tile.
///
/// # Safety
/// The pointers are valid for what extents and strides address, and do not overlap.
unsafe fn transpose_tiles<T: Copy + Send + Sync>(
    src: Shared<T>,
    dst: Shared<T>,
    outer: &SignedWalk,
    plane: &Plane,
) {
    // `n` runs along the source, `m` along the destination.
    let ((n, [_, n_out]), (m, [m_in, _])) = (plane.source, plane.destination);
    let strips = m.div_ceil(TILE);
    let grain = ((1 << 14) / (n * TILE)).max(1);
    parallel_for(outer.rows() * strips, grain, |range| {
        for task in range {
            let [a, b] = outer.offsets(task / strips);
            let first = task % strips * TILE;
            let height = TILE.min(m - first);
            for j in (0..n).step_by(TILE) {
                let width = TILE.min(n - j);
                // SAFETY: tiles lie inside of both views.
                unsafe {
                    let from = src.ptr().offset(a + first as isize * m_in + j as isize);
                    let to = dst.ptr().offset(b + first as isize + j as isize * n_out);
                    transpose((from, m_in), (to, n_out), (width, height));
                }
            }
        }
    });
}

/// `to[y, x] = from[x, y]` for `y` in `0..n` and `x` in `0..m`; both are contiguous by their last
/// index.
///
/// # Safety
/// Both hold these elements with the given distances between rows, and do not overlap.
unsafe fn transpose<T: Copy>(
    (from, from_row): (*const T, isize),
    (to, to_row): (*mut T, isize),
    (n, m): (usize, usize),
) {
    // SAFETY: promised by the caller; the types have one size.
    let squares = |from: *const T, to: *mut T, extents: (usize, usize)| unsafe {
        match size_of::<T>() {
            4 => squares_4((from.cast(), from_row), (to.cast(), to_row), extents),
            8 => squares_8((from.cast(), from_row), (to.cast(), to_row), extents),
            _ => (0, 0),
        }
    };
    let (rows, columns) = squares(from, to, (n, m));
    // SAFETY: as above.
    unsafe {
        if rows > 0 && columns > 0 {
            // The remainder is covered by squares that end at the edge of the matrix.
            let side = match size_of::<T>() {
                4 => SIDE_4,
                _ => SIDE_8,
            };
            let (y, x) = ((n - side) as isize, (m - side) as isize);
            if rows < n {
                squares(from.offset(y), to.offset(y * to_row), (side, m));
            }
            if columns < m {
                squares(from.offset(x * from_row), to.offset(x), (n, side));
            }
            if rows < n && columns < m {
                squares(from.offset(x * from_row + y), to.offset(y * to_row + x), (side, side));
            }
            return;
        }
        for y in 0..n as isize {
            for x in 0..m as isize {
                *to.offset(y * to_row + x) = *from.offset(x * from_row + y);
            }
        }
    }
}

/// An axis of two operands: its extent, and the step of each.
type Axis = (usize, [isize; 2]);

/// A walk of two operands whose strides may be negative or larger than one.
struct SignedWalk {
    axes: Vec<Axis>,
    row: usize,
    steps: [isize; 2],
}

impl SignedWalk {
    /// Axes of more than one element, merged where both operands allow it.
    fn axes(dims: &[i64], from: &[i64], to: &[i64]) -> Vec<Axis> {
        let mut axes: Vec<Axis> = Vec::new();
        for (i, &d) in dims.iter().enumerate() {
            let step = [from[i] as isize, to[i] as isize];
            match axes.last_mut() {
                _ if d == 1 => {}
                Some((extent, last)) if (0..2).all(|k| last[k] == step[k] * d as isize) => {
                    *extent *= d as usize;
                    *last = step;
                }
                _ => axes.push((d as usize, step)),
            }
        }
        axes
    }

    /// The walk whose rows are the last axis.
    fn new(mut axes: Vec<Axis>) -> Self {
        let (row, steps) = axes.pop().unwrap_or((1, [1, 1]));
        SignedWalk { axes, row, steps }
    }

    fn rows(&self) -> usize {
        self.axes.iter().map(|a| a.0).product()
    }

    fn offsets(&self, mut i: usize) -> [isize; 2] {
        let mut at = [0; 2];
        for (extent, steps) in self.axes.iter().rev() {
            let k = (i % extent) as isize;
            i /= extent;
            at[0] += k * steps[0];
            at[1] += k * steps[1];
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::testing::Tensor;
    use crate::shape::{Dims, Shape};
    use proptest::prelude::*;

    #[test]
    fn long_rows_are_copied_in_pieces() {
        let n = 5 * PIECE / 2 + 3;
        let x = Tensor::noise(&[2, n as i64], 3).cast(DType::F32);
        let out = Tensor::zeros(&Shape::new(&[2, n as i64]), DType::F32);
        let end = x.view().ptr().wrapping_add(4 * (n - 1));
        let (shape, strides) = (Shape::new(&[2, n as i64]), Dims::from_slice(&[n as i64, -1]));
        // SAFETY: the strides address the elements of `x`, each row from its end.
        unsafe { copy_strided(&View::with_strides(end, shape, strides, DType::F32), &out.view()) };
        let (x, got) = (x.values(), out.values());
        assert!((0..2 * n).all(|i| got[i] == x[i / n * n + n - 1 - i % n]));
    }

    #[test]
    fn rows_of_any_length_are_copied_and_nothing_else() {
        for n in 0..140 {
            let from: Vec<f32> = (1..=n).map(|i| i as f32).collect();
            let mut to = vec![0.0; n + 1];
            // SAFETY: both hold `n` elements.
            unsafe { copy_row(from.as_ptr(), to.as_mut_ptr(), n) };
            assert!(to[..n] == from && to[n] == 0.0, "{n}: {to:?}");
        }
    }

    proptest! {
        #[test]
        fn strided_copy_matches_naive(dims in prop::collection::vec(0i64..40, 1..4), rotate in 0usize..4, size in 0usize..4) {
            let dtype = [DType::U8, DType::F16, DType::F32, DType::F64][size];
            let shape = Shape::new(&dims);
            let x = Tensor::noise(&dims, 3).cast(dtype);
            let n = dims.len();
            let axes: Vec<usize> = (0..n).map(|i| (i + rotate) % n).collect();
            let out_shape: Shape = axes.iter().map(|&a| dims[a]).collect();
            let own = shape.strides();
            let strides: Dims = axes.iter().map(|&a| own[a]).collect();
            let out = Tensor::zeros(&out_shape, dtype);
            // SAFETY: the strides address the elements of `x`.
            unsafe {
                let from = View::with_strides(x.view().ptr(), out_shape.clone(), strides.clone(), dtype);
                copy_strided(&from, &out.view());
            }
            let (values, mut want) = (x.values(), Vec::new());
            for i in 0..shape.size() {
                let (mut rest, mut at) = (i as i64, 0);
                for k in (0..n).rev() {
                    at += rest % out_shape.dims()[k] * strides[k];
                    rest /= out_shape.dims()[k];
                }
                want.push(values[at as usize]);
            }
            prop_assert_eq!(out.values(), want);
        }
    }
}
