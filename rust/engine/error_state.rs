//! Errors on variables: which variables carry one, and whether it has been reported.
//!
//! Two facts are kept apart. *Unreported*: a cell, shared by all variables of one chain of
//! failures, that the first wait empties. *Poisoned*: the bytes behind the variable were never
//! computed; cleared when they are overwritten whole. Only variables with one of the two have an
//! entry, so an engine without errors reads one counter. A *token* stands for no bytes: it carries
//! an error only until that is reported.

use crate::engine::sync::{Guard, Lock};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An error not yet raised by a wait.
pub type Cell = Arc<Lock<Option<Error>>>;

/// The error state of one variable. Errors may hold foreign values (a Python exception, its frames,
/// their arrays), and dropping these may re-enter the engine: none is dropped under a lock.
#[derive(Default)]
pub struct ErrorState {
    unreported: Option<Cell>,
    poison: Option<Error>,
    /// A token: the error is cleared once it is reported.
    token: bool,
}

impl ErrorState {
    fn carries_anything(&self) -> bool {
        self.poison.is_some() || self.unreported.as_ref().is_some_and(|c| c.lock().is_some())
    }

    /// The error that skips an operation that needs the variable.
    fn active(&self) -> Option<Error> {
        match self.token {
            false => self.poison.clone(),
            true => self.unreported.as_ref()?.lock().clone(),
        }
    }
}

#[derive(Default)]
pub struct Table {
    errors: HashMap<u32, ErrorState>,
    tokens: HashSet<u32>,
    /// Cells for `wait_for_all`, oldest first.
    cells: Vec<Cell>,
    prune_at: usize,
}

/// Cells kept for `wait_for_all` after their variables are deleted.
const MAX_ORPHANS: usize = 64;

/// The table of an engine.
#[derive(Default)]
pub struct ErrorStates {
    table: Lock<Table>,
    /// The number of variables with an entry.
    count: AtomicUsize,
    /// The number of tokens.
    tokens: AtomicUsize,
}

/// The reason to skip an operation: the error, and its unreported cell if it has one.
pub type Inherited = (Error, Option<Cell>);

/// The reason to skip an operation after shutdown: poison, but nothing to report.
#[cold]
pub fn shut_down() -> Inherited {
    (Error::shut_down(), None)
}

impl ErrorStates {
    pub fn lock_for_fork(&self) -> Guard<'_, Table> {
        self.table.lock()
    }

    /// Returns true if any variable has an error.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    fn recount(&self, table: &Table) {
        self.count.store(table.errors.len(), Ordering::Relaxed);
        self.tokens.store(table.tokens.len(), Ordering::Relaxed);
    }

    /// Makes the variable a token.
    pub fn add_token(&self, v: u32) {
        let mut table = self.table.lock();
        table.tokens.insert(v);
        self.recount(&table);
    }

    /// The error that an operation reading `sources` inherits.
    pub fn inherited(&self, mut sources: impl Iterator<Item = u32>) -> Option<Inherited> {
        if !self.any() {
            return None;
        }
        let table = self.table.lock();
        sources.find_map(|v| {
            let state_ = table.errors.get(&v)?;
            Some((state_.active()?, state_.unreported.clone()))
        })
    }

    /// Records a new failure, to be passed to [`ErrorStates::spread`].
    pub fn failed(&self, error: Error) -> Inherited {
        if error.is_reported() {
            return (error, None);
        }
        let cell: Cell = Arc::new(Lock::new(Some(error.clone())));
        let dropped: Vec<Cell>;
        let mut table = self.table.lock();
        if table.cells.len() >= table.prune_at.max(1024) {
            let mut orphans = 0;
            let kept = |c: &Cell| {
                let orphan = Arc::strong_count(c) == 1;
                orphans += usize::from(orphan);
                c.lock().is_some() && (!orphan || orphans <= MAX_ORPHANS)
            };
            let cells = std::mem::take(&mut table.cells);
            (table.cells, dropped) = cells.into_iter().partition(kept);
            table.prune_at = 2 * table.cells.len();
        } else {
            dropped = Vec::new();
        }
        table.cells.push(cell.clone());
        drop(table);
        drop(dropped);
        (error, Some(cell))
    }

    /// Sets the error of the variables that a failed or skipped operation was to write. The caller
    /// drops their previous errors outside any lock.
    pub fn spread(
        &self,
        (error, cell): &Inherited,
        written: impl Iterator<Item = u32>,
    ) -> Vec<ErrorState> {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        for v in written {
            let token = table.tokens.contains(&v);
            if token && cell.is_none() {
                gone.extend(table.errors.remove(&v));
                continue;
            }
            let poison = (!token).then(|| error.clone());
            let state_ = ErrorState { unreported: cell.clone(), poison, token };
            gone.extend(table.errors.insert(v, state_));
        }
        self.recount(&table);
        gone
    }

    /// Clears the poison of variables that were overwritten whole.
    pub fn heal(&self, overwritten: impl Iterator<Item = u32>) {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        for v in overwritten {
            if let Some(state_) = table.errors.remove(&v) {
                let cell = state_.unreported.clone().filter(|c| c.lock().is_some());
                if cell.is_some() {
                    let left = ErrorState { unreported: cell, poison: None, token: state_.token };
                    table.errors.insert(v, left);
                }
                gone.push(state_);
            }
        }
        self.recount(&table);
        drop(table);
        drop(gone);
    }

    /// Forgets a deleted variable. The caller drops its error outside any lock.
    #[must_use]
    pub fn forget(&self, v: u32) -> Option<ErrorState> {
        if !self.any() && self.tokens.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut table = self.table.lock();
        let state_ = table.errors.remove(&v);
        table.tokens.remove(&v);
        self.recount(&table);
        state_
    }

    /// Raises the unreported error of a variable, once.
    pub fn raise(&self, v: u32) -> Result<()> {
        if !self.any() {
            return Ok(());
        }
        let mut table = self.table.lock();
        let Some(state_) = table.errors.get_mut(&v) else { return Ok(()) };
        let error = state_.unreported.take().and_then(|c| c.lock().take());
        // The tokens of the chain carry nothing any more.
        if error.is_some() || state_.poison.is_none() {
            table.errors.retain(|_, f| f.carries_anything());
            self.recount(&table);
        }
        error.map_or(Ok(()), Err)
    }

    /// Raises the first unreported error of these variables and marks the others as reported.
    /// Errors of other variables are left to the waits for those.
    pub fn raise_first(&self, vars: impl Iterator<Item = u32>) -> Result<()> {
        let errors: Vec<Error> = vars.filter_map(|v| self.raise(v).err()).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Raises the first unreported error of all and marks every one as reported. In a forked child
    /// its own errors come before those of work left to the parent, which an exit does not report.
    pub fn raise_all(&self) -> Result<()> {
        let mut table = self.table.lock();
        let cells = std::mem::take(&mut table.cells);
        let mut errors: Vec<Error> = cells.iter().filter_map(|cell| cell.lock().take()).collect();
        errors.sort_by_key(Error::is_inherited); // stable: the order of the failures stays
        table.prune_at = 0;
        let all = std::mem::take(&mut table.errors);
        let (kept, gone): (HashMap<_, _>, HashMap<_, _>) =
            all.into_iter().partition(|(_, state_)| state_.poison.is_some());
        table.errors = kept;
        self.recount(&table);
        drop(table);
        drop((cells, gone));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    pub fn poisoned(&self, v: u32) -> Option<Error> {
        if !self.any() {
            return None;
        }
        self.table.lock().errors.get(&v)?.active()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_carried_once_the_error_of_tokens_was_raised() {
        let errors = ErrorStates::default();
        for v in [1, 2, 3] {
            errors.add_token(v);
        }
        let failed = errors.failed(Error::value("first"));
        drop(errors.spread(&failed, [1, 2, 7].into_iter()));
        let other = errors.failed(Error::value("second"));
        drop(errors.spread(&other, [3].into_iter()));
        assert!(errors.raise(1).is_err());
        assert!(errors.inherited([2].into_iter()).is_none());
        assert!(errors.poisoned(7).is_some(), "the bytes are still missing");
        assert!(errors.raise(3).is_err());
        assert!(errors.any());
        errors.heal([7].into_iter());
        assert!(!errors.any());
    }

    #[test]
    fn own_errors_come_before_those_of_work_left_to_the_parent() {
        let errors = ErrorStates::default();
        for (v, error) in [
            (1, Error::value("of the parent").inherited()),
            (2, Error::value("first of the child")),
            (3, Error::value("second of the child")),
        ] {
            drop(errors.spread(&errors.failed(error), [v].into_iter()));
        }
        let raised = errors.raise_all().unwrap_err().to_string();
        assert!(raised.contains("first of the child"), "{raised}");
        assert!(errors.raise_all().is_ok(), "all are reported");
        assert!(errors.poisoned(1).is_some(), "the bytes are still missing");
    }

    #[test]
    fn a_reported_error_is_raised_by_no_wait() {
        let errors = ErrorStates::default();
        errors.add_token(1);
        let failed = errors.failed(Error::value("seen").reported());
        drop(errors.spread(&failed, [1, 2].into_iter()));
        assert!(errors.raise(1).is_ok() && errors.raise(2).is_ok() && errors.raise_all().is_ok());
        assert!(errors.poisoned(2).is_some(), "the bytes are still missing");
        errors.heal([2].into_iter());
        assert!(!errors.any());
    }
}
