//! Filters over a single channel, applied directly to planes laid out as a [`Grid`].

use super::grid::Grid;
use super::{Conv, report};
use crate::dtype::Element;
use crate::kernels::pairwise::LEAF;
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Positions calculated together.
const LANES: usize = 64;
/// Positions of a row calculated together, in rows that share what they read.
const WIDTH: usize = 16;
const ROWS: usize = 4;
/// The most taps of a column.
const TALL: usize = 3;
/// Sums of a gradient's element that are kept side by side.
const TOTALS: usize = 8;
type Totals = [f64; TOTALS];

/// `y = conv(x, w) + b`, of which `done` is called with what is finished.
///
/// # Safety
/// As [`super::forward`].
pub unsafe fn forward<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
    done: Option<OnElements<'_>>,
) {
    let grid = Grid::new(conv);
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    let order = Order::new(&grid, grid.span);
    let columns = order.columns((0..conv.taps()).map(|t| (t, grid.offset(conv, t))));
    planes(conv, conv.batch * conv.groups, |range| {
        with_scratch::<T, _>(grid.all() + order.beyond() + order.room(), |scratch| {
            let (image, sums) = scratch.split_at_mut(grid.all() + order.beyond());
            image.fill(T::zero());
            let mut weighted = Vec::with_capacity(columns.len());
            for i in range.clone() {
                // SAFETY: planes of image and channel `i` are read, those of its filters are this
                // task's to write.
                unsafe {
                    grid.spread(conv, x.at(i * conv.in_size()), image);
                    for f in 0..conv.out_c {
                        let filter = i % conv.groups * conv.out_c + f;
                        let w = w.at(filter * conv.taps());
                        weighted.clear();
                        weighted.extend(columns.iter().map(|column| column.weighted(w, 0)));
                        let first = bias.map_or(T::zero(), |b| *b.at(filter));
                        order.correlate(image.as_ptr(), &weighted, first, sums.as_mut_ptr());
                        let y = y.at((i * conv.out_c + f) * conv.out_size());
                        grid.release(conv, sums.as_ptr(), y);
                    }
                }
            }
            let planes = range.start * conv.out_c..range.end * conv.out_c;
            report(done, planes, conv.out_size(), 0..conv.out_size());
        });
    });
}

/// `dx` from `dy` and the filters: every phase of the plane gathers the contributions of its taps.
///
/// # Safety
/// As [`super::backward_data`].
pub unsafe fn backward_data<T: Real>(conv: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let grid = Grid::new(conv);
    if grid.size == 0 {
        // SAFETY: promised by the caller.
        return unsafe { dx.write_bytes(0, conv.batch * conv.groups * conv.in_size()) };
    }
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    // Gradients of the output are padded with zeros as far as a filter reaches.
    let reach = grid.size - grid.span.min(grid.size);
    let order = Order::new(&grid, grid.size);
    let stretch = reach + grid.size + order.beyond();
    let mut by_phase = vec![Vec::new(); grid.phases()];
    for (t, at) in (0..conv.taps()).map(|t| (t, grid.offset(conv, t))) {
        by_phase[at / grid.size].push((t, reach - at % grid.size));
    }
    let by_phase: Vec<_> = by_phase.into_iter().map(|taps| order.columns(taps)).collect();
    planes(conv, conv.batch * conv.groups, |range| {
        with_scratch::<T, _>(conv.out_c * stretch + order.room(), |scratch| {
            let (grads, sums) = scratch.split_at_mut(conv.out_c * stretch);
            grads.fill(T::zero());
            let mut weighted = Vec::new();
            for i in range.clone() {
                // SAFETY: as in `forward`, the other way round.
                unsafe {
                    let dx = dx.at(i * conv.in_size());
                    dx.write_bytes(0, conv.in_size());
                    for (f, grads) in grads.chunks_exact_mut(stretch).enumerate() {
                        let dy = dy.at((i * conv.out_c + f) * conv.out_size());
                        grid.collect(conv, dy, grads[reach..].as_mut_ptr());
                    }
                    for (phase, columns) in by_phase.iter().enumerate() {
                        weighted.clear();
                        for f in 0..conv.out_c {
                            let w = w.at((i % conv.groups * conv.out_c + f) * conv.taps());
                            let own = columns.iter().map(|column| column.weighted(w, f * stretch));
                            weighted.extend(own);
                        }
                        order.correlate(grads.as_ptr(), &weighted, T::zero(), sums.as_mut_ptr());
                        grid.gather(conv, (phase, &grid.whole()), sums.as_ptr(), dx);
                    }
                }
            }
        });
    });
}

/// `dw` from the image and `dy`, summed over the batch.
///
/// # Safety
/// As [`super::backward_weight`].
pub unsafe fn backward_weight<T: Real>(conv: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    let grid = Grid::new(conv);
    let (x, dy, dw) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(dw));
    let offsets: Vec<usize> = (0..conv.taps()).map(|t| grid.offset(conv, t)).collect();
    let room = grid.span.next_multiple_of(LANES);
    planes(conv, conv.groups, |range| {
        with_scratch::<T, _>(grid.all() + LANES + room, |scratch| {
            scratch.fill(T::zero());
            let (image, grads) = scratch.split_at_mut(grid.all() + LANES);
            let mut sums = vec![[0.0; TOTALS]; conv.out_c * conv.taps()];
            for g in range.clone() {
                sums.fill([0.0; TOTALS]);
                // SAFETY: the filters of channel `g` are this task's to write; extents are the
                // caller's promise.
                unsafe {
                    for plane in (0..conv.batch).map(|n| n * conv.groups + g) {
                        grid.spread(conv, x.at(plane * conv.in_size()), image);
                        for f in 0..conv.out_c {
                            let dy = dy.at((plane * conv.out_c + f) * conv.out_size());
                            grid.collect(conv, dy, grads.as_mut_ptr());
                            let sums = &mut sums[f * conv.taps()..];
                            add_products(image.as_ptr(), &offsets, grads.as_ptr(), room, sums);
                        }
                    }
                    let dw = dw.at(g * sums.len());
                    for (i, sum) in sums.iter().enumerate() {
                        *dw.add(i) = T::of(sum.iter().sum());
                    }
                }
            }
        });
    });
}

/// In which order the positions of a plane are calculated.
struct Order {
    /// Positions.
    count: usize,
    /// Positions of a row.
    cells: usize,
    /// Whether several rows are calculated together, or positions as one stretch whatever their
    /// row.
    by_rows: bool,
}

/// Taps that read the same position of consecutive rows, from `at` on.
struct Column {
    at: usize,
    taps: [usize; TALL],
    tall: usize,
}

/// A column with its weights.
struct Weighted<T> {
    at: usize,
    weights: [T; TALL],
    tall: usize,
}

impl Column {
    /// The column for one filter, whose planes are `on` elements further on.
    ///
    /// # Safety
    /// `w` is a filter with these taps.
    unsafe fn weighted<T: Real>(&self, w: *const T, on: usize) -> Weighted<T> {
        // SAFETY: promised by the caller; taps that are not there are tap 0.
        let weights = self.taps.map(|t| unsafe { *w.add(t) });
        Weighted { at: on + self.at, weights, tall: self.tall }
    }
}

impl Order {
    fn new(grid: &Grid, count: usize) -> Self {
        let cells = grid.cells[2];
        // Rows of unfavourable length leave too many lanes unused.
        let by_rows = cells > 0 && cells.next_multiple_of(WIDTH) * 4 <= cells * 5;
        Order { count, cells, by_rows: by_rows && count >= ROWS * cells }
    }

    /// Positions that are read beyond the last tap of the last position.
    fn beyond(&self) -> usize {
        if self.by_rows { ROWS * self.cells + WIDTH } else { LANES }
    }

    /// Elements of the results.
    fn room(&self) -> usize {
        match self.by_rows {
            true => self.count.next_multiple_of(ROWS * self.cells) + WIDTH,
            false => self.count.next_multiple_of(LANES),
        }
    }

    /// Taps with their offsets as columns, of one tap each unless rows are calculated together.
    fn columns(&self, taps: impl IntoIterator<Item = (usize, usize)>) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        let mut taps: Vec<_> = taps.into_iter().collect();
        taps.sort_by_key(|&(_, at)| at);
        for (t, at) in taps {
            let below = |c: &&mut Column| c.tall < TALL && c.at + c.tall * self.cells == at;
            match columns.iter_mut().find(below).filter(|_| self.by_rows) {
                Some(column) => {
                    column.taps[column.tall] = t;
                    column.tall += 1;
                }
                None => columns.push(Column { at, taps: [t, 0, 0], tall: 1 }),
            }
        }
        columns
    }

    /// `y[p] = first + sum over columns and i of weights[i] x[p + at + i cells]`.
    ///
    /// # Safety
    /// `y` has [`Order::room`]; `x` holds the positions after every tap's offset, and
    /// [`Order::beyond`] as many after them.
    unsafe fn correlate<T: Real>(&self, x: *const T, columns: &[Weighted<T>], first: T, y: *mut T) {
        // SAFETY: promised by the caller.
        unsafe {
            match self.by_rows {
                true => correlate_rows(x, columns, first, y, self.count, self.cells),
                false => correlate(x, columns, first, y, self.room()),
            }
        }
    }
}

/// `sums[k] += sum over i of weights[i] x[(k + i) cells]` for [`WIDTH`] positions of [`ROWS`] rows.
///
/// # Safety
/// `x` holds them.
#[inline(always)]
unsafe fn add_column<T: Real, const N: usize, const FUSED: bool>(
    x: *const T,
    weights: &[T; TALL],
    cells: usize,
    sums: &mut [[T; WIDTH]; ROWS],
) {
    for row in 0..ROWS + N - 1 {
        // SAFETY: promised by the caller.
        let x = unsafe { &*x.add(row * cells).cast::<[T; WIDTH]>() };
        for tap in 0..N {
            if tap <= row && row - tap < ROWS {
                let (w, sums) = (weights[tap], &mut sums[row - tap]);
                for i in 0..WIDTH {
                    sums[i] = if FUSED { w.mul_add(x[i], sums[i]) } else { sums[i] + w * x[i] };
                }
            }
        }
    }
}

fn planes(conv: &Conv, count: usize, f: impl Fn(Range<usize>) + Send + Sync) {
    let work = conv.out_size() * conv.taps() * conv.out_c;
    parallel_for(count, (1usize << 16).div_ceil(work.max(1)), f);
}

crate::simd! {
    /// [`Order::correlate`] for columns of one tap, for `p` in `0..n`.
    ///
    /// # Safety
    /// `n` is a multiple of `LANES`, `y` holds as many, `x` holds those after every tap's offset.
    unsafe fn correlate[T: Real][T](
        x: *const T, columns: &[Weighted<T>], first: T, y: *mut T, n: usize,
    ) -> () {
        for p in (0..n).step_by(LANES) {
            let mut sums = [first; LANES];
            for &Weighted { at, weights: [w, ..], .. } in columns {
                // SAFETY: promised by the caller.
                let x = unsafe { &*x.add(p + at).cast::<[T; LANES]>() };
                for i in 0..LANES {
                    sums[i] = if FUSED { w.mul_add(x[i], sums[i]) } else { sums[i] + w * x[i] };
                }
            }
            // SAFETY: as above.
            unsafe { y.add(p).copy_from_nonoverlapping(sums.as_ptr(), LANES) };
        }
    }

    /// [`Order::correlate`] for several rows at a time. The lanes beyond a row calculate the first
    /// positions of the next once more.
    ///
    /// # Safety
    /// As there.
    unsafe fn correlate_rows[T: Real][T](
        x: *const T, columns: &[Weighted<T>], first: T, y: *mut T,
        count: usize, cells: usize,
    ) -> () {
        for rows in (0..count).step_by(ROWS * cells) {
            for p in (rows..rows + cells).step_by(WIDTH) {
                let mut sums = [[first; WIDTH]; ROWS];
                for column in columns {
                    // SAFETY: promised by the caller.
                    unsafe {
                        let x = x.add(p + column.at);
                        match column.tall {
                            3 => add_column::<T, 3, FUSED>(x, &column.weights, cells, &mut sums),
                            2 => add_column::<T, 2, FUSED>(x, &column.weights, cells, &mut sums),
                            _ => add_column::<T, 1, FUSED>(x, &column.weights, cells, &mut sums),
                        }
                    }
                }
                for (k, sums) in sums.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe {
                        y.add(p + k * cells).copy_from_nonoverlapping(sums.as_ptr(), WIDTH);
                    }
                }
            }
        }
    }

    /// `sums[t] += dy[p] x[p + offsets[t]]` for `p` in `0..n`, in `TOTALS` sums for each `t`.
    /// Stretches of `LEAF` products a lane are added in `T`, all else in f64, so that the error
    /// does not grow with `n`.
    ///
    /// # Safety
    /// As [`correlate`]; `sums` has an element for every offset.
    unsafe fn add_products[T: Real][T](
        x: *const T, offsets: &[usize], dy: *const T, n: usize, sums: &mut [Totals],
    ) -> () {
        const TOGETHER: usize = 3;
        const WIDTH: usize = 32;
        const STRETCH: usize = LEAF * WIDTH;
        for (group, taps) in offsets.chunks(TOGETHER).enumerate() {
            // A last, smaller group calculates its last tap several times.
            let mut at = [taps[taps.len() - 1]; TOGETHER];
            at[..taps.len()].copy_from_slice(taps);
            for from in (0..n).step_by(STRETCH) {
                let mut lanes = [[T::zero(); WIDTH]; TOGETHER];
                for p in (from..n.min(from + STRETCH)).step_by(WIDTH) {
                    // SAFETY: promised by the caller; `WIDTH` divides `LANES`.
                    let dy = unsafe { &*dy.add(p).cast::<[T; WIDTH]>() };
                    for k in 0..TOGETHER {
                        // SAFETY: as above.
                        let x = unsafe { &*x.add(p + at[k]).cast::<[T; WIDTH]>() };
                        for i in 0..WIDTH {
                            let (sum, dy, x) = (&mut lanes[k][i], dy[i], x[i]);
                            *sum = if FUSED { dy.mul_add(x, *sum) } else { *sum + dy * x };
                        }
                    }
                }
                for (k, lanes) in lanes.iter().take(taps.len()).enumerate() {
                    let sums = &mut sums[group * TOGETHER + k];
                    for part in lanes.chunks_exact(TOTALS) {
                        for i in 0..TOTALS {
                            sums[i] += Element::to_f64(part[i]);
                        }
                    }
                }
            }
        }
    }
}
