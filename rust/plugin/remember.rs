//! What a library answered last about one set of attributes. Its answers depend on attributes,
//! shapes and dtypes alone (`plugin.h`), so that a repeated call need not ask again.

use super::dtypes::candidates;
use crate::dtype::DType;
use crate::error::Result;
use crate::lock::Lock;
use crate::operator::InplacePair;
use crate::shape::Shape;
use smallvec::SmallVec;

/// Few items of each of two sides, the inputs and the outputs.
type Sides<T> = [SmallVec<[T; 3]>; 2];

/// Dtypes of all inputs that are accepted, and the shapes of the outputs, unless more has to be
/// known for them.
pub type Accepted = (Vec<Option<DType>>, Option<Vec<Shape>>);

/// Findings about inputs of unknown dtypes.
struct Learnt {
    shapes: SmallVec<[Shape; 3]>,
    types: Vec<Option<DType>>,
    answer: Result<Accepted>,
}

/// The last answers, each asked for and kept under a lock that no thread waits for: a thread that
/// finds it taken asks the library.
#[derive(Default)]
pub struct Remembered {
    shapes: Lock<Option<Sides<Shape>>>,
    types: Lock<Option<Sides<DType>>>,
    /// With the dtypes, where an operator infers both at once.
    both: Lock<Option<(Sides<Shape>, Sides<DType>)>>,
    learnt: Lock<Option<Learnt>>,
    /// With the number of kernels that were asked: another library may add one.
    pairs: Lock<Option<(usize, Vec<InplacePair>)>>,
}

impl Remembered {
    /// Fills in shapes of outputs, of which nothing is known yet. False if nothing is remembered.
    pub fn shapes(&self, ins: &[Shape], outs: &mut [Shape]) -> bool {
        let blank = outs.iter().all(|s| !s.rank_known());
        blank && recall(&self.shapes, |known| give(known, ins, outs))
    }

    pub fn keep_shapes(&self, ins: &[Shape], outs: &[Shape]) {
        keep(&self.shapes, || [ins.into(), outs.into()]);
    }

    /// As [`Remembered::shapes`], for dtypes.
    pub fn types(&self, ins: &[Option<DType>], outs: &mut [Option<DType>]) -> bool {
        let blank = outs.iter().all(Option::is_none);
        blank && recall(&self.types, |known| give_types(known, ins, outs))
    }

    pub fn keep_types(&self, ins: &[Option<DType>], outs: &[Option<DType>]) {
        keep(&self.types, || [ins, outs].map(|side| side.iter().flatten().copied().collect()));
    }

    /// As [`Remembered::shapes`], for shapes and dtypes together.
    pub fn both(
        &self,
        ins: (&[Shape], &[Option<DType>]),
        outs: (&mut [Shape], &mut [Option<DType>]),
    ) -> bool {
        recall(&self.both, |(shapes, types)| {
            give_types(types, ins.1, outs.1) && give(shapes, ins.0, outs.0)
        })
    }

    pub fn keep_both(&self, ins: (&[Shape], &[Option<DType>]), outs: (&[Shape], &[Option<DType>])) {
        let types = || [ins.1, outs.1].map(|side| side.iter().flatten().copied().collect());
        keep(&self.both, || ([ins.0.into(), outs.0.into()], types()));
    }

    /// The finding about these inputs, or about the same while less was known of their dtypes.
    pub fn learnt(&self, shapes: &[Shape], types: &[Option<DType>]) -> Option<Result<Accepted>> {
        let kept = self.learnt.try_lock()?;
        let known = kept.as_ref()?;
        let says_more = |(old, new): (&Option<DType>, &Option<DType>)| old.is_none() || old == new;
        let same = *known.shapes == *shapes && known.types.len() == types.len();
        if !same || !known.types.iter().zip(types).all(says_more) {
            return None;
        }
        let holds = match &known.answer {
            Ok((accepted, _)) => types.iter().zip(accepted).all(says_more),
            // The dtypes that are known now have been tried.
            Err(_) => {
                let tried = candidates(&known.types);
                candidates(types).iter().all(|dtype| tried.contains(dtype))
            }
        };
        holds.then(|| known.answer.clone())
    }

    pub fn keep_learnt(
        &self,
        shapes: &[Shape],
        types: &[Option<DType>],
        answer: &Result<Accepted>,
    ) {
        let learnt =
            || Learnt { shapes: shapes.into(), types: types.to_vec(), answer: answer.clone() };
        keep(&self.learnt, learnt);
    }

    /// In-place pairs that this many kernels proposed.
    pub fn pairs(
        &self,
        n_kernels: usize,
        ask: impl FnOnce() -> Vec<InplacePair>,
    ) -> Vec<InplacePair> {
        let mut known = self.pairs.lock();
        match &*known {
            Some((n, pairs)) if *n == n_kernels => pairs.clone(),
            _ => {
                drop(known);
                let pairs = ask();
                known = self.pairs.lock();
                *known = Some((n_kernels, pairs.clone()));
                pairs
            }
        }
    }
}

#[inline]
fn recall<T>(kept: &Lock<Option<T>>, give: impl FnOnce(&T) -> bool) -> bool {
    kept.try_lock().is_some_and(|known| known.as_ref().is_some_and(give))
}

fn keep<T>(kept: &Lock<Option<T>>, answer: impl FnOnce() -> T) {
    if let Some(mut kept) = kept.try_lock() {
        *kept = Some(answer());
    }
}

#[inline]
fn give(known: &Sides<Shape>, ins: &[Shape], outs: &mut [Shape]) -> bool {
    let fits = *known[0] == *ins && known[1].len() == outs.len();
    if fits {
        outs.clone_from_slice(&known[1]);
    }
    fits
}

#[inline]
fn give_types(known: &Sides<DType>, ins: &[Option<DType>], outs: &mut [Option<DType>]) -> bool {
    let same = known[0].len() == ins.len() && known[0].iter().zip(ins).all(|(k, i)| *i == Some(*k));
    let fits = same && known[1].len() == outs.len();
    if fits {
        outs.iter_mut().zip(&known[1]).for_each(|(out, dtype)| *out = Some(*dtype));
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn an_answer_is_given_to_the_same_question_only() {
        let kept = Remembered::default();
        let (a, b) = (Shape::new(&[2, 3]), Shape::new(&[3]));
        let ask = |ins: &[Shape]| {
            let mut outs = [Shape::unknown()];
            kept.shapes(ins, &mut outs).then(|| outs[0].clone())
        };
        assert_eq!(ask(&[a.clone()]), None);
        kept.keep_shapes(&[a.clone()], &[b.clone()]);
        assert_eq!(ask(&[a.clone()]), Some(b.clone()));
        assert_eq!(ask(&[b.clone()]), None);
        assert_eq!(ask(&[a.clone(), a.clone()]), None);
        assert!(!kept.shapes(&[a.clone()], &mut [a.clone()]), "an output that is known is checked");

        kept.keep_types(&[Some(DType::F32)], &[Some(DType::I32)]);
        let mut out = [None];
        assert!(!kept.types(&[Some(DType::F64)], &mut out) && !kept.types(&[None], &mut out));
        assert!(kept.types(&[Some(DType::F32)], &mut out) && out == [Some(DType::I32)]);
        assert!(!kept.types(&[Some(DType::F32)], &mut [Some(DType::I32)]));

        let ins = ([a.clone()], [Some(DType::F32)]);
        kept.keep_both((&ins.0, &ins.1), (&[b.clone()], &[Some(DType::F64)]));
        let (mut shapes, mut types) = ([Shape::unknown()], [None]);
        assert!(!kept.both((&ins.0, &[Some(DType::F64)]), (&mut shapes, &mut types)));
        assert!(kept.both((&ins.0, &ins.1), (&mut shapes, &mut types)));
        assert!(shapes == [b] && types == [Some(DType::F64)]);
    }

    #[test]
    fn pairs_are_asked_for_again_when_a_kernel_is_added() {
        let kept = Remembered::default();
        let pair = InplacePair { input: 0, output: 0, identity: false };
        assert_eq!(kept.pairs(1, || vec![pair]).len(), 1);
        assert_eq!(kept.pairs(1, || panic!("known")).len(), 1);
        assert_eq!(kept.pairs(2, Vec::new).len(), 0);
    }

    #[test]
    fn what_was_learnt_holds_for_inputs_of_which_more_is_known() {
        use DType::{F32, F64, I32, I64};
        let kept = Remembered::default();
        let shapes = [Shape::new(&[2]), Shape::new(&[3])];
        let recalled = |types: [Option<DType>; 2]| kept.learnt(&shapes, &types).map(|a| a.is_ok());
        assert_eq!(recalled([None, None]), None);
        kept.keep_learnt(&shapes, &[None, None], &Ok((vec![Some(F32), Some(I32)], None)));
        assert_eq!(recalled([None, None]), Some(true));
        assert_eq!(recalled([Some(F32), None]), Some(true));
        assert_eq!(recalled([None, Some(I64)]), None, "another dtype than was accepted");
        assert!(kept.learnt(&shapes[..1], &[None]).is_none());
        kept.keep_learnt(&shapes, &[None, None], &Err(Error::value("refused")));
        assert_eq!(recalled([Some(I64), None]), Some(false));
        assert_eq!(recalled([Some(F64), None]), None, "not tried yet");
        kept.keep_learnt(&shapes, &[Some(F64), None], &Err(Error::value("refused")));
        assert_eq!(recalled([None, None]), None, "less is known");
        assert_eq!(recalled([Some(F64), Some(I32)]), Some(false));
    }
}
