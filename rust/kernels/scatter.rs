//! Sums at places that may occur several times: gradients of lookups.
//!
//! Floats are added in f64 and rounded once, so the error of a float32 or float16 sum of `n` terms
//! is that of the last rounding plus `n 2^-53` of the terms' magnitudes. Integers wrap.

use super::arith::Arith;
use super::copy::fill;
use super::parallel::{Shared, parallel_for};
use crate::dtype::Element;
use crate::tensor::View;
use crate::with_dtype;

/// Elements of a run that are summed at a time.
const BLOCK: usize = 128;
/// Elements that are worth a task.
const GRAIN: usize = 1 << 14;

/// A run of elements that is added to another: the first element of each.
#[derive(Clone, Copy, Debug)]
pub struct Addend {
    pub from: usize,
    pub to: usize,
}

/// `to = 0; to[r.to + i] += from[r.from + i]` for every run and `i` below `length`, in order of the
/// runs. Runs are inside of the views and begin in `to` at multiples of `length`; the views have
/// one dtype and do not overlap.
pub fn add_runs(mut runs: Vec<Addend>, length: usize, from: &View, to: &View) {
    fill(to, 0.0);
    if length == 0 || runs.is_empty() {
        return;
    }
    // Stable: runs to one place keep their order, whatever the number of threads.
    runs.sort_by_key(|r| r.to);
    let same_place: Vec<&[Addend]> = runs.chunk_by(|a, b| a.to == b.to).collect();
    let blocks = length.div_ceil(BLOCK);
    let mean = (runs.len() / same_place.len()).max(1) * length.min(BLOCK);
    with_dtype!(to.dtype(), T => {
        let (x, y) = (Shared(from.as_ptr::<T>()), Shared(to.as_ptr::<T>()));
        parallel_for(same_place.len() * blocks, GRAIN.div_ceil(mean), |range| for task in range {
            let (runs, first) = (same_place[task / blocks], task % blocks * BLOCK);
            let n = BLOCK.min(length - first);
            // SAFETY: promised by the caller; every block of a place belongs to one task.
            unsafe { add_block::<T>(runs, first, n, x.at(0), y.at(runs[0].to + first)) };
        });
    });
}

/// The sum of elements `first .. first + n` of the runs.
///
/// # Safety
/// `x` holds every run, `y` holds `n` elements.
unsafe fn add_block<T: Arith>(runs: &[Addend], first: usize, n: usize, x: *const T, y: *mut T) {
    // SAFETY: promised by the caller.
    let terms = |r: &Addend| unsafe { std::slice::from_raw_parts(x.add(r.from + first), n) };
    // SAFETY: as above.
    let y = unsafe { std::slice::from_raw_parts_mut(y, n) };
    if !T::DTYPE.is_float() || runs.len() == 1 {
        for run in runs {
            y.iter_mut().zip(terms(run)).for_each(|(y, &x)| *y = Arith::add(*y, x));
        }
        return;
    }
    let mut sums = [0f64; BLOCK];
    for run in runs {
        sums.iter_mut().zip(terms(run)).for_each(|(sum, &x)| *sum += Element::to_f64(x));
    }
    y.iter_mut().zip(sums).for_each(|(y, sum)| *y = T::from_f64(sum));
}
