//! Pairs of elements apart and together again: what steps of two along a row need. The compiler
//! leaves the end of a plain loop to single elements, which is most of a short row.

/// Elements that are moved at once: counts are multiples of it.
pub const BLOCK: usize = 16;

/// `even[i] = from[2 i]` and `odd[i] = from[2 i + 1]` for `i` in `0..n`.
///
/// # Safety
/// `n` is a multiple of [`BLOCK`]; `even` and `odd` hold `n` elements, `from` twice as many, and
/// they do not overlap.
#[inline(always)]
pub unsafe fn split<T: Copy>(from: *const T, even: *mut T, odd: *mut T, n: usize) {
    // SAFETY: promised by the caller; elements of four and eight bytes are moved as numbers of that
    // size.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if super::level() >= super::Level::Avx512 {
            match size_of::<T>() {
                4 => return x86::split_4(from.cast(), even.cast(), odd.cast(), n),
                8 => return x86::split_8(from.cast(), even.cast(), odd.cast(), n),
                _ => {}
            }
        }
        #[cfg(target_arch = "aarch64")]
        match size_of::<T>() {
            4 => return arm64::split_4(from.cast(), even.cast(), odd.cast(), n),
            8 => return arm64::split_8(from.cast(), even.cast(), odd.cast(), n),
            _ => {}
        }
        for i in 0..n {
            *even.add(i) = *from.add(i.wrapping_mul(2));
            *odd.add(i) = *from.add(i.wrapping_mul(2).wrapping_add(1));
        }
    }
}

/// The inverse of [`split`].
///
/// # Safety
/// As there, with `to` for `from`.
#[inline(always)]
pub unsafe fn join<T: Copy>(even: *const T, odd: *const T, to: *mut T, n: usize) {
    // SAFETY: as above.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if super::level() >= super::Level::Avx512 {
            match size_of::<T>() {
                4 => return x86::join_4(even.cast(), odd.cast(), to.cast(), n),
                8 => return x86::join_8(even.cast(), odd.cast(), to.cast(), n),
                _ => {}
            }
        }
        #[cfg(target_arch = "aarch64")]
        match size_of::<T>() {
            4 => return arm64::join_4(even.cast(), odd.cast(), to.cast(), n),
            8 => return arm64::join_8(even.cast(), odd.cast(), to.cast(), n),
            _ => {}
        }
        for i in 0..n {
            *to.add(i.wrapping_mul(2)) = *even.add(i);
            *to.add(i.wrapping_mul(2).wrapping_add(1)) = *odd.add(i);
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    use std::arch::x86_64::*;

    /// Both directions for one size of elements, and the first for two registers.
    macro_rules! pairs {
        ($apart:ident, $split:ident, $join:ident, $elem:ty, $reg:ty, $lanes:literal, $index:ty,
         $of_index:ident, $load:ident, $store:ident, $permute:ident) => {
            /// The elements with even and with odd places of two registers.
            ///
            /// # Safety
            /// The machine has AVX-512.
            #[inline]
            #[target_feature(enable = "avx512f")]
            pub unsafe fn $apart(a: $reg, b: $reg) -> [$reg; 2] {
                const EVEN: [$index; $lanes] = {
                    let (mut places, mut i) = ([0; $lanes], 0);
                    while i < $lanes {
                        places[i] = 2 * i as $index;
                        i += 1;
                    }
                    places
                };
                const ODD: [$index; $lanes] = {
                    let (mut places, mut i) = (EVEN, 0);
                    while i < $lanes {
                        places[i] += 1;
                        i += 1;
                    }
                    places
                };
                // SAFETY: the array is a register of places.
                let even = unsafe { $of_index(EVEN.as_ptr().cast()) };
                // SAFETY: as above.
                let odd = unsafe { $of_index(ODD.as_ptr().cast()) };
                [$permute(a, even, b), $permute(a, odd, b)]
            }

            /// # Safety
            /// As [`super::split`].
            #[inline]
            #[target_feature(enable = "avx512f")]
            pub unsafe fn $split(from: *const $elem, even: *mut $elem, odd: *mut $elem, n: usize) {
                // SAFETY: promised by the caller.
                unsafe {
                    for i in (0..n).step_by($lanes) {
                        let [a, b] =
                            $apart($load(from.add(2 * i)), $load(from.add(2 * i + $lanes)));
                        $store(even.add(i), a);
                        $store(odd.add(i), b);
                    }
                }
            }

            /// # Safety
            /// As [`super::join`].
            #[inline]
            #[target_feature(enable = "avx512f")]
            pub unsafe fn $join(even: *const $elem, odd: *const $elem, to: *mut $elem, n: usize) {
                const FIRST: [$index; $lanes] = {
                    let (mut places, mut i) = ([0; $lanes], 0);
                    while i < $lanes {
                        places[i] = (i / 2 + i % 2 * $lanes) as $index;
                        i += 1;
                    }
                    places
                };
                const SECOND: [$index; $lanes] = {
                    let (mut places, mut i) = (FIRST, 0);
                    while i < $lanes {
                        places[i] += $lanes / 2;
                        i += 1;
                    }
                    places
                };
                // SAFETY: promised by the caller.
                unsafe {
                    let places =
                        [$of_index(FIRST.as_ptr().cast()), $of_index(SECOND.as_ptr().cast())];
                    for i in (0..n).step_by($lanes) {
                        let (a, b) = ($load(even.add(i)), $load(odd.add(i)));
                        $store(to.add(2 * i), $permute(a, places[0], b));
                        $store(to.add(2 * i + $lanes), $permute(a, places[1], b));
                    }
                }
            }
        };
    }

    pairs!(
        apart_4,
        split_4,
        join_4,
        f32,
        __m512,
        16,
        i32,
        _mm512_loadu_si512,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_permutex2var_ps
    );
    pairs!(
        apart_8,
        split_8,
        join_8,
        f64,
        __m512d,
        8,
        i64,
        _mm512_loadu_si512,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_permutex2var_pd
    );
}

#[cfg(target_arch = "aarch64")]
mod arm64 {
    use std::arch::aarch64::*;

    /// Both directions for one size of elements, by loads and stores of two registers.
    macro_rules! pairs {
        ($split:ident, $join:ident, $elem:ty, $lanes:literal, $two:ident,
         $load:ident, $store:ident, $load_two:ident, $store_two:ident) => {
            /// # Safety
            /// As [`super::split`].
            #[inline]
            #[target_feature(enable = "neon")]
            pub unsafe fn $split(from: *const $elem, even: *mut $elem, odd: *mut $elem, n: usize) {
                for i in (0..n).step_by($lanes) {
                    // SAFETY: promised by the caller.
                    unsafe {
                        let two = $load_two(from.add(2 * i));
                        $store(even.add(i), two.0);
                        $store(odd.add(i), two.1);
                    }
                }
            }

            /// # Safety
            /// As [`super::join`].
            #[inline]
            #[target_feature(enable = "neon")]
            pub unsafe fn $join(even: *const $elem, odd: *const $elem, to: *mut $elem, n: usize) {
                for i in (0..n).step_by($lanes) {
                    // SAFETY: promised by the caller.
                    unsafe {
                        let two = $two($load(even.add(i)), $load(odd.add(i)));
                        $store_two(to.add(2 * i), two);
                    }
                }
            }
        };
    }

    pairs!(split_4, join_4, f32, 4, float32x4x2_t, vld1q_f32, vst1q_f32, vld2q_f32, vst2q_f32);
    pairs!(split_8, join_8, f64, 2, float64x2x2_t, vld1q_f64, vst1q_f64, vld2q_f64, vst2q_f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Copy + PartialEq + std::fmt::Debug>(of: fn(usize) -> T) {
        for n in [0, BLOCK, 3 * BLOCK] {
            let from: Vec<T> = (0..2 * n).map(of).collect();
            let [mut even, mut odd] = [0; 2].map(|_| vec![of(0); n]);
            let mut to = vec![of(0); 2 * n];
            // SAFETY: the vectors hold these elements.
            unsafe {
                split(from.as_ptr(), even.as_mut_ptr(), odd.as_mut_ptr(), n);
                join(even.as_ptr(), odd.as_ptr(), to.as_mut_ptr(), n);
            }
            assert!((0..n).all(|i| even[i] == of(2 * i) && odd[i] == of(2 * i + 1)), "{even:?}");
            assert_eq!(to, from);
        }
    }

    #[test]
    fn pairs_come_apart_and_together() {
        check(|i| i as f32);
        check(|i| i as f64);
        check(|i| i as u8);
    }
}
