//! Dtypes as libraries write them, and those that are tried where a library does not say.

use super::abi::DTypeCode;
use crate::dtype::DType;

/// A dtype as DLPack writes it.
pub fn dtype_code(dtype: DType) -> DTypeCode {
    match dtype {
        DType::F32 => DTypeCode::F32,
        DType::F64 => DTypeCode::F64,
        DType::F16 => DTypeCode::F16,
        DType::U8 => DTypeCode::U8,
        DType::I8 => DTypeCode::I8,
        DType::I32 => DTypeCode::I32,
        DType::I64 => DTypeCode::I64,
        DType::Bool => DTypeCode::BOOL,
    }
}

pub fn dtype_from(code: DTypeCode) -> Option<DType> {
    DType::ALL.into_iter().find(|d| dtype_code(*d) == code)
}

/// A dtype for messages.
pub fn dtype_text(code: DTypeCode) -> String {
    dtype_from(code).map_or_else(
        || format!("(code {}, {} bits, {} lanes)", code.code, code.bits, code.lanes),
        |d| d.name().to_owned(),
    )
}

/// What inputs of unknown dtype may be instead of float32: dtypes of other inputs, then those of
/// indices.
pub fn candidates(types: &[Option<DType>]) -> Vec<DType> {
    let mut found = Vec::new();
    for dtype in types.iter().flatten().copied().chain([DType::I32, DType::I64]) {
        if dtype != DType::F32 && !found.contains(&dtype) {
            found.push(dtype);
        }
    }
    found
}
