//! Finds the steps of a pass that could run at the same time as another one.
//!
//! A callback that could does not run inside the push, where it would delay the pushes of the
//! others; a large step of a library becomes a segment of its own.

use std::ops::Range;

/// Marks the candidates in `pass` that some other candidate in it neither waits for nor is waited
/// for by. `before` lists what one waits for directly, all of it earlier.
///
/// Linear in the number of edges. A candidate is ordered against all others if every earlier one
/// leads to it and it leads to every later one. Let `n` be its place among the candidates. Every
/// earlier one leads to it exactly if the next candidate after each of them has place `n` or less:
/// the last one's must be `n` itself, and so on backwards. Likewise for later ones.
pub fn mark<I: Iterator<Item = usize>>(
    pass: Range<usize>,
    is_candidate: &[bool],
    before: impl Fn(usize) -> I,
    marks: &mut [bool],
) {
    let candidates: Vec<usize> = pass.clone().filter(|&s| is_candidate[s]).collect();
    let (begin, end) = (pass.start, pass.end);
    let mut place = vec![0; pass.len()];
    for (n, &s) in candidates.iter().enumerate() {
        place[s - begin] = n;
    }
    let before = |s: usize| before(s).filter(move |&b| b >= begin);
    // The nearest candidate on any way back, plus one; 0: none.
    let mut last = vec![0; pass.len()];
    for s in pass {
        let of = |b: usize| if is_candidate[b] { place[b - begin] + 1 } else { last[b - begin] };
        last[s - begin] = before(s).map(of).max().unwrap_or(0);
    }
    // The nearest candidate on any way forward.
    let mut next = vec![usize::MAX; last.len()];
    for s in (begin..end).rev() {
        let own = if is_candidate[s] { place[s - begin] } else { next[s - begin] };
        for b in before(s) {
            next[b - begin] = next[b - begin].min(own);
        }
    }
    let mut latest_next = 0;
    for (n, &s) in candidates.iter().enumerate() {
        marks[s] |= latest_next > n;
        latest_next = latest_next.max(next[s - begin]);
    }
    let mut earliest_last = usize::MAX;
    for (n, &s) in candidates.iter().enumerate().rev() {
        marks[s] |= earliest_last <= n;
        earliest_last = earliest_last.min(last[s - begin]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By its definition.
    fn expected(is_candidate: &[bool], waits: &[Vec<usize>]) -> Vec<bool> {
        let n = waits.len();
        let mut leads = vec![vec![false; n]; n];
        for s in 0..n {
            for &b in &waits[s] {
                leads[b][s] = true;
                for row in &mut leads {
                    row[s] |= row[b];
                }
            }
        }
        let apart = |a: usize, b: usize| a != b && !leads[a][b] && !leads[b][a];
        (0..n).map(|a| is_candidate[a] && (0..n).any(|b| is_candidate[b] && apart(a, b))).collect()
    }

    proptest! {
        #[test]
        fn marks_what_another_candidate_could_run_beside(
            n in 0usize..14,
            edges in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..40),
            candidates in prop::collection::vec(any::<bool>(), 14),
        ) {
            let mut waits = vec![Vec::new(); n];
            for (a, b) in edges {
                if n > 1 {
                    let (a, b) = (a.index(n), b.index(n));
                    if a != b {
                        waits[a.max(b)].push(a.min(b));
                    }
                }
            }
            let mut marks = vec![false; n];
            mark(0..n, &candidates[..n], |s| waits[s].iter().copied(), &mut marks);
            prop_assert_eq!(marks, expected(&candidates[..n], &waits));
        }
    }

    #[test]
    fn a_pass_is_looked_at_by_itself() {
        let waits = [vec![], vec![0], vec![0], vec![1, 2]];
        let before = |s: usize| waits[s].iter().copied();
        let mut marks = [false; 4];
        mark(0..2, &[true; 4], before, &mut marks);
        assert_eq!(marks, [false; 4]);
        mark(1..4, &[true; 4], before, &mut marks);
        assert_eq!(marks, [false, true, true, false]);
    }
}
