//! A cache of the parsed parameters of the last calls of an operator.

use super::param::Attrs;
use super::value::Value;
use crate::lock::Lock;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// Parsed parameters of the last calls.
#[derive(Default)]
pub struct Recent {
    /// Those of a call without parameters.
    pub plain: OnceLock<Arc<Attrs>>,
    last: Lock<VecDeque<Arc<Attrs>>>,
}

impl Recent {
    const SIZE: usize = 4;

    pub fn find(&self, given: &[(&str, Value)]) -> Option<Arc<Attrs>> {
        let same = |attrs: &&Arc<Attrs>| {
            let old = attrs.given();
            old.len() == given.len()
                && old.iter().zip(given).all(|(a, b)| a.0 == b.0 && a.1.is_identical(&b.1))
        };
        self.last.lock().iter().find(same).cloned()
    }

    pub fn keep(&self, attrs: Arc<Attrs>) {
        let mut last = self.last.lock();
        last.truncate(Self::SIZE - 1);
        last.push_front(attrs);
    }
}

/// A copy of a definition may be changed to parse differently: its cache starts empty.
impl Clone for Recent {
    fn clone(&self) -> Self {
        Recent::default()
    }
}
