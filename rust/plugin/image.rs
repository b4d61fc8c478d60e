//! A library's file as the system's loader maps it: the program headers, and what is where in
//! memory.

/// Nothing, unless `holds`.
pub fn ensure(holds: bool) -> Option<()> {
    holds.then_some(())
}

pub const LOAD: u64 = 1;
pub const DYNAMIC: u64 = 2;
const PHDR: u64 = 6;
const TLS: u64 = 7;
/// Of the stack's flags: it has no bytes.
const GNU_STACK: u64 = 0x6474_e551;
/// What is made read-only after loading, in whole pages.
const GNU_RELRO: u64 = 0x6474_e552;
const GNU_PROPERTY: u64 = 0x6474_e553;

const EXECUTABLE: u64 = 1;

/// The least size of a page; segments do not share one.
const PAGE: u64 = 4096;
/// The pages that linkers reckon with.
const LARGEST_PAGE: u64 = if cfg!(target_arch = "x86_64") { PAGE } else { 1 << 16 };

/// A file as the loader maps it.
pub struct Image<'a> {
    bytes: &'a [u8],
    /// Where the program headers begin.
    headers: u64,
    segments: Vec<Segment>,
}

impl<'a> Image<'a> {
    pub fn read(bytes: &'a [u8]) -> Option<Image<'a>> {
        let (headers, size) = (number(bytes, 32, 8)?, number(bytes, 54, 2)?);
        ensure(size >= 56)?;
        let at = |i: u64| headers.checked_add(i * size);
        let segments = (0..number(bytes, 56, 2)?).map(|i| Segment::read(bytes, at(i)?));
        Some(Image { bytes, headers, segments: segments.collect::<Option<_>>()? })
    }

    /// Returns true if the program headers agree with the file and with one another.
    pub fn is_whole(&self) -> bool {
        let loaded: Vec<_> = self.loaded().collect();
        let apart = |pair: &[&Segment]| pair[0].end_of_pages(PAGE) <= pair[1].page();
        self.segments.iter().all(|s| s.fits(self)) && loaded.windows(2).all(apart)
    }

    fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|s| s.kind == LOAD)
    }

    /// The bytes of the file from the one that is loaded to `address` on, as far as its segment
    /// goes.
    pub fn content_at(&self, address: u64) -> Option<&'a [u8]> {
        let begins = |s: &&Segment| s.address <= address && address - s.address < s.in_file;
        let segment = self.loaded().find(begins)?;
        self.content(segment)?.get(usize::try_from(address - segment.address).ok()?..)
    }

    /// `size` bytes of the file that are loaded to `address`.
    pub fn range(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        self.content_at(address)?.get(..usize::try_from(size).ok()?)
    }

    /// The number of `width` bytes that is loaded to `address`.
    pub fn number(&self, address: u64, width: usize) -> Option<u64> {
        number(self.content_at(address)?, 0, width)
    }

    /// Returns true if there is memory for `size` bytes at `address`.
    pub fn holds(&self, address: u64, size: u64) -> bool {
        self.loaded().any(|s| s.address <= address && address.saturating_add(size) <= s.end())
    }

    /// Returns true if an address is in the memory of the whole, or just behind it.
    pub fn spans(&self, address: u64) -> bool {
        let first = self.loaded().next().map_or(u64::MAX, |s| s.address);
        let end = self.loaded().last().map_or(0, Segment::end);
        (first..=end).contains(&address)
    }

    /// Returns true if there is code at an address.
    pub fn runs(&self, address: u64) -> bool {
        let code = |s: &Segment| s.flags & EXECUTABLE != 0;
        self.loaded().any(|s| code(s) && s.address <= address && address < s.end())
    }

    /// The tables of the dynamic segment; where there are several, the loader takes the last.
    pub fn dynamic(&self) -> Option<&'a [u8]> {
        self.content(self.segments.iter().rfind(|s| s.kind == DYNAMIC)?)
    }

    fn content(&self, segment: &Segment) -> Option<&'a [u8]> {
        let start = usize::try_from(segment.offset).ok()?;
        let end = start.checked_add(usize::try_from(segment.in_file).ok()?)?;
        self.bytes.get(start..end)
    }
}

/// A program header.
struct Segment {
    kind: u64,
    flags: u64,
    offset: u64,
    address: u64,
    in_file: u64,
    in_memory: u64,
    alignment: u64,
}

impl Segment {
    fn read(bytes: &[u8], at: u64) -> Option<Segment> {
        let at = usize::try_from(at).ok()?;
        let field = |offset: usize, width: usize| number(bytes, at.checked_add(offset)?, width);
        Some(Segment {
            kind: field(0, 4)?,
            flags: field(4, 4)?,
            offset: field(8, 8)?,
            address: field(16, 8)?,
            in_file: field(32, 8)?,
            in_memory: field(40, 8)?,
            alignment: field(48, 8)?,
        })
    }

    /// The address behind its memory.
    fn end(&self) -> u64 {
        self.address.saturating_add(self.in_memory)
    }

    /// The address behind the last of its pages of `size` bytes.
    fn end_of_pages(&self, size: u64) -> u64 {
        self.end().checked_next_multiple_of(size).unwrap_or(u64::MAX)
    }

    /// The address of the page where it begins.
    fn page(&self) -> u64 {
        self.address - self.address % PAGE
    }

    /// Returns true if the range lies within the file, and in memory that is loaded from it.
    fn fits(&self, image: &Image<'_>) -> bool {
        const MOST: u64 = 1 << 40;
        const MOST_OF_A_THREAD: u64 = 1 << 30;
        let few = self.alignment <= 1 << 20 && self.in_memory < MOST_OF_A_THREAD;
        if self.kind == TLS && self.in_file == 0 {
            // Zeros alone, so that it does not matter where in the file they would be.
            return few;
        }
        let Some(content) = image.content(self) else { return false };
        let is_loaded = || image.loaded().any(|s| s.contains(self));
        let sized = self.in_memory >= self.in_file && self.in_memory < MOST;
        match self.kind {
            LOAD => sized && self.address < MOST && self.address % PAGE == self.offset % PAGE,
            GNU_STACK => true,
            DYNAMIC => is_loaded(),
            _ if self.in_memory == 0 => true,
            PHDR => is_loaded() && self.offset == image.headers,
            // Every thread gets a copy, with zeros behind it.
            TLS => is_loaded() && sized && few,
            GNU_RELRO => {
                let ends = |s: &Segment| self.end() <= s.end_of_pages(LARGEST_PAGE);
                image.loaded().any(|s| s.contains(self) && ends(s))
            }
            GNU_PROPERTY => {
                is_loaded() && image.holds(self.address, self.in_memory) && {
                    are_notes(content, if self.alignment == 8 { 8 } else { 4 }).is_some()
                }
            }
            _ => is_loaded() && image.holds(self.address, self.in_memory),
        }
    }

    /// Returns true if this segment loads the other's bytes to where the other says they are.
    fn contains(&self, other: &Segment) -> bool {
        let end = |s: &Segment| s.offset.saturating_add(s.in_file);
        self.kind == LOAD
            && self.offset <= other.offset
            && end(other) <= end(self)
            && other.address.wrapping_sub(other.offset) == self.address.wrapping_sub(self.offset)
    }
}

/// Nothing if a note says that it is longer than the rest of them.
fn are_notes(mut notes: &[u8], alignment: u64) -> Option<()> {
    while notes.len() >= 12 {
        let (name, text) = (number(notes, 0, 4)?, number(notes, 4, 4)?);
        let size = (12 + name).next_multiple_of(4).next_multiple_of(alignment) + text;
        ensure(size <= notes.len() as u64)?;
        notes = notes.get(size.next_multiple_of(alignment) as usize..).unwrap_or_default();
    }
    Some(())
}

/// The little-endian number of `width` bytes from `at` on.
pub fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let end = at.checked_add(width)?;
    let digits = bytes.get(at..end)?;
    Some(digits.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}
