//! Maxima and sums of narrow windows whose strides are 1 or 2, in registers.
//!
//! A register holds what as many neighbouring windows read of one column each: a stretch of the
//! row, or with a stride of 2 its even or its odd places. The rows of the windows are joined first.
//! The columns beside a stretch come in one by one, so that stretches do not depend on each other.
//! A window is joined in one order, whatever the register.

use super::lanes::Lanes;
use super::rows::{Greatest, Join, Total, set_counts};
use super::{Pool, PoolKind};
use crate::dtype::Element;
use crate::kernels::arch::Level;
use crate::kernels::gemm::vector::{Portable, Vector};
use crate::kernels::scalar::Scalar;

/// Windows reach this many columns beyond those of their stride, at most: each is read again for
/// every register.
const REACH: usize = 3;

/// The windows of a plane, from `x` to `y`; widths as for `rows::forward`.
///
/// # Safety
/// The machine has the function's instructions. `x` and `y` are planes of input and output, whose
/// rows are those of the pooling and long enough for a register.
pub type PlaneFn<T> = unsafe fn(&Pool, x: *const T, y: *mut T, widths: &mut [T]);

/// The functions for one kind of register.
pub struct Planes<T: 'static> {
    /// Elements of a register.
    lanes: usize,
    /// By stride - 1: maxima, and sums.
    all: [[PlaneFn<T>; 2]; 2],
}

impl Pool {
    /// The windows of a row whose stretch of the row has all elements: the first ones.
    #[inline(always)]
    fn whole(&self) -> usize {
        self.output[2].min(self.input[2] / self.stride[2])
    }

    /// The functions of `level` for this pooling, those with the widest registers first.
    pub(super) fn in_registers<T: Pooled>(
        &self,
        level: Level,
    ) -> impl Iterator<Item = PlaneFn<T>> + use<T> {
        let (kernel, stride, whole) = (self.kernel[2], self.stride[2], self.whole());
        let narrow = stride <= 2 && kernel <= stride + REACH && self.pad[2] < kernel;
        let join = match self.kind {
            PoolKind::Max => Some(0),
            PoolKind::Norm { .. } => None,
            _ => self.adds_few().then_some(1),
        };
        let planes = join.filter(|_| narrow).map(|join| {
            let fits = T::planes_of(level).iter().filter(move |planes| planes.lanes <= whole);
            fits.map(move |planes| planes.all[stride - 1][join])
        });
        planes.into_iter().flatten()
    }
}

/// The rows that a line of windows reads: those of some layers, one after the other.
struct Line<T> {
    first: *const T,
    layers: usize,
    /// Elements from layer to layer.
    layer: usize,
    rows: usize,
    /// Elements of a row.
    width: usize,
}

impl<T: Scalar> Line<T> {
    /// Column `at` of all rows joined, of which there may be none.
    ///
    /// # Safety
    /// The rows exist.
    #[inline(always)]
    unsafe fn column<J: Join<T>>(&self, at: isize) -> T {
        let mut all = J::start();
        if (0..self.width as isize).contains(&at) {
            for layer in 0..self.layers {
                let mut from = self.first.wrapping_add(layer * self.layer).wrapping_offset(at);
                for _ in 0..self.rows {
                    // SAFETY: promised by the caller.
                    all = J::join(all, unsafe { *from });
                    from = from.wrapping_add(self.width);
                }
            }
        }
        all
    }

    /// A register of columns from `at` on, all rows joined.
    ///
    /// # Safety
    /// The rows have these elements, and the machine the register's instructions.
    #[inline(always)]
    unsafe fn columns<V: Lanes<Elem = T>, J: Join<T>>(&self, at: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe {
            let mut all = V::splat(J::start());
            for layer in 0..self.layers {
                let mut from = self.first.wrapping_add(layer * self.layer + at);
                for _ in 0..self.rows {
                    all = J::join_all(all, V::load(from));
                    from = from.wrapping_add(self.width);
                }
            }
            all
        }
    }

    /// The windows that have the columns from `at` on where their padding ends: the columns of the
    /// stride first, then those behind, then the padding.
    ///
    /// # Safety
    /// As [`Line::columns`].
    #[inline(always)]
    unsafe fn windows<V: Lanes<Elem = T>, J: Join<T>, const STRIDE: usize>(
        &self,
        (kernel, pad): (usize, usize),
        at: usize,
    ) -> V {
        let behind = at + STRIDE * V::LEN;
        // SAFETY: promised by the caller.
        unsafe {
            // What the windows read of two columns, or twice of one.
            let mut now = [self.columns::<V, J>(at); 2];
            if STRIDE == 2 {
                now = now[0].halves(self.columns::<V, J>(at + V::LEN));
            }
            let (mut all, mut back) = (now[0], now);
            if STRIDE == 2 && pad + 1 < kernel {
                all = J::join_all(all, now[1]);
            }
            for beyond in 0..(kernel - pad).saturating_sub(STRIDE) {
                let next = now[0].forth(self.column::<J>((behind + beyond) as isize));
                all = J::join_all(all, next);
                now = [if STRIDE == 2 { now[1] } else { next }, next];
            }
            for before in 1..pad + 1 {
                let next = back[1].back(self.column::<J>(at as isize - before as isize));
                all = J::join_all(all, next);
                back = [next, if STRIDE == 2 { back[0] } else { next }];
            }
            all
        }
    }

    /// One window, in the same order.
    ///
    /// # Safety
    /// The rows have `width` elements.
    #[inline(always)]
    unsafe fn window<J: Join<T>>(&self, (kernel, pad): (usize, usize), at: isize) -> T {
        let mut all = J::start();
        // SAFETY: promised by the caller.
        unsafe {
            for tap in 0..(kernel - pad) as isize {
                all = J::join(all, self.column::<J>(at + tap));
            }
            for before in 1..pad as isize + 1 {
                all = J::join(all, self.column::<J>(at - before));
            }
        }
        all
    }
}

/// The windows of a plane.
///
/// # Safety
/// As [`PlaneFn`].
#[inline(always)]
unsafe fn plane<V: Lanes, J: Join<V::Elem>, const STRIDE: usize>(
    pool: &Pool,
    x: *const V::Elem,
    y: *mut V::Elem,
    widths: &mut [V::Elem],
) {
    let ([out_d, out_h, out_w], [_, high, width]) = (pool.output, pool.input);
    let (taps, whole) = ((pool.kernel[2], pool.pad[2]), pool.whole());
    let mut counted = V::Elem::from_f64(0.0);
    let mut y = y;
    for d in 0..out_d {
        let layers = pool.extent(0, d).0;
        for h in 0..out_h {
            let rows = pool.extent(1, h).0;
            let line = Line {
                first: x.wrapping_add((layers.start * high + rows.start) * width),
                layers: layers.len(),
                layer: high * width,
                rows: rows.len(),
                width,
            };
            let counts = match widths.is_empty() {
                true => std::ptr::null(),
                false => set_counts(widths, &mut counted, pool.height((d, h))),
            };
            // SAFETY: promised by the caller; registers end within the rows.
            unsafe {
                for first in (0..whole).step_by(V::LEN) {
                    let first = first.min(whole - V::LEN);
                    let mut all: V = line.windows::<V, J, STRIDE>(taps, first * STRIDE);
                    if !counts.is_null() {
                        all = all.div(V::load(counts.add(first)));
                    }
                    all.store(y.add(first));
                }
                for at in whole..out_w {
                    let mut all = line.window::<J>(taps, (at * STRIDE) as isize);
                    if !counts.is_null() {
                        all /= *counts.add(at);
                    }
                    *y.add(at) = all;
                }
            }
            y = y.wrapping_add(out_w);
        }
    }
}

/// Defines a module with [`plane`] compiled with the given features.
macro_rules! compiled {
    ($name:ident $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// As [`PlaneFn`].
            $(#[target_feature(enable = $features)])?
            pub unsafe fn run<V: Lanes, J: Join<V::Elem>, const STRIDE: usize>(
                pool: &Pool,
                x: *const V::Elem,
                y: *mut V::Elem,
                widths: &mut [V::Elem],
            ) {
                // SAFETY: promised by the caller.
                unsafe { plane::<V, J, STRIDE>(pool, x, y, widths) }
            }
        }
    };
}

compiled!(baseline);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

/// The functions of one instruction set, those with the widest registers
/// first.
macro_rules! planes {
    ($set:ident, $($vector:ty),*) => {
        &[$(Planes {
            lanes: <$vector as Vector>::LEN,
            all: [planes!($set, $vector; 1), planes!($set, $vector; 2)],
        }),*]
    };
    ($set:ident, $vector:ty; $stride:literal) => {
        [$set::run::<$vector, Greatest, $stride>, $set::run::<$vector, Total, $stride>]
    };
}

/// An element type that is pooled in registers.
pub trait Pooled: Sized + 'static {
    /// The functions of `level`, which this machine must have for them to be called.
    fn planes_of(level: Level) -> &'static [Planes<Self>];
}

impl Pooled for f32 {
    fn planes_of(level: Level) -> &'static [Planes<f32>] {
        #[cfg(target_arch = "x86_64")]
        use std::arch::x86_64::{__m256, __m512};
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => planes!(avx512, __m512, __m256, Portable<f32, 4>),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => planes!(avx2, __m256, Portable<f32, 4>),
            _ => planes!(baseline, Portable<f32, 4>),
        }
    }
}

impl Pooled for f64 {
    fn planes_of(level: Level) -> &'static [Planes<f64>] {
        #[cfg(target_arch = "x86_64")]
        use std::arch::x86_64::{__m256d, __m512d};
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => planes!(avx512, __m512d, __m256d, Portable<f64, 2>),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => planes!(avx2, __m256d, Portable<f64, 2>),
            _ => planes!(baseline, Portable<f64, 2>),
        }
    }
}
