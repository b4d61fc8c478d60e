//! The tables of a library's dynamic segment: what the system's loader follows without asking
//! whether it leads out of the file.

use super::image::{Image, ensure, number};

// Tags of the dynamic segment.
const NEEDED: u64 = 1;
const PLT_SIZE: u64 = 2;
const HASH: u64 = 4;
const STRTAB: u64 = 5;
const SYMTAB: u64 = 6;
const RELA: u64 = 7;
const RELA_SIZE: u64 = 8;
const RELA_ENTRY: u64 = 9;
const STRTAB_SIZE: u64 = 10;
const SYMTAB_ENTRY: u64 = 11;
const INIT: u64 = 12;
const FINI: u64 = 13;
const SONAME: u64 = 14;
const RPATH: u64 = 15;
const PLT_KIND: u64 = 20;
const PLT: u64 = 23;
const INIT_ARRAY: u64 = 25;
const FINI_ARRAY: u64 = 26;
const INIT_ARRAY_SIZE: u64 = 27;
const FINI_ARRAY_SIZE: u64 = 28;
const RUNPATH: u64 = 29;
const RELR_SIZE: u64 = 35;
const RELR: u64 = 36;
const GNU_HASH: u64 = 0x6fff_fef5;
const VERSYM: u64 = 0x6fff_fff0;
const VERDEF: u64 = 0x6fff_fffc;
const VERNEED: u64 = 0x6fff_fffe;

/// Kinds of relocations whose addend is an address of the library: of data, and of a function that
/// the loader calls.
const RELATIVE: [u64; 2] = if cfg!(target_arch = "aarch64") { [1027, 1032] } else { [8, 37] };
/// The kind of a symbol of each thread's own, whose value is no address.
const THREAD_LOCAL: u8 = 6;
/// Sections from here on are none: a symbol's value there is no address.
const RESERVED: u64 = 0xff00;

const SYMBOL: u64 = 24;
const RELOCATION: usize = 24;

/// Returns true if nothing in the tables leads out of the library.
pub fn is_whole(image: &Image<'_>) -> bool {
    Tables::read(image).is_some_and(|mut tables| tables.check().is_some())
}

/// The names of the libraries that this one is linked with.
pub fn needed<'a>(image: &'a Image<'a>) -> Vec<&'a [u8]> {
    Tables::read(image).map(|tables| tables.needed().collect()).unwrap_or_default()
}

struct Tables<'a> {
    image: &'a Image<'a>,
    entries: Vec<(u64, u64)>,
    /// Texts, each of which ends with 0.
    texts: &'a [u8],
    /// The highest number of a version.
    versions: u64,
}

impl<'a> Tables<'a> {
    fn read(image: &'a Image<'a>) -> Option<Tables<'a>> {
        let table = image.dynamic()?;
        let mut entries = Vec::new();
        for at in (0..).step_by(16) {
            match number(table, at, 8)? {
                0 => break,
                tag => entries.push((tag, number(table, at + 8, 8)?)),
            }
        }
        let mut tables = Tables { image, entries, texts: &[], versions: 1 };
        tables.texts = image.range(tables.value(STRTAB)?, tables.value(STRTAB_SIZE)?)?;
        ensure(tables.texts.last() == Some(&0))?;
        Some(tables)
    }

    /// The value of a tag: the last one, as the loader has it.
    fn value(&self, tag: u64) -> Option<u64> {
        self.entries.iter().rfind(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    fn text(&self, at: u64) -> Option<&'a [u8]> {
        self.texts.get(usize::try_from(at).ok()?..)?.split(|byte| *byte == 0).next()
    }

    fn needed(&self) -> impl Iterator<Item = &'a [u8]> {
        self.entries.iter().filter(|entry| entry.0 == NEEDED).filter_map(|entry| self.text(entry.1))
    }

    fn check(&mut self) -> Option<()> {
        let is = |tag, expected| ensure(self.value(tag).is_none_or(|found| found == expected));
        is(SYMTAB_ENTRY, SYMBOL)?;
        is(RELA_ENTRY, RELOCATION as u64)?;
        is(PLT_KIND, RELA)?;
        for (tag, value) in &self.entries {
            match *tag {
                NEEDED | SONAME | RPATH | RUNPATH => self.text(*value).map(|_| ())?,
                INIT | FINI => ensure(self.image.runs(*value))?,
                _ => {}
            }
        }
        for (array, size) in [(INIT_ARRAY, INIT_ARRAY_SIZE), (FINI_ARRAY, FINI_ARRAY_SIZE)] {
            if let Some(address) = self.value(array) {
                ensure(self.image.holds(address, self.value(size)?))?;
            }
        }
        self.versions = self.highest_version()?.max(1);
        match (self.value(GNU_HASH), self.value(HASH)) {
            (Some(table), _) => self.gnu_hash(table)?,
            (None, table) => self.hash(table?)?,
        }
        self.relocations()
    }

    /// Symbol `i`: its name and version exist, and its address, if it is of this library.
    fn symbol(&self, i: u64) -> Option<()> {
        let at = self.value(SYMTAB)?.checked_add(i.checked_mul(SYMBOL)?)?;
        let entry = self.image.range(at, SYMBOL)?;
        self.text(number(entry, 0, 4)?)?;
        if let Some(table) = self.value(VERSYM) {
            let version = self.image.number(table.checked_add(2 * i)?, 2)? & 0x7fff;
            ensure(version <= self.versions)?;
        }
        let (section, value) = (number(entry, 6, 2)?, number(entry, 8, 8)?);
        let is_address = (1..RESERVED).contains(&section) && entry[4] & 15 != THREAD_LOCAL;
        ensure(!is_address || self.image.holds(value, 0))
    }

    /// The table by which symbols are looked up: the sizes of its parts, a filter, the first symbol
    /// of each bucket, and a hash for each symbol, which is odd where a bucket ends.
    fn gnu_hash(&self, address: u64) -> Option<()> {
        let table = self.image.content_at(address)?;
        let (buckets, first) = (number(table, 0, 4)?, number(table, 4, 4)?);
        let filter = number(table, 8, 4)?;
        ensure(buckets > 0 && filter.is_power_of_two())?;
        let start = 16 + 8 * filter;
        let at = |i: u64| number(table, usize::try_from(start + 4 * i).ok()?, 4);
        let mut last = 0;
        for i in 0..buckets {
            let bucket = at(i)?;
            ensure(bucket == 0 || bucket >= first)?;
            last = last.max(bucket);
        }
        if last == 0 {
            return Some(()); // every bucket is empty
        }
        for i in first.. {
            self.symbol(i)?;
            if i >= last && at(buckets + (i - first))? & 1 == 1 {
                break;
            }
        }
        Some(())
    }

    /// The older table: the number of buckets, that of symbols, the first symbol of each bucket,
    /// and for each symbol the next one of its bucket, or 0.
    fn hash(&self, address: u64) -> Option<()> {
        let table = self.image.content_at(address)?;
        let (buckets, symbols) = (number(table, 0, 4)?, number(table, 4, 4)?);
        ensure(buckets > 0)?;
        let at = |i: u64| number(table, usize::try_from(8 + 4 * i).ok()?, 4);
        let mut steps = 0;
        for bucket in 0..buckets {
            let mut i = at(bucket)?;
            while i != 0 {
                steps += 1;
                // A symbol is in one bucket only: more steps go in circles.
                ensure(i < symbols && steps <= symbols)?;
                i = at(buckets + i)?;
            }
        }
        (0..symbols).try_for_each(|i| self.symbol(i))
    }

    /// The highest number of a version that the library needs or defines.
    fn highest_version(&self) -> Option<u64> {
        let mut highest = 0;
        let field = |at: u64, offset: u64, width| self.image.number(at.checked_add(offset)?, width);
        let needed: Vec<_> = self.needed().collect();
        if let Some(table) = self.value(VERNEED) {
            self.linked(table, 12, |file| {
                ensure(needed.contains(&self.text(field(file, 4, 4)?)?))?;
                self.linked(file.checked_add(field(file, 8, 4)?)?, 12, |version| {
                    highest = highest.max(field(version, 6, 2)? & 0x7fff);
                    self.text(field(version, 8, 4)?).map(|_| ())
                })
            })?;
        }
        if let Some(table) = self.value(VERDEF) {
            self.linked(table, 16, |version| {
                highest = highest.max(field(version, 4, 2)? & 0x7fff);
                let name = version.checked_add(field(version, 12, 4)?)?;
                self.text(field(name, 0, 4)?).map(|_| ())
            })?;
        }
        Some(highest)
    }

    /// Calls `each` with the addresses of structs that are linked by a field, which says how far
    /// away the next one is, or 0.
    fn linked(
        &self,
        mut at: u64,
        next: u64,
        mut each: impl FnMut(u64) -> Option<()>,
    ) -> Option<()> {
        loop {
            each(at)?;
            match self.image.number(at.checked_add(next)?, 4)? {
                0 => return Some(()),
                step => at = at.checked_add(step)?,
            }
        }
    }

    fn relocations(&self) -> Option<()> {
        let table = |tag, size| match self.value(tag) {
            None => Some((0, 0)),
            Some(address) => Some((address, self.value(size)?)),
        };
        let (all, calls) = (table(RELA, RELA_SIZE)?, table(PLT, PLT_SIZE)?);
        for (address, size) in [all, calls].into_iter().filter(|table| table.1 > 0) {
            let entries = self.image.range(address, size)?;
            ensure(entries.len().is_multiple_of(RELOCATION))?;
            entries.chunks_exact(RELOCATION).try_for_each(|entry| self.relocation(entry))?;
        }
        // Where both tables end at the same place, the loader subtracts one size from the other.
        ensure(all.0 + all.1 != calls.0 + calls.1 || calls.1 <= all.1)?;
        let (address, size) = table(RELR, RELR_SIZE)?;
        if size == 0 { Some(()) } else { self.packed(self.image.range(address, size)?) }
    }

    fn relocation(&self, entry: &[u8]) -> Option<()> {
        let (place, kind) = (number(entry, 0, 8)?, number(entry, 8, 4)?);
        ensure(kind == 0 || self.image.holds(place, 8))?;
        self.symbol(number(entry, 12, 4)?)?;
        ensure(!RELATIVE.contains(&kind) || self.image.spans(number(entry, 16, 8)?))
    }

    /// Addresses of addresses, packed: a number that is even is one, and one that is odd has a bit
    /// for each of the 63 words that follow.
    fn packed(&self, words: &[u8]) -> Option<()> {
        let is_address = |place: u64| {
            let value = self.image.number(place, 8);
            ensure(self.image.holds(place, 8) && value.is_none_or(|value| self.image.spans(value)))
        };
        let mut next: u64 = 0;
        for i in (0..words.len()).step_by(8) {
            let word = number(words, i, 8)?;
            if word.is_multiple_of(2) {
                is_address(word)?;
                next = word.checked_add(8)?;
                continue;
            }
            let marked = (0..63).filter(|bit| word >> (bit + 1) & 1 == 1);
            marked.map(|bit| next.checked_add(8 * bit)).try_for_each(|place| is_address(place?))?;
            next = next.checked_add(8 * 63)?;
        }
        Some(())
    }
}
