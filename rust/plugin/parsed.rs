//! What an operator of a library knows of one set of attributes: the payload of [`Attrs`].

use super::decl::OpDecl;
use super::library::Owned;
use super::remember::Remembered;
use super::values::Values;
use crate::lock::Lock;
use crate::operator::DeferredError;
use std::any::Any;
use std::sync::Arc;

/// Attributes, names of inputs and outputs, and what the library made of them.
pub struct Parsed {
    pub op: Arc<OpDecl>,
    pub values: Values,
    /// The number of arrays of each input and output argument.
    pub counts: [Vec<usize>; 2],
    /// Names of all inputs and outputs, and their flags.
    pub names: [Vec<(String, u32)>; 2],
    pub made: Option<Owned>,
    /// Backward operators that are given the attributes of this one, each with its own reading.
    pub others: Lock<Vec<Arc<Parsed>>>,
    pub remembered: Remembered,
    pub error: DeferredError,
}

impl Parsed {
    /// Before the library has made anything of the attributes.
    pub fn new(
        op: Arc<OpDecl>,
        values: Values,
        counts: [Vec<usize>; 2],
        names: [Vec<(String, u32)>; 2],
    ) -> Self {
        let (others, remembered, error) = Default::default();
        Parsed { op, values, counts, names, made: None, others, remembered, error }
    }

    pub fn payload(self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self)
    }

    /// The object that `parse` made.
    pub fn made(&self) -> *mut std::ffi::c_void {
        self.made.as_ref().map_or(std::ptr::null_mut(), |m| m.made)
    }

    /// The number of array `i` of an argument among all of its side.
    pub fn find(&self, side: i32, arg: &str, i: usize) -> Option<usize> {
        let args = self.op.args(side);
        let counts = &self.counts[side as usize];
        match args.iter().position(|a| a.name == arg) {
            Some(at) if self.op.calls.names.is_none() => {
                (i < counts[at]).then(|| counts[..at].iter().sum::<usize>() + i)
            }
            _ => {
                let named = |name: &str| self.names[side as usize].iter().position(|n| n.0 == name);
                if i == 0 { named(arg) } else { None }
            }
        }
    }

    /// The number of arrays of an argument.
    pub fn count(&self, side: i32, arg: &str) -> usize {
        let at = self.op.args(side).iter().position(|a| a.name == arg);
        match at {
            Some(at) if self.op.calls.names.is_none() => self.counts[side as usize][at],
            _ => usize::from(self.find(side, arg, 0).is_some()),
        }
    }
}
