//! A call of an element-wise kernel on memory that stays, reduced to its loop.

use super::elementwise::{BinaryLoop, TernaryLoop, binary, ternary};

/// The bytes of an element, on an address that every dtype can have.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Element([u8; 8]);

#[derive(Clone, Copy)]
enum Run {
    Binary(BinaryLoop),
    /// With the address of the output gradient.
    Ternary(TernaryLoop, *const u8),
}

/// An operand of a loop.
#[derive(Clone, Copy)]
pub enum Operand {
    /// The address of as many elements as the output has.
    Array(*const u8),
    /// The bytes of one element, which stands for all.
    Number([u8; 8]),
}

/// What is left of a call when kernel, dtypes, extents and addresses are known: no dtype is looked
/// up, no attribute read.
#[derive(Clone, Copy)]
pub struct FixedLoop {
    run: Run,
    /// Null stands for `number`.
    operands: [*const u8; 2],
    number: Element,
    out: *mut u8,
    n: usize,
    /// Bytes of an element.
    size: usize,
}

// SAFETY: only addresses; whoever calls `run` promises that they may be used.
unsafe impl Send for FixedLoop {}
// SAFETY: as above.
unsafe impl Sync for FixedLoop {}

impl FixedLoop {
    /// `out = f(a, b)` over `n` elements of `size` bytes, of which at most one is a number.
    pub fn binary(
        run: BinaryLoop,
        size: usize,
        operands: [Operand; 2],
        out: *mut u8,
        n: usize,
    ) -> Self {
        Self::new(Run::Binary(run), size, operands, out, n)
    }

    /// `out = f(g, a, b)`, as [`FixedLoop::binary`].
    pub fn ternary(
        run: TernaryLoop,
        size: usize,
        g: *const u8,
        operands: [Operand; 2],
        out: *mut u8,
        n: usize,
    ) -> Self {
        Self::new(Run::Ternary(run, g), size, operands, out, n)
    }

    fn new(run: Run, size: usize, operands: [Operand; 2], out: *mut u8, n: usize) -> Self {
        let mut number = Element([0; 8]);
        let operands = operands.map(|operand| match operand {
            Operand::Array(at) => at,
            Operand::Number(bytes) => {
                number.0 = bytes;
                std::ptr::null()
            }
        });
        FixedLoop { run, operands, number, out, n, size }
    }

    /// Runs the loop, split between threads.
    ///
    /// # Safety
    /// The addresses are valid for the loop, as [`binary`] and [`ternary`] ask, and nothing else
    /// writes there meanwhile.
    #[inline]
    pub unsafe fn run(&self) {
        let number = self.number.0.as_ptr();
        let operands = self.operands.map(|at| if at.is_null() { number } else { at });
        let steps = self.operands.map(|at| usize::from(!at.is_null()));
        // SAFETY: promised by the caller; a number is one element, with step 0.
        unsafe {
            match self.run {
                Run::Binary(run) => binary(run, self.size, operands, self.out, self.n, steps),
                Run::Ternary(run, g) => {
                    ternary(run, self.size, g, operands, self.out, self.n, steps)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::map::GRAIN;

    /// `out = a - b`, of float32.
    ///
    /// # Safety
    /// As a [`BinaryLoop`].
    unsafe fn difference(a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]) {
        let (a, b, out) = (a.cast::<f32>(), b.cast::<f32>(), out.cast::<f32>());
        for i in 0..n {
            // SAFETY: promised by the caller.
            unsafe { *out.add(i) = *a.add(i * steps[0]) - *b.add(i * steps[1]) };
        }
    }

    /// `out = g * (a - b)`, of float32.
    ///
    /// # Safety
    /// As a [`TernaryLoop`].
    unsafe fn slope(
        g: *const u8,
        a: *const u8,
        b: *const u8,
        out: *mut u8,
        n: usize,
        steps: [usize; 2],
    ) {
        let (g, a, b, out) = (g.cast::<f32>(), a.cast::<f32>(), b.cast::<f32>(), out.cast::<f32>());
        for i in 0..n {
            // SAFETY: promised by the caller.
            unsafe { *out.add(i) = *g.add(i) * (*a.add(i * steps[0]) - *b.add(i * steps[1])) };
        }
    }

    #[test]
    fn numbers_stand_for_every_element_on_either_side() {
        for n in [0, 1, 5, GRAIN, 2 * GRAIN + 3] {
            let x: Vec<f32> = (0..n).map(|i| (i % 97) as f32).collect();
            let two = Operand::Number([2f32.to_ne_bytes(), [0; 4]].concat().try_into().unwrap());
            let array = Operand::Array(x.as_ptr().cast());
            let mut out = vec![0f32; n];
            let to: *mut u8 = out.as_mut_ptr().cast();
            let values = |made: FixedLoop| {
                // SAFETY: arrays of `n` elements.
                unsafe { made.run() };
                // SAFETY: as above; the loop has ended.
                unsafe { std::slice::from_raw_parts(to.cast::<f32>(), n) }.to_vec()
            };
            let right = values(FixedLoop::binary(difference, 4, [array, two], to, n));
            assert!(right.iter().zip(&x).all(|(y, x)| *y == x - 2.0));
            let left = values(FixedLoop::binary(difference, 4, [two, array], to, n));
            assert!(left.iter().zip(&x).all(|(y, x)| *y == 2.0 - x));
            let both = values(FixedLoop::binary(difference, 4, [array, array], to, n));
            assert!(both.iter().all(|y| *y == 0.0));
            let g = x.as_ptr().cast();
            let back = values(FixedLoop::ternary(slope, 4, g, [two, array], to, n));
            assert!(back.iter().zip(&x).all(|(y, x)| *y == x * (2.0 - x)));
        }
    }
}
