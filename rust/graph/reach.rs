//! Which of a few marked nodes lead to each node of an acyclic graph.
//!
//! The marked nodes are the callbacks (operators written in Python), which may block: memory and
//! segments are chosen so that none waits for one whose result it does not need. Sets of them are
//! looked at 64 at a time, as the bits of a word, so that memory stays linear in the graph.

/// Edges by their later node. Nodes are numbered in an order in which they can run.
pub struct Edges {
    starts: Vec<usize>,
    before: Vec<u32>,
}

impl Edges {
    /// From pairs (before, after) of nodes below `count`.
    pub fn new(count: usize, pairs: &[(u32, u32)]) -> Edges {
        let mut starts = vec![0; count + 1];
        for &(_, after) in pairs {
            starts[after as usize + 1] += 1;
        }
        for n in 0..count {
            starts[n + 1] += starts[n];
        }
        let (mut next, mut before) = (starts.clone(), vec![0; pairs.len()]);
        for &(earlier, after) in pairs {
            before[next[after as usize]] = earlier;
            next[after as usize] += 1;
        }
        Edges { starts, before }
    }

    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The nodes that lead to `n` by one edge.
    pub fn before(&self, n: usize) -> &[u32] {
        &self.before[self.starts[n]..self.starts[n + 1]]
    }

    /// Calls `look` with blocks of at most 64 of the `marked` nodes, which ascend, and for each
    /// with the words of all nodes: bit `i` is set where node `i` of the block leads to the node or
    /// is the node.
    pub fn by_blocks(&self, marked: &[usize], mut look: impl FnMut(&[usize], &[u64])) {
        let mut words = vec![0u64; self.count()];
        for block in marked.chunks(u64::BITS as usize) {
            let first = block[0];
            words[..first].fill(0);
            let mut own = block.iter().enumerate().peekable();
            for n in first..words.len() {
                let from = |word: u64, &b: &u32| word | words[b as usize];
                let mut word = self.before(n).iter().fold(0, from);
                if let Some((bit, _)) = own.next_if(|(_, at)| **at == n) {
                    word |= 1 << bit;
                }
                words[n] = word;
            }
            look(block, &words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_hold_what_leads_to_a_node(
            n in 1usize..150,
            pairs in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..300),
            marks in prop::collection::vec(any::<bool>(), 150),
        ) {
            let at = |(a, b): &(prop::sample::Index, prop::sample::Index)| (a.index(n), b.index(n));
            let pairs: Vec<(u32, u32)> = pairs
                .iter()
                .map(at)
                .filter(|(a, b)| a != b)
                .map(|(a, b)| (a.min(b) as u32, a.max(b) as u32))
                .collect();
            let mut leads: Vec<Vec<bool>> = vec![vec![false; n]; n];
            for after in 0..n {
                leads[after][after] = true;
                for &(before, _) in pairs.iter().filter(|p| p.1 as usize == after) {
                    for first in 0..n {
                        leads[first][after] |= leads[first][before as usize];
                    }
                }
            }
            let marked: Vec<usize> = (0..n).filter(|&i| marks[i]).collect();
            let mut seen = Vec::new();
            Edges::new(n, &pairs).by_blocks(&marked, |block, words| {
                for (bit, &first) in block.iter().enumerate() {
                    seen.push(first);
                    for after in 0..n {
                        assert_eq!(words[after] >> bit & 1 == 1, leads[first][after]);
                    }
                }
            });
            prop_assert_eq!(seen, marked);
        }
    }
}
