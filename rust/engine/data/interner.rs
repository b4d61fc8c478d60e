//! Interned names of operations, so that a task stores eight bytes for its name.

use rustc_hash::FxHashMap;

/// Names found without the table (`random64_inline`: 67 ns a task; by the table alone 74).
const CACHE: usize = 16;
const LIMIT: usize = 1 << 16;

/// A string interner that only grows, up to a limit. Under the push lock.
pub struct Interner {
    // Boxed twice: tasks store the address of the inner box.
    #[allow(clippy::vec_box)] // as just said
    all: Vec<Box<Box<str>>>,
    index: FxHashMap<Box<str>, u32>,
    /// The names used last, by a cheap hash.
    cache: [(Ends, u32); CACHE],
}

/// Length and both ends of a name: for up to 16 bytes, the whole name.
#[derive(Clone, Copy, PartialEq, Default)]
struct Ends {
    len: usize,
    first: u64,
    last: u64,
}

impl Ends {
    #[inline]
    fn of(name: &str) -> Self {
        let bytes = name.as_bytes();
        let (first, last) =
            if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
                (u64::from_ne_bytes(*first), u64::from_ne_bytes(*last))
            } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
                (u32::from_ne_bytes(*first).into(), u32::from_ne_bytes(*last).into())
            } else {
                (bytes.iter().fold(0, |all, &b| all << 8 | u64::from(b)), 0)
            };
        Ends { len: bytes.len(), first, last }
    }

    /// Returns true if the ends are the whole name.
    #[inline]
    fn are_whole(&self) -> bool {
        self.len <= 16
    }
}

impl Default for Interner {
    fn default() -> Self {
        let all = vec![Box::new(Box::from(""))];
        Interner { all, index: FxHashMap::default(), cache: [(Ends::default(), 0); CACHE] }
    }
}

impl Interner {
    /// Returns the interned copy of `name`, or `None` if the table is full.
    #[inline(always)]
    pub fn intern(&mut self, name: &str) -> Option<*const Box<str>> {
        let ends = Ends::of(name);
        let place = (ends.len ^ ends.first as usize ^ (ends.last as usize) << 2) % CACHE;
        let (of, i) = self.cache[place];
        let cached = &*self.all[i as usize];
        if of == ends && (ends.are_whole() || **cached == *name) {
            return Some(cached);
        }
        let i = self.find(name)?;
        self.cache[place] = (ends, i);
        Some(&*self.all[i as usize])
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, name: &str) -> Option<u32> {
        if let Some(&i) = self.index.get(name) {
            return Some(i);
        }
        if self.all.len() >= LIMIT {
            return None;
        }
        let i = self.all.len() as u32;
        self.all.push(Box::new(name.into()));
        self.index.insert(name.into(), i);
        Some(i)
    }

    /// The empty name, for tasks whose name is stored elsewhere.
    pub fn empty(&self) -> *const Box<str> {
        &*self.all[0]
    }
}
