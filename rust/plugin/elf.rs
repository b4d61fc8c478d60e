//! Is a file a shared library that this process can load? The system's loader trusts what the file
//! says of itself: where a damaged one promises more bytes than it has, loading it ends the
//! process, or this one only and not the one that tried, since each maps it elsewhere.

use super::dynamic;
use super::image::{Image, number};
use crate::error::{Error, Result};

/// The bytes of the header, from which most files that are no libraries are told.
pub const HEADER: usize = 64;

/// Refuses what is no library, by the first [`HEADER`] bytes of a file, or all if it is shorter.
/// Formats other than 64-bit ELF are left to the loader.
pub fn check_header(bytes: &[u8]) -> Result<()> {
    if !bytes.starts_with(b"\x7fELF") {
        return if cfg!(target_os = "linux") {
            Err(refused("it is not an ELF file"))
        } else {
            Ok(())
        };
    }
    if bytes.len() < HEADER {
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
    Ok(())
}

/// Refuses what the loader would choke on in a file whose header is that of a library.
pub fn check(bytes: &[u8]) -> Result<()> {
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let is_whole = |image: &Image<'_>| {
        image.is_whole() && (image.dynamic().is_none() || dynamic::is_whole(image))
    };
    let image = Image::read(bytes).filter(is_whole);
    image.map(|_| ()).ok_or_else(|| refused("it is damaged or cut short"))
}

/// Returns true if a file that [`check`] approves of is linked with a library of C++, which throws.
pub fn is_cpp(bytes: &[u8]) -> bool {
    let image = Image::read(bytes);
    image.is_some_and(|image| {
        dynamic::needed(&image).iter().any(|name| {
            [&b"libstdc++.so"[..], b"libc++.so", b"libc++abi.so"]
                .iter()
                .any(|known| name.starts_with(known))
        })
    })
}

fn refused(why: &str) -> Error {
    Error::io(why)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::plugin::image::{DYNAMIC, LOAD};
    use proptest::prelude::*;

    /// The header of a shared library for this processor with so many empty segments.
    fn library(segments: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * usize::from(segments)];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16] = 3;
        bytes[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        (bytes[32], bytes[54], bytes[56]) = (64, 56, segments);
        bytes
    }

    fn checked(bytes: &[u8]) -> Result<()> {
        check_header(bytes).and_then(|()| check(bytes))
    }

    /// The libraries that the system's loader has loaded for this process.
    fn loaded() -> Vec<Vec<u8>> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let files = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        let files: std::collections::BTreeSet<_> = files.filter(|f| f.contains(".so")).collect();
        files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
    }

    #[test]
    fn libraries_that_are_loaded_are_whole() {
        let all = loaded();
        all.iter().for_each(|bytes| checked(bytes).unwrap());
        assert!(!all.is_empty());
    }

    /// Sets numbers of the hash table, of relocations and of the dynamic segment of a library to
    /// what they cannot be.
    #[test]
    fn damage_in_the_tables_is_seen() {
        let mut bytes = loaded().into_iter().min_by_key(Vec::len).unwrap();
        let address = |bytes: &[u8], tag: u64| {
            let image = Image::read(bytes).unwrap();
            let table = image.dynamic().unwrap();
            let entry = table.chunks_exact(16).find(|e| number(e, 0, 8) == Some(tag)).unwrap();
            let content = image.content_at(number(entry, 8, 8).unwrap()).unwrap();
            content.as_ptr() as usize - bytes.as_ptr() as usize
        };
        let (hash, relocations) = (address(&bytes, 0x6fff_fef5), address(&bytes, 7));
        // Buckets, the first symbol, the filter; the places of relocations, and their symbols.
        for at in [hash + 3, hash + 7, hash + 8, relocations + 6, relocations + 15] {
            let was = std::mem::replace(&mut bytes[at], 0x77);
            assert!(checked(&bytes).is_err(), "{at}");
            bytes[at] = was;
        }
        checked(&bytes).unwrap();
    }

    #[test]
    fn damaged_libraries_are_refused_and_whole_ones_taken() {
        let says = |bytes: &[u8], want: &str| {
            let message = checked(bytes).unwrap_err().message().to_owned();
            assert!(message.contains(want), "{message}");
        };
        says(b"", "not an ELF file");
        says(b"\x7fELF\x02", "cut short");
        let mut header = library(1);
        header[16] = 0;
        says(&header, "not a shared library");
        header[16] = 3;
        checked(&header).unwrap();
        header[64] = 1; // a segment that is loaded
        (header[64 + 32], header[64 + 40]) = (120, 120);
        checked(&header).unwrap();
        header[64 + 40] = 119;
        says(&header, "damaged");
        header[64] = 2; // tables outside of what is loaded
        (header[64 + 32], header[64 + 40]) = (0, 16);
        says(&header, "damaged");
        header[64 + 32] = 121;
        says(&header, "damaged");
        header[56] = 2;
        says(&header, "damaged");
    }

    /// Of zeros that every thread gets, the file holds nothing, so that no place in it is meant.
    #[test]
    fn threads_may_have_zeros_alone() {
        let mut bytes = library(2);
        bytes[64] = 1; // all of the file is loaded
        let size = bytes.len() as u8;
        (bytes[64 + 32], bytes[64 + 40]) = (size, size);
        let second = 64 + 56;
        bytes[second] = 7;
        for (field, number) in [(8, 0x77_0003_u64), (16, 0x10), (32, 0), (40, 24), (48, 8)] {
            bytes[second + field..second + field + 8].copy_from_slice(&number.to_le_bytes());
        }
        checked(&bytes).unwrap();
        bytes[second + 32] = 8;
        assert!(checked(&bytes).is_err(), "bytes that are nowhere");
        bytes[second + 32] = 0;
        bytes[second + 43] = 0x40;
        assert!(checked(&bytes).is_err(), "a gigabyte for every thread");
    }

    /// Any number of 64 bits, most often one that is near the ends of what a file can have.
    fn field() -> impl Strategy<Value = u64> {
        let ends = prop::sample::select(vec![0, 64, 120, 4096, 1 << 40, 1 << 63, u64::MAX]);
        let near = (ends, -16..16i64).prop_map(|(end, by)| end.wrapping_add_signed(by));
        prop_oneof![3 => near, 1 => any::<u64>()]
    }

    proptest! {
        #[test]
        fn libraries_from_strangers_do_no_harm(
            mut segments in prop::collection::vec((0..4u8, prop::array::uniform6(field())), 0..4),
            table in prop::collection::vec((0..8u64, field()), 0..6),
            is_whole in any::<bool>(),
            changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3),
            cut in 0..80usize,
        ) {
            if is_whole {
                // A table that is loaded with the rest of the file, beside the other segments.
                let start = 64 + 56 * (segments.len() as u64 + 2);
                let size = 16 * table.len() as u64;
                segments.insert(0, (DYNAMIC as u8, [start, start, 0, size, size, 0]));
                segments.push((LOAD as u8, [0, 0, 0, start + size, start + size, 0]));
            }
            let mut bytes = library(segments.len() as u8);
            for (i, (kind, fields)) in segments.iter().enumerate() {
                bytes[64 + i * 56] = *kind;
                let words = fields.iter().flat_map(|word| word.to_le_bytes());
                bytes.splice(64 + i * 56 + 8..64 + i * 56 + 56, words);
            }
            let words = table.iter().flat_map(|(tag, address)| [*tag, *address]);
            bytes.extend(words.flat_map(u64::to_le_bytes));
            for (at, byte) in changes {
                let n = bytes.len();
                bytes[at % n] = byte;
            }
            bytes.truncate(bytes.len() - cut.saturating_sub(60));
            let _ = checked(&bytes);
        }
    }
}
