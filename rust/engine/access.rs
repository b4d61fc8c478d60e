//! Sets of variables: what several operations access together.

use crate::engine::push::Var;

/// The variables of several operations that run as one: each once, with how it is used.
#[derive(Default)]
pub struct AccessSet {
    uses: Vec<Use>,
    /// Index into `uses` by variable number. May be stale: `uses` is checked.
    index: Vec<u32>,
}

struct Use {
    var: Var,
    is_written: bool,
    /// The first use overwrites the variable whole, so its old value does not matter.
    is_overwritten: bool,
}

impl AccessSet {
    /// Adds the variables of the next operation.
    pub fn add(&mut self, reads: &[Var], writes: &[Var], overwrites: usize) {
        reads.iter().for_each(|&v| self.add_one(v, false, false));
        writes.iter().enumerate().for_each(|(i, &v)| self.add_one(v, true, i < overwrites));
    }

    fn add_one(&mut self, var: Var, is_written: bool, is_overwritten: bool) {
        let slot = var.number() as usize;
        if slot >= self.index.len() {
            self.index.resize((slot + 1).next_power_of_two(), 0);
        }
        let at = &mut self.index[slot];
        match self.uses.get_mut(*at as usize) {
            Some(known) if known.var == var => known.is_written |= is_written,
            _ => {
                *at = self.uses.len() as u32;
                self.uses.push(Use { var, is_written, is_overwritten });
            }
        }
    }

    /// The number of variables.
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// Returns reads, writes, and how many of the first writes are overwritten whole; empties the
    /// set.
    pub fn take(&mut self) -> (Vec<Var>, Vec<Var>, usize) {
        let select = |written: bool, whole: bool| {
            let fits =
                move |u: &&Use| u.is_written == written && (!written || u.is_overwritten == whole);
            self.uses.iter().filter(fits).map(|u| u.var)
        };
        let reads = select(false, false).collect();
        let mut writes: Vec<Var> = select(true, true).collect();
        let overwrites = writes.len();
        writes.extend(select(true, false));
        self.uses.clear();
        (reads, writes, overwrites)
    }
}

/// Appends to a list of written variables. Duplicates are allowed, but dropped before the list
/// grows, so that its length stays bounded.
pub fn append_written(known: &mut Vec<Var>, written: &[Var]) {
    if known.len() == known.capacity() && known.len() >= 64 {
        known.sort_unstable_by_key(|v| v.0);
        known.dedup();
    }
    known.extend_from_slice(written);
}
