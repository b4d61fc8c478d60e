//! Sums at places that may occur several times: gradients of lookups.
//!
//! Floats are added in f64 and rounded once, so the error of a float32 or float16 sum of `n` terms
//! is that of the last rounding plus `n 2^-53` of the terms' magnitudes. Integers wrap.

use super::arch::{Cache, prefetch_all};
use super::arith::Arith;
use super::parallel::{Shared, parallel_for};
use super::scratch::with_scratch;
use crate::dtype::Element;
use crate::tensor::View;
use crate::with_dtype;
use std::ops::Range;

/// Elements of a run that are summed at a time.
const BLOCK: usize = 128;
/// Elements that are worth a task.
const GRAIN: usize = 1 << 14;
/// Runs that are asked for ahead: they lie anywhere.
const AHEAD: usize = 6;

/// `to = 0; to[places[r] * length + i] += from[r * length + i]` for every run `r` and `i` below
/// `length`, in order of the runs. Places are inside of `to`; the views have one dtype and do not
/// overlap.
pub fn add_runs(places: &[usize], length: usize, from: &View, to: &View) {
    if length == 0 {
        return;
    }
    let count = to.size() / length;
    with_scratch(count + 1 + places.len(), |room: &mut [i64]| {
        let (ends, order) = room.split_at_mut(count + 1);
        by_place(places, ends, order);
        let by_place = ByPlace { ends, order };
        let blocks = length.div_ceil(BLOCK);
        // Runs and places that are worth a task.
        let grain = GRAIN.div_ceil(length.min(BLOCK));
        let parts = (places.len() + count).div_ceil(grain);
        with_dtype!(to.dtype(), T => {
            let (x, y) = (Shared(from.as_ptr::<T>()), Shared(to.as_ptr::<T>()));
            parallel_for(parts * blocks, 1, |range| for task in range {
                let (part, first) = (task / blocks, task % blocks * BLOCK);
                let places = by_place.starting_within(part * grain, (part + 1) * grain);
                let columns = (length, first, BLOCK.min(length - first));
                // SAFETY: promised by the caller; every block of a place belongs to one task.
                unsafe { add_blocks::<T>(&by_place, places, columns, x.at(0), y.at(0)) };
            });
        });
    });
}

/// Sorts the numbers of runs by place, in `order`; those to one place keep their order. `ends` has
/// a number more than there are places: where the runs to the place before end.
fn by_place(places: &[usize], ends: &mut [i64], order: &mut [i64]) {
    ends.fill(0);
    // Where the next run to a place goes, until all of its runs have gone there.
    let next = &mut ends[1..];
    for &place in places {
        next[place] += 1;
    }
    let mut start = 0;
    for next in next.iter_mut() {
        (*next, start) = (start, start + *next);
    }
    for (run, &place) in places.iter().enumerate() {
        order[next[place] as usize] = run as i64;
        next[place] += 1;
    }
}

/// Runs sorted by their place.
struct ByPlace<'a> {
    /// Where the runs to the place before end.
    ends: &'a [i64],
    order: &'a [i64],
}

impl ByPlace<'_> {
    /// The runs to a place.
    #[inline(always)]
    fn runs(&self, place: usize) -> Range<usize> {
        self.ends[place] as usize..self.ends[place + 1] as usize
    }

    /// The places before whose runs as many runs and places come as the range says.
    fn starting_within(&self, first: usize, end: usize) -> Range<usize> {
        let count = self.ends.len() - 1;
        let [first, end] = [first, end].map(|bound| {
            let (mut low, mut high) = (0, count);
            while low < high {
                let middle = low.midpoint(high);
                match self.ends[middle] as usize + middle < bound {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            low
        });
        first..end
    }
}

crate::simd! {
    /// The sums at `places` of some columns: the length of runs, the first and the number of them.
    ///
    /// # Safety
    /// `x` holds every run, `y` every place.
    unsafe fn add_blocks[T: Arith][T](
        by_place: &ByPlace<'_>, places: Range<usize>, columns: (usize, usize, usize),
        x: *const T, y: *mut T,
    ) -> () {
        let (length, first, n) = columns;
        let is_exact = !T::DTYPE.is_float();
        let (mut sums, mut place) = ([0f64; BLOCK], places.start);
        while place < places.end {
            let runs = by_place.runs(place);
            let y = y.wrapping_add(place * length + first);
            place += 1;
            if runs.is_empty() {
                // Neighbours without runs as well: most places may have none.
                let from = place;
                while n == length && place < places.end && by_place.runs(place).is_empty() {
                    place += 1;
                }
                // SAFETY: promised by the caller.
                unsafe { y.write_bytes(0, n + (place - from) * length) };
                continue;
            }
            // SAFETY: as above; bytes that are 0 are an element.
            let y = unsafe {
                y.write_bytes(0, n);
                std::slice::from_raw_parts_mut(y, n)
            };
            let sums = &mut sums[..n];
            sums.fill(0.0);
            for at in runs {
                let run = |at: usize| x.wrapping_add(by_place.order[at] as usize * length + first);
                if at + AHEAD < by_place.order.len() {
                    prefetch_all(run(at + AHEAD), n, Cache::First);
                }
                // SAFETY: promised by the caller.
                let terms = unsafe { std::slice::from_raw_parts(run(at), n) };
                if is_exact {
                    for i in 0..n {
                        y[i] = Arith::add(y[i], terms[i]);
                    }
                } else {
                    for i in 0..n {
                        sums[i] += Element::to_f64(terms[i]);
                    }
                }
            }
            if !is_exact {
                for i in 0..n {
                    y[i] = T::from_f64(sums[i]);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::kernels::naive::noise;
    use crate::ops::testing::Tensor;
    use crate::shape::Shape;
    use proptest::prelude::*;

    /// The values of the sums.
    fn sums(places: &[usize], count: usize, from: &Tensor) -> Vec<f64> {
        let length = from.shape.dims()[1];
        let to = Tensor::zeros(&Shape::new(&[count as i64, length]), from.dtype);
        add_runs(places, length as usize, &from.view(), &to.view());
        to.values()
    }

    proptest! {
        #[test]
        fn sums_match_naive(
            count in 1usize..40, runs in 0usize..90, length in 0usize..300,
            kind in 0usize..4, seed: u64,
        ) {
            let dtype = [DType::F32, DType::F64, DType::F16, DType::I32][kind];
            let place = |v: &f64| (v.abs() * count as f64) as usize % count;
            let places: Vec<usize> = noise(runs, seed).iter().map(place).collect();
            // Multiples of 1/8, whose sums every dtype but int32 has, and those are cut off before.
            let from = Tensor::noise(&[runs as i64, length as i64], seed ^ 1);
            let eighth = |v: &f64| (v * 16.0).round() / 8.0;
            let eighths: Vec<f64> = from.values().iter().map(eighth).collect();
            let from = Tensor::of(&[runs as i64, length as i64], &eighths).cast(dtype);
            let (terms, mut want) = (from.values(), vec![0.0; count * length]);
            for (run, place) in places.iter().enumerate() {
                for i in 0..length {
                    want[place * length + i] += terms[run * length + i];
                }
            }
            prop_assert_eq!(sums(&places, count, &from), want);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        let places: Vec<usize> = (0..3000).map(|i| i * i % 701).collect();
        let from = Tensor::noise(&[3000, 65], 5).cast(DType::F32);
        let alone = sums(&places, 701, &from);
        assert_eq!(crate::fork_join::tests::in_team(|| sums(&places, 701, &from)), alone);
    }
}
