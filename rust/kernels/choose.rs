//! Choosing between the elements of two arrays by a condition.

use super::parallel::{Shared, parallel_for};
use crate::dtype::Element;

/// Elements a task handles.
const GRAIN: usize = 1 << 15;

/// Which elements to choose: condition `i` applies to the `per` elements from `i * per` on.
#[derive(Clone, Copy)]
pub struct Condition<C> {
    pub at: *const C,
    pub count: usize,
    pub per: usize,
}

/// `out = x` where the condition is not 0, else `y`; a null operand stands for zeros.
///
/// # Safety
/// The arrays hold `count * per` elements, whose zero is all zero bytes, and `out` overlaps
/// neither.
pub unsafe fn choose<C: Element, U: Copy + Default + Send + Sync>(
    condition: Condition<C>,
    x: *const U,
    y: *const U,
    out: *mut U,
) {
    let (c, per) = (Shared(condition.at.cast_mut()), condition.per);
    let (x, y, out) = (Shared(x.cast_mut()), Shared(y.cast_mut()), Shared(out));
    parallel_for(condition.count, GRAIN.div_ceil(per.max(1)), |range| {
        let of = |p: Shared<U>, i: usize| match p.ptr().is_null() {
            true => std::ptr::null(),
            // SAFETY: element `i` exists.
            false => unsafe { p.at(i).cast_const() },
        };
        // SAFETY: promised by the caller; ranges are apart.
        unsafe {
            let (first, n) = (range.start, range.len());
            if per == 1 {
                let (c, out) = (c.at(first).cast_const(), out.at(first));
                match (x.ptr().is_null(), y.ptr().is_null()) {
                    (false, false) => elements(c, of(x, first), of(y, first), out, n),
                    (true, _) => only::<C, U, false>(c, of(y, first), out, n),
                    (false, true) => only::<C, U, true>(c, of(x, first), out, n),
                }
                return;
            }
            for i in range {
                let from = of(if *c.at(i) != C::default() { x } else { y }, i * per);
                let to = out.at(i * per);
                if from.is_null() {
                    to.write_bytes(0, per);
                } else {
                    to.copy_from_nonoverlapping(from, per);
                }
            }
        }
    });
}

crate::simd! {
    /// A choice for every element.
    ///
    /// # Safety
    /// All hold `n` elements.
    unsafe fn elements[C: Element, U: Copy][C, U](
        c: *const C, x: *const U, y: *const U, out: *mut U, n: usize,
    ) -> () {
        for i in 0..n {
            // SAFETY: promised by the caller.
            unsafe {
                let (x, y) = (*x.add(i), *y.add(i));
                *out.add(i) = if *c.add(i) != C::default() { x } else { y };
            }
        }
    }

    /// The elements of `x` where the condition is as `WANTED`, else 0.
    ///
    /// # Safety
    /// All hold `n` elements.
    unsafe fn only[C: Element, U: Copy + Default, const WANTED: bool][C, U, WANTED](
        c: *const C, x: *const U, out: *mut U, n: usize,
    ) -> () {
        for i in 0..n {
            // SAFETY: promised by the caller.
            unsafe {
                let x = *x.add(i);
                *out.add(i) = if (*c.add(i) != C::default()) == WANTED { x } else { U::default() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_chosen_by_its_condition() {
        for (count, per) in [(0, 1), (1, 1), (77, 1), (70_000, 1), (5, 3), (3, 0), (9, 40_000)] {
            let conditions: Vec<f32> =
                (0..count).map(|i| [0.0, 1.0, f32::NAN, -0.0, -3.0][i * 7 % 5]).collect();
            let condition = Condition { at: conditions.as_ptr(), count, per };
            let x: Vec<u32> = (1..=count * per).map(|i| i as u32).collect();
            let y: Vec<u32> = x.iter().map(|x| x + 1_000_000).collect();
            for (with_x, with_y) in [(true, true), (true, false), (false, true)] {
                let mut out = vec![9; x.len()];
                let of = |v: &[u32], yes| if yes { v.as_ptr() } else { std::ptr::null() };
                // SAFETY: the arrays have these extents.
                unsafe { choose(condition, of(&x, with_x), of(&y, with_y), out.as_mut_ptr()) };
                for (i, got) in out.iter().enumerate() {
                    let (from, is_there) =
                        if conditions[i / per] != 0.0 { (&x, with_x) } else { (&y, with_y) };
                    assert_eq!(*got, if is_there { from[i] } else { 0 }, "{count} {per} {i}");
                }
            }
        }
    }
}
