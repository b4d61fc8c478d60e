//! A few channels woven into pixels, and apart again: transpositions of matrices with a few rows or
//! columns. With a constant number of channels the compiler makes shuffles of registers of these
//! loops.

/// Channels at most. Each number of them is compiled for itself.
pub const MOST: usize = 4;

crate::simd! {
    /// `to[C i + c] = from[c][i]` for `i` in `0..n`, where channel `c` is `c * step` elements on.
    ///
    /// # Safety
    /// Both hold these elements, and they do not overlap.
    unsafe fn weave_all[T: Copy, const C: usize][T, C](
        from: *const T, step: isize, to: *mut T, n: usize,
    ) -> () {
        let rows: [*const T; C] = std::array::from_fn(|c| from.wrapping_offset(c as isize * step));
        for i in 0..n {
            for c in 0..C {
                // SAFETY: promised by the caller.
                unsafe { *to.add(i.wrapping_mul(C).wrapping_add(c)) = *rows[c].add(i) };
            }
        }
    }

    /// The inverse of [`weave_all`].
    ///
    /// # Safety
    /// As there.
    unsafe fn part_all[T: Copy, const C: usize][T, C](
        from: *const T, to: *mut T, step: isize, n: usize,
    ) -> () {
        let rows: [*mut T; C] = std::array::from_fn(|c| to.wrapping_offset(c as isize * step));
        for i in 0..n {
            for c in 0..C {
                // SAFETY: as above.
                unsafe { *rows[c].add(i) = *from.add(i.wrapping_mul(C).wrapping_add(c)) };
            }
        }
    }
}

/// Makes `n` pixels of `channels` rows, 2 to [`MOST`], which are a distance apart.
///
/// # Safety
/// Both hold these elements, and they do not overlap.
pub unsafe fn weave<T: Copy>(
    channels: usize,
    (from, step): (*const T, isize),
    to: *mut T,
    n: usize,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match channels {
            2 => weave_all::<T, 2>(from, step, to, n),
            3 => weave_all::<T, 3>(from, step, to, n),
            _ => weave_all::<T, MOST>(from, step, to, n),
        }
    }
}

/// The inverse of [`weave`].
///
/// # Safety
/// As there.
pub unsafe fn part<T: Copy>(
    channels: usize,
    from: *const T,
    (to, step): (*mut T, isize),
    n: usize,
) {
    // SAFETY: as above.
    unsafe {
        match channels {
            2 => part_all::<T, 2>(from, to, step, n),
            3 => part_all::<T, 3>(from, to, step, n),
            _ => part_all::<T, MOST>(from, to, step, n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Copy + PartialEq + std::fmt::Debug>(of: fn(usize) -> T) {
        for (channels, n) in (2..=MOST).flat_map(|c| [0, 1, 7, 64, 301].map(|n| (c, n))) {
            let step = n + 3;
            let from: Vec<T> = (0..channels * step).map(of).collect();
            let (mut to, mut back) = (vec![of(0); channels * n], from.clone());
            for c in 0..channels {
                back[c * step..][..n].fill(of(0));
            }
            // SAFETY: the vectors hold these elements.
            unsafe {
                weave(channels, (from.as_ptr(), step as isize), to.as_mut_ptr(), n);
                part(channels, to.as_ptr(), (back.as_mut_ptr(), step as isize), n);
            }
            assert!((0..channels * n).all(|i| to[i] == from[i % channels * step + i / channels]));
            assert_eq!(back, from);
        }
    }

    #[test]
    fn channels_are_woven_and_come_apart() {
        check(|i| i as u8);
        check(|i| i as u16);
        check(|i| i as u32);
        check(|i| i as u64);
    }
}
