//! Texts, lists and structs of a library's descriptions, checked before they are believed.

use super::abi;
use crate::error::{Error, Result};
use std::ffi::c_char;

/// The most inputs or outputs of one argument.
pub const MOST_ARRAYS: i32 = 65_535;
/// The most items of any list in a description.
const MOST_ITEMS: i32 = 65_535;

/// A description that does not begin with its size.
pub fn damaged(what: &str) -> Error {
    Error::value(format!(
        "invalid {what}: expected a description that begins with its own size (struct_size)"
    ))
}

/// A text that must be there.
///
/// # Safety
/// `text` is null or ends with 0.
pub unsafe fn needed(text: *const c_char, what: &str) -> Result<String> {
    // SAFETY: the caller's promise.
    let found = unsafe { abi::text(text) }.filter(|t| !t.is_empty());
    found.ok_or_else(|| Error::value(format!("invalid {what}: expected a name, got none")))
}

pub fn checked_count(n: i32, what: &str) -> Result<usize> {
    if (0..=MOST_ITEMS).contains(&n) {
        return Ok(n as usize);
    }
    Err(Error::value(format!("invalid number of {what} {n}: expected 0 to {MOST_ITEMS}")))
}

/// Texts of a list.
///
/// # Safety
/// `list` points to `n` texts.
pub unsafe fn texts(list: *const *const c_char, n: i32, what: &str) -> Result<Vec<String>> {
    let n = checked_count(n, what)?;
    if n > 0 && list.is_null() {
        return Err(Error::value(format!(
            "invalid list of {what}: expected {n} items, got no list"
        )));
    }
    // SAFETY: the caller's promise.
    (0..n).map(|i| unsafe { needed(*list.add(i), what) }).collect()
}

/// The structs of a list, each as long as the first one says.
///
/// # Safety
/// `list` points to `n` structs of equal size.
pub unsafe fn structs<T: abi::Sized32>(list: *const T, n: i32, what: &str) -> Result<Vec<T>> {
    let n = checked_count(n, what)?;
    let mut found = Vec::with_capacity(n);
    let mut step = 0;
    for i in 0..n {
        let at = list.cast::<u8>().wrapping_add(i * step);
        // SAFETY: the caller's promise.
        let (item, size) =
            unsafe { abi::read(at.cast::<T>()) }.ok_or_else(|| damaged(&format!("{what} list")))?;
        if i > 0 && size != step {
            return Err(Error::value(format!(
                "invalid struct_size {size} of item {i} of the {what}: expected {step}, as in \
                 the first"
            )));
        }
        step = size;
        found.push(item);
    }
    Ok(found)
}
