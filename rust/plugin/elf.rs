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
    let mut segments = Vec::new();
    for i in 0..count {
        let at = start.checked_add(i * size).ok_or_else(damaged)?;
        segments.push(Segment::read(bytes, at).ok_or_else(damaged)?);
    }
    match segments.iter().all(|s| s.fits(bytes, &segments)) {
        true => Ok(()),
        false => Err(damaged()),
    }
}

const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
/// Of the stack's flags: it has no bytes.
const GNU_STACK: u64 = 0x6474_e551;

/// A program header.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    in_file: u64,
    in_memory: u64,
}

impl Segment {
    fn read(bytes: &[u8], at: u64) -> Option<Segment> {
        let field = |offset: u64, width: usize| {
            number(bytes, usize::try_from(at.checked_add(offset)?).ok()?, width)
        };
        Some(Segment {
            kind: field(0, 4)?,
            offset: field(8, 8)?,
            address: field(16, 8)?,
            in_file: field(32, 8)?,
            in_memory: field(40, 8)?,
        })
    }

    /// Returns true if the range lies within the file, and in memory that is loaded from it.
    fn fits(&self, bytes: &[u8], all: &[Segment]) -> bool {
        const PAGE: u64 = 4096;
        let in_file = self.offset.checked_add(self.in_file);
        let whole = in_file.is_some_and(|end| end <= bytes.len() as u64);
        match self.kind {
            LOAD => {
                let sized = self.in_memory >= self.in_file && self.in_memory < 1 << 40;
                let placed = self.address < 1 << 40 && self.address % PAGE == self.offset % PAGE;
                whole && sized && placed && !all.iter().any(|s| self.is_overlapped_by(s))
            }
            GNU_STACK => whole,
            DYNAMIC => {
                let tables = addresses(bytes, self);
                let loaded = |a: &u64| all.iter().any(|s| s.loads(*a, 1));
                whole && all.iter().any(|s| s.contains(self)) && tables.iter().all(loaded)
            }
            _ => whole && (self.in_memory == 0 || all.iter().any(|s| s.contains(self))),
        }
    }

    /// Returns true if another loaded segment, which begins at the same address or later, lies in
    /// this one's memory.
    fn is_overlapped_by(&self, other: &Segment) -> bool {
        other.kind == LOAD
            && !std::ptr::eq(self, other)
            && other.address >= self.address
            && other.address < self.address + self.in_memory
    }

    /// Returns true if this segment loads the other's bytes to where the other says they are.
    fn contains(&self, other: &Segment) -> bool {
        let end = |s: &Segment| s.offset.saturating_add(s.in_file);
        self.kind == LOAD
            && self.offset <= other.offset
            && end(other) <= end(self)
            && other.address.wrapping_sub(other.offset) == self.address.wrapping_sub(self.offset)
    }

    fn loads(&self, address: u64, size: u64) -> bool {
        let last = address.saturating_add(size);
        let end = self.address.saturating_add(self.in_memory);
        self.kind == LOAD && self.address <= address && last <= end
    }
}

/// The addresses of tables that the dynamic segment names.
fn addresses(bytes: &[u8], dynamic: &Segment) -> Vec<u64> {
    // DT_PLTGOT to DT_RELA, DT_INIT, DT_FINI, DT_REL, DT_JMPREL, the arrays, and GNU's.
    const TABLES: [u64; 15] =
        [3, 4, 5, 6, 7, 12, 13, 17, 23, 25, 26, 0x6fff_fef5, 0x6fff_fff0, 0x6fff_fffc, 0x6fff_fffe];
    let entry = |i: u64| {
        let at = usize::try_from(dynamic.offset.checked_add(i * 16)?).ok()?;
        Some((number(bytes, at, 8)?, number(bytes, at.checked_add(8)?, 8)?))
    };
    let entries = (0..dynamic.in_file / 16).map_while(entry).take_while(|(tag, _)| *tag != 0);
    entries.filter(|(tag, _)| TABLES.contains(tag)).map(|(_, address)| address).collect()
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

    #[test]
    fn damaged_libraries_are_refused_and_whole_ones_taken() {
        let says = |bytes: &[u8], want: &str| {
            let message = check(bytes).unwrap_err().message().to_owned();
            assert!(message.contains(want), "{message}");
        };
        says(b"", "not an ELF file");
        says(b"\x7fELF\x02", "cut short");
        let mut header = library(1);
        header[16] = 0;
        says(&header, "not a shared library");
        header[16] = 3;
        check(&header).unwrap();
        header[64] = 1; // a segment that is loaded
        (header[64 + 32], header[64 + 40]) = (120, 120);
        check(&header).unwrap();
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
            let _ = check(&bytes);
        }
    }
}
