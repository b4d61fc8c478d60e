//! Record files, read at any place by any thread. The format is described in
//! `python/rsnet/recordio.py`.

use crate::error::{Error, Result};
use std::fs::File;
use std::path::Path;

const MAGIC: u32 = 0xCED7_230A;
const LENGTH_BITS: u32 = 29;
/// Bytes of the header of an image record: number of labels, label, two ids.
pub const HEADER: usize = 24;

/// An open record file.
pub struct RecordFile {
    path: String,
    file: File,
    length: u64,
}

/// A part of a record: a flag (0 whole, 1 first, 2 middle, 3 last), and where its payload is.
struct Part {
    flag: u32,
    begin: u64,
    length: usize,
    next: u64,
}

/// The records of a file: where each begins, and the places that are damaged.
#[derive(Default)]
pub struct Index {
    pub offsets: Vec<u64>,
    pub damages: Vec<Error>,
}

impl RecordFile {
    pub fn open(path: &str) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io(format!("cannot read '{path}': {e}"));
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if about.is_dir() {
            return Err(Error::io(format!("cannot read '{path}': a folder, expected a file")));
        }
        let length = about.len();
        Ok(RecordFile { path: path.to_owned(), file, length })
    }

    fn damage(&self, offset: u64, what: impl std::fmt::Display) -> Error {
        Error::io(format!("{}: the record at offset {offset} {what}", self.path))
    }

    /// Puts a reason before an error about the record at `offset`.
    pub fn at(&self, offset: u64, error: &Error) -> Error {
        self.damage(offset, format!("cannot be used: {}", error.message()))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let result = read_exact_at(&self.file, offset, buffer);
        result.map_err(|e| self.damage(offset, format!("cannot be read: {e}")))
    }

    fn part(&self, offset: u64) -> Result<Part> {
        let mut head = [0; 8];
        if offset.checked_add(8).is_none_or(|end| end > self.length) {
            return Err(self.damage(offset, "is cut short"));
        }
        self.read_at(offset, &mut head)?;
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        if word(0) != MAGIC {
            let got = word(0);
            let what = format!("begins with {got:#010x}, expected the magic number {MAGIC:#010x}");
            return Err(self.damage(offset, what));
        }
        let (flag, length) = (word(4) >> LENGTH_BITS, word(4) & ((1 << LENGTH_BITS) - 1));
        let next = offset + 8 + u64::from(length.next_multiple_of(4));
        if next > self.length {
            return Err(self.damage(offset, format!("is cut short: it has {length} bytes")));
        }
        Ok(Part { flag, begin: offset + 8, length: length as usize, next })
    }

    /// Calls `f` for every part of the record at `offset`; returns where the next record begins.
    fn parts(&self, offset: u64, mut f: impl FnMut(&Part) -> Result<()>) -> Result<u64> {
        let mut part = self.part(offset)?;
        if !matches!(part.flag, 0 | 1) {
            return Err(self.damage(offset, format!("begins with part {} of one", part.flag)));
        }
        f(&part)?;
        let mut open = part.flag == 1;
        while open {
            part = self.part(part.next)?;
            if !matches!(part.flag, 2 | 3) {
                return Err(self.damage(offset, "ends before its last part"));
            }
            f(&part)?;
            open = part.flag == 2;
        }
        Ok(part.next)
    }

    /// Appends the payload of the record at `offset` to `payload`.
    pub fn read(&self, offset: u64, payload: &mut Vec<u8>) -> Result<()> {
        let begin = payload.len();
        self.parts(offset, |part| {
            if payload.len() > begin {
                payload.extend(MAGIC.to_le_bytes());
            }
            let at = payload.len();
            payload.resize(at + part.length, 0);
            self.read_at(part.begin, &mut payload[at..])
        })?;
        Ok(())
    }

    /// The index from an index file, of lines `key TAB offset`.
    pub fn index_from(&self, path: &str) -> Result<Index> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::io(format!("cannot read '{path}': {e}")))?;
        let mut offsets = Vec::new();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let offset = line.split('\t').nth(1).and_then(|o| o.trim().parse().ok());
            offsets.push(offset.ok_or_else(|| {
                Error::io(format!("{path}: line {}: '{line}', expected key, tab, offset", i + 1))
            })?);
        }
        offsets.sort_unstable();
        offsets.dedup();
        Ok(Index { offsets, damages: Vec::new() })
    }

    /// The index from the records themselves.
    pub fn scan(&self) -> Index {
        let mut index = Index::default();
        let mut at = 0;
        while at < self.length {
            match self.parts(at, |_| Ok(())) {
                Ok(next) => {
                    index.offsets.push(at);
                    at = next;
                }
                Err(error) => {
                    index.damages.push(error);
                    at = self.next_start(at + 4);
                }
            }
        }
        index
    }

    /// The next offset, from the given one rounded up to four bytes, at which a record could begin;
    /// the end of the file if there is none.
    fn next_start(&self, from: u64) -> u64 {
        let mut block = vec![0; 1 << 16];
        let mut at = from.next_multiple_of(4);
        while at < self.length {
            let n = (self.length - at).min(block.len() as u64) as usize;
            if self.read_at(at, &mut block[..n]).is_err() {
                return self.length;
            }
            let magic = MAGIC.to_le_bytes();
            for (i, _) in block[..n].chunks_exact(4).enumerate().filter(|(_, word)| *word == magic)
            {
                let start = at + 4 * i as u64;
                if self.part(start).is_ok_and(|part| matches!(part.flag, 0 | 1)) {
                    return start;
                }
            }
            at += n as u64;
        }
        self.length
    }

    /// The index from `path`, or from the records where it is empty.
    pub fn index(&self, path: &str) -> Result<Index> {
        if !path.is_empty() {
            return self.index_from(path);
        }
        // An index beside the file saves reading through it, if it covers it to the end.
        let beside = Path::new(&self.path).with_extension("idx");
        if let Some(index) = beside.to_str().and_then(|path| self.index_from(path).ok())
            && index.offsets.first() == Some(&0)
            && let Some(&last) = index.offsets.last()
            && self.parts(last, |_| Ok(())).is_ok_and(|end| end == self.length)
        {
            return Ok(index);
        }
        Ok(self.scan())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut buffer: &mut [u8]) -> std::io::Result<()> {
    while !buffer.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[n..];
        offset += n as u64;
    }
    Ok(())
}

/// The header of an image record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Was there a list of labels, even of one?
    pub is_list: bool,
    pub labels: Vec<f32>,
    pub id: u64,
}

/// Header and image of a payload.
pub fn unpack(payload: &[u8]) -> Result<(Header, &[u8])> {
    let short = |needs: usize| {
        Error::value(format!("it has {} bytes, expected at least {needs}", payload.len()))
    };
    let (head, rest) = payload.split_at_checked(HEADER).ok_or_else(|| short(HEADER))?;
    let word = |i: usize| [head[i], head[i + 1], head[i + 2], head[i + 3]];
    let count = u32::from_le_bytes(word(0)) as usize;
    let id = u64::from(u32::from_le_bytes(word(8))) | u64::from(u32::from_le_bytes(word(12))) << 32;
    if count == 0 {
        let labels = vec![f32::from_le_bytes(word(4))];
        return Ok((Header { is_list: false, labels, id }, rest));
    }
    let (labels, image) =
        rest.split_at_checked(count * 4).ok_or_else(|| short(HEADER + count * 4))?;
    let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let labels = labels.chunks_exact(4).map(number).collect();
    Ok((Header { is_list: true, labels, id }, image))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{table_from_strangers, with_path};
    use super::*;
    use proptest::prelude::*;

    fn record(flag: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_le_bytes().to_vec();
        out.extend((flag << LENGTH_BITS | payload.len() as u32).to_le_bytes());
        out.extend(payload);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn with_file<R>(bytes: &[u8], f: impl FnOnce(&RecordFile) -> R) -> R {
        with_path(bytes, |path| f(&RecordFile::open(path).unwrap()))
    }

    fn payloads(file: &RecordFile) -> Vec<Vec<u8>> {
        let read = |offset: &u64| {
            let mut payload = Vec::new();
            file.read(*offset, &mut payload).unwrap();
            payload
        };
        file.scan().offsets.iter().map(read).collect()
    }

    #[test]
    fn parts_are_joined_and_damages_found() {
        let whole = [record(0, b"one"), record(1, b"abcd"), record(3, b"xy"), record(0, b"two")];
        let joined = [&b"abcd"[..], &MAGIC.to_le_bytes(), b"xy"].concat();
        with_file(&whole.concat(), |file| {
            assert_eq!(payloads(file), [b"one".to_vec(), joined, b"two".to_vec()]);
        });
        let mut damaged = whole.concat();
        damaged[1] ^= 1;
        with_file(&damaged, |file| {
            let index = file.scan();
            assert_eq!((index.offsets.len(), index.damages.len()), (2, 1));
            let text = index.damages[0].to_string();
            assert!(text.contains(&file.path) && text.contains("offset 0"), "{text}");
        });
    }

    proptest! {
        #[test]
        fn records_from_strangers_do_no_harm(
            changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8),
            cut in 0usize..100,
        ) {
            let mut bytes: Vec<u8> =
                (0..6).flat_map(|i| record(0, &vec![i as u8; i * 7])).collect();
            for (at, byte) in changes {
                let n = bytes.len();
                bytes[at % n] = byte;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            with_file(&bytes, |file| {
                for payload in payloads(file) {
                    let _ = unpack(&payload);
                }
            });
        }

        #[test]
        fn indexes_from_strangers_do_no_harm(table in table_from_strangers()) {
            let whole = [record(0, b"one"), record(0, b"two")].concat();
            with_file(&whole, |file| {
                with_path(&table, |path| match file.index_from(path) {
                    Ok(index) => {
                        assert!(index.offsets.is_sorted());
                        for offset in index.offsets {
                            let mut payload = Vec::new();
                            let is_start = [0, 12].contains(&offset);
                            assert_eq!(file.read(offset, &mut payload).is_ok(), is_start);
                        }
                    }
                    Err(error) => assert!(error.to_string().contains(path), "{error}"),
                });
            });
        }
    }
}
