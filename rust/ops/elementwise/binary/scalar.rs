//! The number beside an array: the parameter, and its bytes as kernels read them.

use super::table::Row;
use crate::dtype::DType;
use crate::{params, with_dtype};

params! {
    /// Parameters of the operators with a number.
    pub struct ScalarParam {
        scalar: f64, default(1.0), "The number; converted to the dtype of the array.";
        is_int: bool, default(true), "Accepted; the result has the dtype of the array.";
    }
}

/// The bytes of a number in the dtype of an array.
pub fn scalar_bytes(row: &Row, dtype: DType, x: f64) -> [u8; 8] {
    let mut bytes = [0; 8];
    with_dtype!(dtype, T => {
        let value = row.number::<T>(x);
        // SAFETY: no element is larger than eight bytes.
        unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(value) };
    });
    bytes
}
