//! Dtypes of inputs of which nothing is known: what an operator's `infer` demands of them.
//!
//! Most inputs may be float32. Where `infer` refuses that, other dtypes are tried:
//!
//! 1. of one argument at a time, then of two, and so on, from the left, so that as few as possible
//!    differ from float32 and the order of the inputs does not matter;
//! 2. the same for each input by itself, where arguments have several;
//! 3. where these are too many combinations: for all inputs alike, and in turns among the inputs of
//!    an argument (every second one, third, fourth);
//! 4. and step by step: a refusal with another text than all before shows that a change got
//!    further, or less far, in `infer`, and is the start of further changes.

use super::dtypes::candidates;
use super::frame::Said;
use crate::dtype::DType;
use crate::error::Result;
use std::collections::HashSet;

/// The most questions about combinations of dtypes in one way of going through them.
const MOST_QUESTIONS: usize = 500;

/// The most questions step by step, whose number is at most quadratic.
const MOST_STEPS: usize = 2000;

/// The longest turn of dtypes among the inputs of an argument.
const LONGEST_TURN: usize = 4;

/// Asks `infer` about inputs of these dtypes; `None` if it needs to know more.
pub type Ask<'a> = &'a dyn Fn(&[Option<DType>]) -> Result<Option<Said>>;

/// Findings about inputs that were unknown.
pub struct Learnt {
    /// What `infer` says of the accepted dtypes, where it had to be asked for them and has an
    /// answer.
    pub said: Option<Said>,
    /// Dtypes of all inputs that it accepts: the known ones, and float32 or what it demands.
    pub accepted: Vec<Option<DType>>,
}

/// What is demanded of the inputs in `types` that are unknown, where these dtypes are accepted:
/// nothing of those that may be float32.
pub fn demands(types: &[Option<DType>], accepted: &[Option<DType>]) -> Vec<Option<DType>> {
    let pairs = types.iter().zip(accepted);
    pairs.map(|(known, new)| known.or(new.filter(|t| *t != DType::F32))).collect()
}

/// Learns dtypes of inputs that are unknown. What `infer` itself sets becomes known; of the others
/// the answer says what it accepts. `arguments` says which argument each input is of. An error is
/// why `infer` refuses float32, where it accepts nothing else.
pub fn learn_types(
    types: &mut [Option<DType>],
    arguments: &[usize],
    ask: Ask<'_>,
) -> Result<Learnt> {
    if types.iter().any(Option::is_none)
        && let Ok(Some(said)) = ask(types)
    {
        for (known, slot) in types.iter_mut().zip(&said.tensors[0]) {
            *known = known.or(slot.dtype);
        }
    }
    let unknown: Vec<usize> = (0..types.len()).filter(|&i| types[i].is_none()).collect();
    if unknown.is_empty() {
        return Ok(Learnt { said: None, accepted: types.to_vec() });
    }
    let supposed: Vec<_> = types.iter().map(|t| t.or(Some(DType::F32))).collect();
    let refusal = match ask(&supposed) {
        Ok(said) => return Ok(Learnt { said, accepted: supposed }),
        Err(error) => error,
    };
    let mut search = Search { candidates: candidates(types), supposed, ask, left: 0 };
    let Some(said) = search.demanded(&unknown, arguments, refusal.message()) else {
        return Err(refusal);
    };
    Ok(Learnt { said: Some(said), accepted: search.supposed })
}

/// Inputs that are taken to be alike.
type Unit = Vec<usize>;

/// The inputs of each argument, in turns of `length`.
fn in_turns(by_argument: &[Unit], length: usize) -> Vec<Unit> {
    let turn = |unit: &Unit, at: usize| -> Unit {
        unit.iter().copied().skip(at).step_by(length).collect()
    };
    let turns = by_argument.iter().flat_map(|unit| (0..length).map(|at| turn(unit, at)));
    turns.filter(|unit| !unit.is_empty()).collect()
}

/// The search for dtypes that `infer` accepts.
struct Search<'a> {
    candidates: Vec<DType>,
    /// The combination that is tried, or was accepted.
    supposed: Vec<Option<DType>>,
    ask: Ask<'a>,
    /// The number of questions that may still be asked.
    left: usize,
}

impl Search<'_> {
    /// The answer to the first combination that is accepted, in the order that this file says.
    /// `refusal` is the text of the refusal of float32.
    fn demanded(&mut self, unknown: &[usize], arguments: &[usize], refusal: &str) -> Option<Said> {
        let by_argument: Vec<Unit> = unknown
            .chunk_by(|a, b| arguments.get(*a) == arguments.get(*b))
            .map(Vec::from)
            .collect();
        let singly: Vec<Unit> = unknown.iter().map(|i| vec![*i]).collect();
        let mut said = self.fewest(&by_argument);
        if said.is_none() && by_argument.len() < unknown.len() {
            said = self.fewest(&singly);
        }
        if said.is_some() || self.left > 0 {
            return said; // or all combinations were refused
        }
        said = self.fewest(&[unknown.to_vec()]);
        let longest = by_argument.iter().map(Vec::len).max().unwrap_or(0);
        for length in 2..=LONGEST_TURN.min(longest) {
            said = said.or_else(|| self.fewest(&in_turns(&by_argument, length)));
        }
        if let Some(said) = said {
            return Some(self.without_needless(&singly, said));
        }
        let said = self.stepwise(&by_argument, refusal);
        said.or_else(|| self.stepwise(&singly, refusal))
    }

    /// Tries all combinations, those with the fewest dtypes other than float32 first.
    fn fewest(&mut self, units: &[Unit]) -> Option<Said> {
        self.left = MOST_QUESTIONS;
        for n in 1..=units.len() {
            let said = self.differing(units, n);
            if said.is_some() || self.left == 0 {
                return said;
            }
        }
        None
    }

    /// Tries the combinations in which `n` of the units differ from float32.
    fn differing(&mut self, units: &[Unit], n: usize) -> Option<Said> {
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

    /// Changes one unit at a time, from every combination whose refusal had a new text, the last
    /// one first.
    fn stepwise(&mut self, units: &[Unit], refusal: &str) -> Option<Said> {
        self.left = MOST_STEPS;
        let start = self.supposed.clone();
        let mut seen = HashSet::from([refusal.to_owned()]);
        let mut open = vec![start.clone()];
        while let Some(base) = open.pop() {
            for unit in units {
                for i in 0..=self.candidates.len() {
                    let dtype = self.candidates.get(i).copied().unwrap_or(DType::F32);
                    if base[unit[0]] == Some(dtype) {
                        continue;
                    }
                    if self.left == 0 {
                        self.supposed = start;
                        return None;
                    }
                    self.left -= 1;
                    self.supposed.clone_from(&base);
                    self.suppose(unit, dtype);
                    match (self.ask)(&self.supposed) {
                        Ok(Some(said)) => return Some(self.without_needless(units, said)),
                        Ok(None) => {}
                        Err(error) => {
                            if seen.insert(error.message().to_owned()) {
                                open.push(self.supposed.clone());
                            }
                        }
                    }
                }
            }
        }
        self.supposed = start;
        None
    }

    /// Takes back what is accepted as float32 as well; the answer to what is left.
    fn without_needless(&mut self, units: &[Unit], mut said: Said) -> Said {
        for unit in units {
            let Some(dtype) = self.supposed[unit[0]].filter(|t| *t != DType::F32) else { continue };
            self.suppose(unit, DType::F32);
            match (self.ask)(&self.supposed) {
                Ok(Some(better)) => said = better,
                _ => self.suppose(unit, dtype),
            }
        }
        said
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
        let refused = |types: &[DType]| if fits(types) { None } else { Some("refused".to_owned()) };
        let (learnt, asked) = learn_from(&mut types, arguments, refused);
        (learnt.clone().unwrap_or(types), learnt.is_some(), asked)
    }

    /// As `learn`, from an operator that says why it refuses dtypes.
    fn learn_from(
        types: &mut [Option<DType>],
        arguments: &[usize],
        refused: impl Fn(&[DType]) -> Option<String>,
    ) -> (Option<Vec<Option<DType>>>, usize) {
        let asked = Cell::new(0);
        let ask = |types: &[Option<DType>]| {
            asked.set(asked.get() + 1);
            let known: Option<Vec<DType>> = types.iter().copied().collect();
            let known = known.ok_or_else(|| Error::value("unknown"))?;
            refused(&known)
                .map_or_else(|| Ok(Some(Said::default())), |text| Err(Error::value(text)))
        };
        let learnt = learn_types(types, arguments, &ask);
        (learnt.ok().map(|learnt| demands(types, &learnt.accepted)), asked.get())
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
        for arguments in [&[0; 30], &*each] {
            let (learnt, accepted, asked) = learn(vec![None; 30], arguments, |_| false);
            assert!(!accepted && asked < 3 * MOST_QUESTIONS && learnt == [None; 30], "{asked}");
        }
        let (learnt, ..) = learn(vec![None; 2], &[0, 0], |t| t == [F32, I64]);
        assert_eq!(learnt, [None, Some(I64)], "arrays of one argument may differ");
    }

    #[test]
    fn inputs_of_one_argument_may_take_turns() {
        for (length, n) in [(2, 8), (2, 101), (3, 9), (4, 40)] {
            let fits = |t: &[DType]| (0..n).all(|i| (t[i] == I64) == (i % length == length - 1));
            let (learnt, accepted, asked) = learn(vec![None; n], &vec![0; n], fits);
            let expected: Vec<_> =
                (0..n).map(|i| Some(I64).filter(|_| i % length == length - 1)).collect();
            assert!(accepted && asked < 4 * MOST_QUESTIONS && learnt == expected, "{asked}");
        }
    }

    #[test]
    fn refusals_that_say_more_are_followed() {
        // Some of the checks look at the same inputs, and one dtype breaks an earlier check.
        let wanted = [I32, F32, I64, I32, F32, I64, I64, I32, F32, I64, I32, I32];
        let each: Vec<usize> = (0..wanted.len()).collect();
        let refused = |t: &[DType]| {
            let wrong = wanted.iter().zip(t).position(|(want, got)| want != got)?;
            Some(format!("input {wrong} has the wrong dtype"))
        };
        let mut types = vec![None; wanted.len()];
        let (learnt, asked) = learn_from(&mut types, &each, refused);
        let expected: Vec<_> = wanted.iter().map(|t| Some(*t).filter(|t| *t != F32)).collect();
        assert_eq!(learnt, Some(expected));
        assert!(asked < 2 * MOST_QUESTIONS, "{asked}");
        // Texts that say nothing lead further only until the questions are used up.
        let count = Cell::new(0);
        let refused = |_: &[DType]| {
            count.set(count.get() + 1);
            Some(format!("refusal {}", count.get()))
        };
        let (learnt, asked) = learn_from(&mut [None; 12], &each, refused);
        assert!(learnt.is_none() && asked < 2 * MOST_STEPS + 4 * MOST_QUESTIONS, "{asked}");
    }

    #[test]
    fn no_more_inputs_change_than_have_to() {
        // The second check fails for dtypes that the first one never looked at.
        let each: Vec<usize> = (0..9).collect();
        let refused = |t: &[DType]| {
            let wrong = (0..8).find(|&i| t[i] != I64)?;
            Some(format!("{wrong}: {}", t[8]))
        };
        let (learnt, _) = learn_from(&mut [None; 9], &each, refused);
        let mut expected = vec![Some(I64); 9];
        expected[8] = None;
        assert_eq!(learnt, Some(expected));
    }
}
