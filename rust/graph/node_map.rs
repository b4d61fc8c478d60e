//! Maps and sets of composed nodes, by address. Walks over graphs of thousands of nodes ask one for
//! every edge, and nobody chooses addresses to collide: a multiplication is hash enough.

use super::symbol::SymNode;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub type NodeMap<V> = HashMap<*const SymNode, V, BuildHasherDefault<AddressHasher>>;
pub type NodeSet = HashSet<*const SymNode, BuildHasherDefault<AddressHasher>>;

/// Hashes one address.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(usize::from(byte)));
    }

    #[inline]
    fn write_usize(&mut self, address: usize) {
        let product = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32; // both ends of a hash choose the place in a table
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
