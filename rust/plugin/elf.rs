//! Is a file a shared library that this process can load? The system's loader trusts what the file
//! says of itself: where a damaged one promises more bytes than it has, loading it ends the
//! process.

use crate::error::{Error, Result};

/// Refuses what the loader would choke on. Formats other than 64-bit ELF are left to the loader.
pub fn check(bytes: &[u8]) -> Result<()> {
    if bytes.len() < 4 || &bytes[..4] != b"\x7fELF" {
        return if cfg!(target_os = "linux") {
            Err(refused("it is not an ELF file"))
        } else {
            Ok(())
        };
    }
    if bytes.len() < 64 {
        return Err(refused("its header is cut short"));
    }
    if bytes[4] != 2 || bytes[5] != 1 || !cfg!(target_pointer_width = "64") {
        return Err(refused("it is not for 64-bit little-endian machines"));
    }
    if number(bytes, 16, 2) != Some(3) {
        return Err(refused("it is not a shared library (compile with -shared -fPIC)"));
    }
    let machine = if cfg!(target_arch = "x86_64") { Some(62) } else { None };
    let machine = machine.or(cfg!(target_arch = "aarch64").then_some(183));
    if machine.is_some() && number(bytes, 18, 2) != machine {
        return Err(refused("it was compiled for another processor"));
    }
    let (start, size, count) = (number(bytes, 32, 8), number(bytes, 54, 2), number(bytes, 56, 2));
    let damaged = || refused("it is damaged or cut short");
    let (Some(start), Some(size @ 56..), Some(count)) = (start, size, count) else {
        return Err(damaged());
    };
    for i in 0..count {
        let at = start.checked_add(i * size).ok_or_else(damaged)?;
        let field = |offset: u64, width: usize| {
            let at = at.checked_add(offset).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| number(bytes, at, width)).ok_or_else(damaged)
        };
        let (offset, in_file) = (field(8, 8)?, field(32, 8)?);
        let end = offset.checked_add(in_file).ok_or_else(damaged)?;
        if end > bytes.len() as u64 {
            return Err(damaged());
        }
    }
    Ok(())
}

fn refused(why: &str) -> Error {
    Error::io(why)
}

/// The little-endian number of `width` bytes from `at` on.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let end = at.checked_add(width)?;
    let digits = bytes.get(at..end)?;
    Some(digits.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_refused_and_whole_ones_taken() {
        let says = |bytes: &[u8], want: &str| {
            let message = check(bytes).unwrap_err().message().to_owned();
            assert!(message.contains(want), "{message}");
        };
        says(b"", "not an ELF file");
        says(b"\x7fELF\x02", "cut short");
        let mut header = vec![0u8; 120];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        says(&header, "not a shared library");
        header[16] = 3;
        header[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        (header[32], header[54], header[56]) = (64, 56, 1);
        check(&header).unwrap();
        header[64 + 32] = 121;
        says(&header, "damaged");
        header[56] = 2;
        says(&header, "damaged");
    }
}
