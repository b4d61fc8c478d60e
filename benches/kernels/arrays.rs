//! The arrays of a case: what they hold, and elements of them as float64.

use rsnet::dtype::Element;
use rsnet::tensor::View;
use rsnet::{DType, Shape, with_dtype};

/// The description of an input.
#[derive(Clone)]
pub struct Input {
    pub dtype: DType,
    pub dims: Vec<usize>,
    values: Values,
}

#[derive(Clone, Copy)]
enum Values {
    /// Numbers in -1 to 1, of integers in -127 to 127.
    Noise,
    /// Numbers of rows, below this.
    Rows(usize),
}

impl Input {
    pub fn new(dtype: DType, dims: &[usize]) -> Self {
        Input { dtype, dims: dims.to_vec(), values: Values::Noise }
    }

    /// float32 noise.
    pub fn noise(dims: &[usize]) -> Self {
        Input::new(DType::F32, dims)
    }

    /// `count` numbers of rows, below `rows`, in float32.
    pub fn row_numbers(count: usize, rows: usize) -> Self {
        Input { values: Values::Rows(rows), ..Input::noise(&[count]) }
    }

    /// Element `i` of input `k`, mixed of both by the finaliser of SplitMix64 (S. Vigna).
    fn value(&self, k: usize, i: usize) -> f64 {
        let mut z = (((k as u64) << 40) + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        match self.values {
            Values::Rows(rows) => (unit * rows as f64).floor(),
            Values::Noise if self.dtype.is_float() => 2.0 * unit - 1.0,
            Values::Noise => (255.0 * unit).floor() - 127.0,
        }
    }

    /// Its array, as input `k` of a call.
    pub fn array(&self, k: usize) -> Array {
        let dims: Vec<i64> = self.dims.iter().map(|&d| d as i64).collect();
        let array = Array::zeros(&Shape::new(&dims), self.dtype);
        let view = &array.view;
        with_dtype!(self.dtype, T => {
            for i in 0..view.size() {
                // SAFETY: inside of the array.
                unsafe { *view.as_ptr::<T>().add(i) = T::from_f64(self.value(k, i)) };
            }
        });
        array
    }
}

/// An array with its memory.
pub struct Array {
    pub view: View,
    _words: Vec<u128>,
}

impl Array {
    pub fn zeros(shape: &Shape, dtype: DType) -> Self {
        let mut words = vec![0; (shape.size() * dtype.size()).div_ceil(16)];
        // SAFETY: the words hold all bytes, and live as long as the view.
        let view = unsafe { View::new(words.as_mut_ptr().cast(), shape.clone(), dtype) };
        Array { view, _words: words }
    }

    pub fn at(&self, i: usize) -> f64 {
        assert!(i < self.view.size());
        // SAFETY: inside of the array, which nothing writes meanwhile.
        with_dtype!(self.view.dtype(), T => unsafe { *self.view.as_ptr::<T>().add(i) }.to_f64())
    }
}

/// The inputs of a call, as what calculates its answer reads them.
pub struct Inputs<'a>(pub &'a [Array]);

impl Inputs<'_> {
    /// Element `i` of input `k`.
    pub fn at(&self, k: usize, i: usize) -> f64 {
        self.0[k].at(i)
    }

    /// The extents of input `k`.
    pub fn dims<const N: usize>(&self, k: usize) -> [usize; N] {
        let dims = self.0[k].view.dims();
        assert_eq!(dims.len(), N);
        std::array::from_fn(|axis| dims[axis] as usize)
    }
}
