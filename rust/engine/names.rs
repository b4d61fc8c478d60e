//! Names of operations, each kept once, so that a task carries eight bytes.

use std::collections::HashMap;

const CACHE: usize = 16;
const LIMIT: usize = 1 << 16;

/// A table that only grows, up to a limit. Under the push lock.
pub struct Names {
    // Boxed twice: tasks keep the address of the inner box.
    #[allow(clippy::vec_box)] // as just said
    all: Vec<Box<Box<str>>>,
    index: HashMap<Box<str>, u32>,
    /// The names used last, by a hash that costs nothing.
    cache: [u32; CACHE],
}

impl Default for Names {
    fn default() -> Self {
        let all = vec![Box::new(Box::from(""))];
        Names { all, index: HashMap::new(), cache: [0; CACHE] }
    }
}

impl Names {
    /// The kept copy of `name`; none when the table is full.
    #[inline]
    pub fn keep(&mut self, name: &str) -> Option<*const Box<str>> {
        let bytes = name.as_bytes();
        let ends = bytes.first().copied().unwrap_or(0) ^ bytes.last().copied().unwrap_or(0) << 2;
        let place = (bytes.len() ^ ends as usize) % CACHE;
        let kept = &*self.all[self.cache[place] as usize];
        if **kept == *name {
            return Some(kept);
        }
        let i = self.find(name)?;
        self.cache[place] = i;
        Some(&*self.all[i as usize])
    }

    #[cold]
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

    /// Stands for a name kept elsewhere.
    pub fn unnamed(&self) -> *const Box<str> {
        &*self.all[0]
    }
}
