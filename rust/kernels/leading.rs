//! The few elements of a line that come first in order: the line is read once, many elements at a
//! time, of which most are none of them.

use crate::dtype::Element;
use std::cmp::Ordering;

/// At most as many are found.
pub const FEW: usize = 32;
/// Elements that are compared together.
const BLOCK: usize = 16;

/// NaN above everything.
#[inline(always)]
pub fn compare<T: PartialOrd>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| {
        let is_nan = |v: &T| v.partial_cmp(v).is_none();
        is_nan(&a).cmp(&is_nan(&b))
    })
}

/// The order of `a` and `b` in a line that rises or falls.
#[inline(always)]
pub fn in_order<T: PartialOrd>(a: T, b: T, ascend: bool) -> Ordering {
    if ascend { compare(a, b) } else { compare(b, a) }
}

crate::simd! {
    /// Writes the places of the `count` elements that come first in order, of `len` that are `step`
    /// apart; equal ones keep their order.
    ///
    /// # Safety
    /// The line is readable; `count` is at most `len` and [`FEW`].
    pub unsafe fn leading[T: Element][T](
        line: *const T, len: usize, step: usize, ascend: bool, count: usize,
        places: &mut [usize; FEW],
    ) -> () {
        if count == 0 {
            return;
        }
        // SAFETY: below `len`, as all places here are.
        let at = |i: usize| unsafe { *line.add(i * step) };
        let (mut values, mut found) = ([at(0); FEW], 0);
        for start in (0..len).step_by(BLOCK) {
            let n = BLOCK.min(len - start);
            let mut block = [at(start); BLOCK];
            if step == 1 && n == BLOCK {
                // SAFETY: the block lies in the line.
                block = unsafe { line.add(start).cast::<[T; BLOCK]>().read() };
            } else {
                for i in 1..n {
                    block[i] = at(start + i);
                }
            }
            if found == count {
                // What comes before the last one found, and what is NaN or beside NaN.
                let last = values[count - 1];
                let mut may = false;
                if ascend {
                    for v in &block {
                        may |= !(*v >= last);
                    }
                } else {
                    for v in &block {
                        may |= !(*v <= last);
                    }
                }
                if !may {
                    continue;
                }
            }
            for (i, &v) in block[..n].iter().enumerate() {
                if found < count {
                    found += 1;
                } else if in_order(v, values[count - 1], ascend).is_ge() {
                    continue;
                }
                let mut to = found - 1;
                while to > 0 && in_order(v, values[to - 1], ascend).is_lt() {
                    (values[to], places[to]) = (values[to - 1], places[to - 1]);
                    to -= 1;
                }
                (values[to], places[to]) = (v, start + i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_leads_are_the_first_places_of_a_stable_sort(
            line in prop::collection::vec(prop_oneof![
                4 => (-9..9i32).prop_map(|v| v as f32),
                1 => Just(f32::NAN),
                1 => prop::num::f32::ANY,
            ], 0..200),
            step in 1..4usize,
            count in 0..=FEW,
            ascend: bool,
        ) {
            let len = line.len().div_ceil(step);
            let count = count.min(len);
            let mut all: Vec<usize> = (0..len).collect();
            all.sort_by(|&i, &j| in_order(line[i * step], line[j * step], ascend));
            let mut places = [usize::MAX; FEW];
            // SAFETY: `len` elements `step` apart lie in the line.
            unsafe { leading(line.as_ptr(), len, step, ascend, count, &mut places) };
            prop_assert_eq!(&places[..count], &all[..count]);
            prop_assert!(places[count..].iter().all(|p| *p == usize::MAX));
            let whole: Vec<i32> = line.iter().map(|v| *v as i32).collect();
            all.sort_unstable();
            all.sort_by(|&i, &j| in_order(whole[i * step], whole[j * step], ascend));
            // SAFETY: as above.
            unsafe { leading(whole.as_ptr(), len, step, ascend, count, &mut places) };
            prop_assert_eq!(&places[..count], &all[..count]);
        }
    }
}
