//! Dtypes of inputs of which nothing is known: what an operator's `infer` demands of them.
//!
//! Most inputs may be float32, and stay unknown, because who asks has the choice (a graph takes
//! float32). Where `infer` refuses that, other dtypes are tried: of one argument at a time, then of
//! two, and so on, from the left, so that as few as possible differ from float32 and the order of
//! the inputs does not matter.

use super::frame::Said;
use crate::dtype::DType;
use crate::error::Result;

/// The most questions about combinations of dtypes.
const MOST_QUESTIONS: usize = 500;

/// Asks `infer` about inputs of these dtypes; `None` if it needs to know more.
pub type Ask<'a> = &'a dyn Fn(&[Option<DType>]) -> Result<Option<Said>>;

/// Learns dtypes of inputs that are unknown: what `infer` sets, or what it demands. `arguments`
/// says which argument each input is of. Returns what `infer` says of the accepted dtypes where an
/// input stays unknown, or why it refuses float32 if it accepts nothing else.
pub fn learn_types(
    types: &mut [Option<DType>],
    arguments: &[usize],
    ask: Ask<'_>,
) -> Result<Option<Said>> {
    if types.iter().any(Option::is_none)
        && let Ok(Some(said)) = ask(types)
    {
        for (known, slot) in types.iter_mut().zip(&said.tensors[0]) {
            *known = known.or(slot.dtype);
        }
    }
    let unknown: Vec<usize> = (0..types.len()).filter(|&i| types[i].is_none()).collect();
    if unknown.is_empty() {
        return Ok(None);
    }
    let supposed: Vec<_> = types.iter().map(|t| t.or(Some(DType::F32))).collect();
    let refusal = match ask(&supposed) {
        Ok(said) => return Ok(said),
        Err(error) => error,
    };
    let mut search = Search { candidates: candidates(types), supposed, ask, left: MOST_QUESTIONS };
    let said = search.demanded(&unknown, arguments).ok_or(refusal)?;
    for i in unknown {
        types[i] = search.supposed[i].filter(|t| *t != DType::F32);
    }
    Ok(Some(said))
}

/// What is tried instead of float32: dtypes of other inputs, then those of indices.
fn candidates(types: &[Option<DType>]) -> Vec<DType> {
    let mut found = Vec::new();
    for dtype in types.iter().flatten().copied().chain([DType::I32, DType::I64]) {
        if dtype != DType::F32 && !found.contains(&dtype) {
            found.push(dtype);
        }
    }
    found
}

/// The search for dtypes that `infer` accepts.
struct Search<'a> {
    candidates: Vec<DType>,
    /// The combination that is tried, or was accepted.
    supposed: Vec<Option<DType>>,
    ask: Ask<'a>,
    /// How many more questions may be asked.
    left: usize,
}

impl Search<'_> {
    /// The answer to the first combination that is accepted: the arrays of an argument are taken to
    /// be alike, then each array by itself is tried, and in the end all of them alike.
    fn demanded(&mut self, unknown: &[usize], arguments: &[usize]) -> Option<Said> {
        let by_argument: Vec<Vec<usize>> = unknown
            .chunk_by(|a, b| arguments.get(*a) == arguments.get(*b))
            .map(Vec::from)
            .collect();
        let mut said = self.fewest(&by_argument);
        if said.is_none() && by_argument.len() < unknown.len() {
            let singly: Vec<_> = unknown.iter().map(|i| vec![*i]).collect();
            self.left = MOST_QUESTIONS;
            said = self.fewest(&singly);
        }
        if said.is_none() && self.left == 0 {
            self.left = self.candidates.len();
            said = self.differing(&[unknown.to_vec()], 1);
        }
        said
    }

    /// Tries all combinations, those with the fewest dtypes other than float32 first.
    fn fewest(&mut self, units: &[Vec<usize>]) -> Option<Said> {
        for n in 1..=units.len() {
            let said = self.differing(units, n);
            if said.is_some() || self.left == 0 {
                return said;
            }
        }
        None
    }

    /// Tries the combinations in which `n` of the units differ from float32.
    fn differing(&mut self, units: &[Vec<usize>], n: usize) -> Option<Said> {
        if n == 0 {
            self.left = self.left.checked_sub(1)?;
            return (self.ask)(&self.supposed).ok().flatten();
        }
        for (at, unit) in units.iter().enumerate().take(units.len() + 1 - n) {
            for i in 0..self.candidates.len() {
                self.suppose(unit, self.candidates[i]);
                let said = self.differing(&units[at + 1..], n - 1);
                if said.is_some() {
                    return said;
                }
                if self.left == 0 {
                    self.suppose(unit, DType::F32);
                    return None;
                }
            }
            self.suppose(unit, DType::F32);
        }
        None
    }

    fn suppose(&mut self, unit: &[usize], dtype: DType) {
        for i in unit {
            self.supposed[*i] = Some(dtype);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use DType::{F32, F64, I32, I64};
    use std::cell::Cell;

    /// Learns from an operator that accepts what `fits` says; what is known then, and the number
    /// of questions.
    fn learn(
        mut types: Vec<Option<DType>>,
        arguments: &[usize],
        fits: impl Fn(&[DType]) -> bool,
    ) -> (Vec<Option<DType>>, bool, usize) {
        let asked = Cell::new(0);
        let ask = |types: &[Option<DType>]| {
            asked.set(asked.get() + 1);
            let known: Option<Vec<DType>> = types.iter().copied().collect();
            let fits = known.is_some_and(|known| fits(&known));
            if fits { Ok(Some(Said::default())) } else { Err(Error::value("refused")) }
        };
        let accepted = learn_types(&mut types, arguments, &ask).is_ok();
        (types, accepted, asked.get())
    }

    #[test]
    fn each_input_is_learnt_in_any_order() {
        let float = |t: DType| matches!(t, F32 | F64);
        let take = |d: DType, i: DType| float(d) && i == I64;
        assert_eq!(learn(vec![None; 2], &[0, 1], |t| take(t[0], t[1])).0, [None, Some(I64)]);
        assert_eq!(learn(vec![None; 2], &[0, 1], |t| take(t[1], t[0])).0, [Some(I64), None]);
        let like = |t: &[DType]| take(t[0], t[1]) && t[0] == t[2];
        assert_eq!(learn(vec![None; 3], &[0, 1, 2], like).0, [None, Some(I64), None]);
        let known = vec![Some(F64), None, None];
        assert_eq!(learn(known, &[0, 1, 2], like).0, [Some(F64), Some(I64), Some(F64)]);
        let mixed = |t: &[DType]| t == [I32, I64, F32];
        assert_eq!(learn(vec![None; 3], &[0, 1, 2], mixed).0, [Some(I32), Some(I64), None]);
        let free = learn(vec![None, Some(F64)], &[0, 1], |_| true);
        assert_eq!(free.0, [None, Some(F64)]);
    }

    #[test]
    fn the_number_of_questions_is_bounded() {
        let (learnt, accepted, asked) = learn(vec![None; 30], &[0; 30], |t| *t == [I64; 30]);
        assert!(accepted && asked < 10 && learnt == [Some(I64); 30], "{asked}");
        let each: Vec<usize> = (0..30).collect();
        let (learnt, accepted, asked) = learn(vec![None; 30], &each, |t| *t == [I64; 30]);
        assert!(accepted && asked < 2 * MOST_QUESTIONS && learnt == [Some(I64); 30], "{asked}");
        let (learnt, accepted, asked) = learn(vec![None; 30], &[0; 30], |_| false);
        assert!(!accepted && asked < 2 * MOST_QUESTIONS && learnt == [None; 30], "{asked}");
        let (learnt, ..) = learn(vec![None; 2], &[0, 0], |t| t == [F32, I64]);
        assert_eq!(learnt, [None, Some(I64)], "arrays of one argument may differ");
    }
}
