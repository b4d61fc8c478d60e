//! Moving elements: copies with conversion, sums in place, strided regions, gather and scatter.
//! Used by the executor layer and by arrays themselves, below any operator.

use super::arith::Arith;
use super::parallel::{Shared, parallel_for};
use crate::dtype::{DType, Element, convert};
use crate::shape::Dims;
use crate::tensor::View;
use crate::with_dtype;

const GRAIN: usize = 32 * 1024;

/// `to += from`; equal sizes and dtypes.
pub fn add(from: &View, to: &View) {
    trait Sum: Element {
        fn sum(self, other: Self) -> Self;
    }
    macro_rules! sums {
        ($($t:ty => $f:expr),*) => {$(impl Sum for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $f; f(self, other) }
        })*};
    }
    sums!(f32 => |a, b| a + b, f64 => |a, b| a + b,
          half::f16 => Arith::add,
          u8 => u8::wrapping_add, i8 => i8::wrapping_add, i32 => i32::wrapping_add,
          i64 => i64::wrapping_add, bool => |a, b| a | b);
    with_dtype!(from.dtype(), T => {
        let (src, dst) = (Shared(from.as_ptr::<T>()), Shared(to.as_ptr::<T>()));
        parallel_for(from.size(), GRAIN, |range| for i in range {
            // SAFETY: both views hold `size` elements and ranges are disjoint; plain pointer
            // access, so it does not matter if the views are the same bytes.
            unsafe { *dst.at(i) = (*dst.at(i)).sum(*src.at(i)) }
        });
    });
}

/// Sets every element to `value`, converted to the dtype.
pub fn fill(to: &View, value: f64) {
    with_dtype!(to.dtype(), T => {
        let (y, value) = (Shared(to.as_ptr::<T>()), T::from_f64(value));
        parallel_for(to.size(), GRAIN, |r| {
            // SAFETY: a range of the view; tasks have ranges of their own.
            unsafe { std::slice::from_raw_parts_mut(y.at(r.start), r.len()) }.fill(value);
        });
    });
}

/// Returns true if the first element is not zero. The view has one.
pub fn first_is_true(view: &View) -> bool {
    // SAFETY: the view holds an element of its dtype.
    with_dtype!(view.dtype(), T => unsafe { *view.as_ptr::<T>() }.to_f64() != 0.0)
}

/// `to = from`, converting the dtype; equal sizes. The views may overlap if they have one dtype.
pub fn copy(from: &View, to: &View) {
    if from.dtype() == to.dtype() {
        return copy_bytes(from, to);
    }
    with_dtype!(from.dtype(), S => with_dtype!(to.dtype(), D => {
        let (src, dst) = (Shared(from.as_ptr::<S>()), Shared(to.as_ptr::<D>()));
        parallel_for(from.size(), GRAIN, |range| {
            // SAFETY: both views hold `size` elements and ranges are disjoint.
            unsafe { convert_all::<S, D>(src.at(range.start), dst.at(range.start), range.len()) }
        });
    }));
}

crate::simd! {
    /// Converts `n` elements.
    ///
    /// # Safety
    /// Both hold so many, and are apart.
    pub unsafe fn convert_all[S: Element, D: Element][S, D](
        from: *const S, to: *mut D, n: usize
    ) -> () {
        for i in 0..n {
            // SAFETY: promised by the caller.
            unsafe { *to.add(i) = convert::<S, D>(*from.add(i)) };
        }
    }
}

fn copy_bytes(from: &View, to: &View) {
    let n = from.size_bytes();
    if from.ptr() == to.ptr() || n == 0 {
        return;
    }
    if from.overlaps(to) {
        // SAFETY: both views hold this many bytes; `copy` allows overlap.
        return unsafe { std::ptr::copy(from.ptr(), to.ptr(), n) };
    }
    let (src, dst) = (Shared(from.ptr()), Shared(to.ptr()));
    parallel_for(n, 8 * GRAIN, |range| {
        // SAFETY: both views hold `n` bytes and are apart; ranges are disjoint.
        unsafe {
            std::ptr::copy_nonoverlapping(src.at(range.start), dst.at(range.start), range.len())
        }
    });
}

/// One axis of a strided copy: extent and steps in elements.
#[derive(Clone, Copy)]
struct Axis {
    extent: usize,
    from: isize,
    to: isize,
}

/// Axes without those of extent 1, neighbours merged where both sides allow it.
fn collapse(extents: &[i64], from: &[i64], to: &[i64]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for ((&extent, &from), &to) in extents.iter().zip(from).zip(to) {
        let axis = Axis { extent: extent as usize, from: from as isize, to: to as isize };
        if extent == 1 {
            continue;
        }
        if let Some(last) = axes.last_mut() {
            let n = axis.extent as isize;
            if last.from == axis.from * n && last.to == axis.to * n {
                *last = Axis { extent: last.extent * axis.extent, ..axis };
                continue;
            }
        }
        axes.push(axis);
    }
    axes
}

/// Copies a region of `extents` elements: `to[offset_to + i·steps_to] = from[offset_from +
/// i·steps_from]`. Offsets and steps count elements; a step of 0 repeats. Both views have one
/// dtype; they do not overlap.
pub fn copy_strided(
    from: &View,
    offset_from: usize,
    steps_from: &[i64],
    to: &View,
    offset_to: usize,
    steps_to: &[i64],
    extents: &[i64],
) {
    if extents.contains(&0) {
        return;
    }
    let axes = collapse(extents, steps_from, steps_to);
    with_dtype!(from.dtype(), T => {
        // SAFETY: the caller's regions lie inside of the views.
        unsafe {
            let src = from.as_ptr::<T>().cast_const().add(offset_from);
            walk(&axes, src, to.as_ptr::<T>().add(offset_to));
        }
    });
}

/// # Safety
/// Every element that the axes address must be valid on both sides.
unsafe fn walk<T: Element>(axes: &[Axis], from: *const T, to: *mut T) {
    // SAFETY: the steps stay inside of the regions the caller vouches for.
    unsafe {
        match axes {
            [] => *to = *from,
            [a] if a.from == 1 && a.to == 1 => std::ptr::copy_nonoverlapping(from, to, a.extent),
            [a] if a.from == 0 && a.to == 1 => {
                std::slice::from_raw_parts_mut(to, a.extent).fill(*from);
            }
            [a] => {
                for i in 0..a.extent as isize {
                    *to.offset(i * a.to) = *from.offset(i * a.from);
                }
            }
            [a, rest @ ..] => {
                for i in 0..a.extent as isize {
                    walk(rest, from.offset(i * a.from), to.offset(i * a.to));
                }
            }
        }
    }
}

/// `to[i] = from[positions[i]]`; positions are inside of `from`, one dtype.
pub fn gather(from: &View, positions: &[i64], to: &View) {
    with_dtype!(from.dtype(), T => {
        let (src, dst) = (Shared(from.as_ptr::<T>()), Shared(to.as_ptr::<T>()));
        parallel_for(positions.len(), GRAIN, |range| for i in range {
            // SAFETY: the caller checked the positions; `to` holds as many elements as there are.
            unsafe { *dst.at(i) = *src.at(positions[i] as usize) }
        });
    });
}

/// `to[positions[i]] = from[i]`, in order, so that the last of equal positions wins; one dtype.
pub fn scatter(from: &View, positions: &[i64], to: &View) {
    with_dtype!(from.dtype(), T => {
        let (src, dst) = (from.as_ptr::<T>(), to.as_ptr::<T>());
        for (i, &at) in positions.iter().enumerate() {
            // SAFETY: the caller checked the positions; `from` holds as many elements as there are.
            unsafe { *dst.add(at as usize) = *src.add(i) }
        }
    });
}

/// Whether every element of the region lies within `size` elements.
pub fn region_fits(size: usize, offset: usize, extents: &[i64], steps: &[i64]) -> bool {
    if extents.contains(&0) {
        return true;
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (&extent, &step) in extents.iter().zip(steps) {
        let reach = (extent as i128 - 1) * step as i128;
        if reach < 0 { low += reach } else { high += reach }
    }
    extents.len() == steps.len() && low >= 0 && high < size as i128
}

/// Row-major strides of `extents`.
pub fn row_major(extents: &[i64]) -> Dims {
    crate::Shape::new(extents).strides()
}

/// An owned scratch buffer, aligned to a cache line.
pub struct Buffer {
    memory: Vec<u64>,
    skip: usize,
}

impl Buffer {
    pub fn new(bytes: usize) -> Self {
        let mut memory: Vec<u64> = vec![0; (bytes + crate::storage::ALIGN).div_ceil(8)];
        let skip = memory.as_mut_ptr().cast::<u8>().align_offset(crate::storage::ALIGN);
        Buffer { memory, skip }
    }

    /// As [`Buffer::new`], for sizes that do not follow from those of arrays: there may not be
    /// enough memory.
    pub fn try_new(bytes: usize) -> Option<Self> {
        let words = bytes.checked_add(crate::storage::ALIGN)?.div_ceil(8);
        let mut memory: Vec<u64> = Vec::new();
        memory.try_reserve_exact(words).ok()?;
        memory.resize(words, 0);
        let skip = memory.as_mut_ptr().cast::<u8>().align_offset(crate::storage::ALIGN);
        Some(Buffer { memory, skip })
    }

    /// A view of the bytes from `offset` on; valid as long as the buffer.
    pub fn view(&mut self, offset: usize, shape: crate::Shape, dtype: DType) -> View {
        let bytes = shape.size() * dtype.size();
        assert!(
            self.skip + offset + bytes <= self.memory.len() * 8,
            "a view of what the buffer holds"
        );
        let ptr = self.memory.as_mut_ptr().cast::<u8>().wrapping_add(self.skip + offset);
        // SAFETY: the bytes are inside of the buffer, and callers keep it as long as the view.
        unsafe { View::new(ptr, shape, dtype) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use proptest::prelude::*;

    fn view(data: &mut [f32]) -> View {
        let shape = Shape::new(&[data.len() as i64]);
        // SAFETY: tests keep the data alive.
        unsafe { View::new(data.as_mut_ptr().cast(), shape, DType::F32) }
    }

    proptest! {
        #[test]
        fn strided_copies_match_naive(
            extents in proptest::collection::vec(0i64..5, 1..4),
            repeat in proptest::collection::vec(any::<bool>(), 4),
            flip in proptest::collection::vec(any::<bool>(), 4),
        ) {
            let full = row_major(&extents);
            let size = extents.iter().product::<i64>() as usize;
            let mut offset = 0i64;
            let mut from_steps = full.clone();
            for (i, s) in from_steps.iter_mut().enumerate() {
                if repeat[i] {
                    *s = 0;
                } else if flip[i] && extents[i] > 0 {
                    offset += *s * (extents[i] - 1);
                    *s = -*s;
                }
            }
            let mut src: Vec<f32> = (0..size.max(1)).map(|x| x as f32).collect();
            let mut dst = vec![-1f32; size.max(1)];
            prop_assert!(region_fits(src.len(), offset as usize, &extents, &from_steps));
            copy_strided(&view(&mut src), offset as usize, &from_steps, &view(&mut dst), 0, &full, &extents);
            for flat in 0..size as i64 {
                let mut rest = flat;
                let mut at = offset;
                for (i, s) in full.iter().enumerate() {
                    at += rest / s * from_steps[i];
                    rest %= s;
                }
                prop_assert_eq!(dst[flat as usize], src[at as usize]);
            }
        }
    }

    #[test]
    fn regions_outside_are_refused() {
        assert!(!region_fits(6, 0, &[2, 4], &[3, 1]));
        assert!(!region_fits(6, 0, &[2], &[-1]));
        assert!(region_fits(6, 5, &[2, 3], &[-3, -1]));
    }
}
