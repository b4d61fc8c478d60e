//! Errors on their way: which variables carry one, and whether it has been reported.
//!
//! Two facts are kept apart. *Unreported*: a cell, shared by all variables of one chain of failures, that
//! the first wait empties. *Poisoned*: the bytes behind the variable were never computed; this stays until
//! they are overwritten whole. Only variables with one of the two have an entry, so that an engine without
//! errors looks at one counter. A *token* stands for no bytes: for it, an error is over once it is reported.

use crate::engine::sync::{Guard, Lock};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An error not yet raised by a wait.
pub type Cell = Arc<Lock<Option<Error>>>;

/// What one variable carries. Errors may hold foreign values (a Python exception, its frames, their arrays), whose
/// end may call the engine: none is dropped under a lock.
#[derive(Default)]
pub struct Fault {
    unreported: Option<Cell>,
    poison: Option<Error>,
    /// A token: nothing was to be computed, so the error is over once it is reported.
    token: bool,
}

impl Fault {
    fn carries_anything(&self) -> bool {
        self.poison.is_some() || self.unreported.as_ref().is_some_and(|c| c.lock().is_some())
    }

    /// Why an operation that needs the variable is skipped.
    fn active(&self) -> Option<Error> {
        match self.token {
            false => self.poison.clone(),
            true => self.unreported.as_ref()?.lock().clone(),
        }
    }
}

#[derive(Default)]
pub struct Table {
    faults: HashMap<u32, Fault>,
    tokens: HashSet<u32>,
    /// Cells for `wait_for_all`, oldest first.
    cells: Vec<Cell>,
    prune_at: usize,
}

/// Cells kept for `wait_for_all` after the variables that carried them are gone.
const KEPT: usize = 64;

/// The table of an engine.
#[derive(Default)]
pub struct Faults {
    table: Lock<Table>,
    /// Variables with an entry.
    count: AtomicUsize,
    /// Variables that are tokens.
    tokens: AtomicUsize,
}

/// Why an operation is skipped.
pub type Inherited = (Error, Option<Cell>);

/// What an operation leaves that is skipped because the engine is shut down: nothing to raise, and no bytes.
#[cold]
pub fn shut_down() -> Inherited {
    (Error::execution("never computed: the engine was shut down first"), None)
}

impl Faults {
    pub fn hold(&self) -> Guard<'_, Table> {
        self.table.lock()
    }

    /// Is there any variable with an error?
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    fn recount(&self, table: &Table) {
        self.count.store(table.faults.len(), Ordering::Relaxed);
        self.tokens.store(table.tokens.len(), Ordering::Relaxed);
    }

    /// From now on the variable stands for no bytes.
    pub fn is_token(&self, v: u32) {
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
            let fault = table.faults.get(&v)?;
            Some((fault.active()?, fault.unreported.clone()))
        })
    }

    /// A new failure, to be given to [`Faults::spread`].
    pub fn failed(&self, error: Error) -> Inherited {
        if error.is_told() {
            return (error, None);
        }
        let cell: Cell = Arc::new(Lock::new(Some(error.clone())));
        let gone: Vec<Cell>;
        let mut table = self.table.lock();
        if table.cells.len() >= table.prune_at.max(1024) {
            let mut orphans = 0;
            let kept = |c: &Cell| {
                let orphan = Arc::strong_count(c) == 1;
                orphans += usize::from(orphan);
                c.lock().is_some() && (!orphan || orphans <= KEPT)
            };
            let cells = std::mem::take(&mut table.cells);
            (table.cells, gone) = cells.into_iter().partition(kept);
            table.prune_at = 2 * table.cells.len();
        } else {
            gone = Vec::new();
        }
        table.cells.push(cell.clone());
        drop(table);
        drop(gone);
        (error, Some(cell))
    }

    /// All of `written` were to be computed by an operation that failed or was skipped. What they carried
    /// before is to be dropped where no lock is held.
    pub fn spread(
        &self,
        (error, cell): &Inherited,
        written: impl Iterator<Item = u32>,
    ) -> Vec<Fault> {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        for v in written {
            let token = table.tokens.contains(&v);
            if token && cell.is_none() {
                gone.extend(table.faults.remove(&v));
                continue;
            }
            let poison = (!token).then(|| error.clone());
            let fault = Fault { unreported: cell.clone(), poison, token };
            gone.extend(table.faults.insert(v, fault));
        }
        self.recount(&table);
        gone
    }

    /// All of `overwritten` were computed afresh.
    pub fn heal(&self, overwritten: impl Iterator<Item = u32>) {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        for v in overwritten {
            if let Some(fault) = table.faults.remove(&v) {
                let cell = fault.unreported.clone().filter(|c| c.lock().is_some());
                if cell.is_some() {
                    let left = Fault { unreported: cell, poison: None, token: fault.token };
                    table.faults.insert(v, left);
                }
                gone.push(fault);
            }
        }
        self.recount(&table);
        drop(table);
        drop(gone);
    }

    /// The variable is deleted. What it carried is to be dropped where no lock is held.
    #[must_use]
    pub fn forget(&self, v: u32) -> Option<Fault> {
        if !self.any() && self.tokens.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut table = self.table.lock();
        let fault = table.faults.remove(&v);
        table.tokens.remove(&v);
        self.recount(&table);
        fault
    }

    /// Raises the unreported error of a variable.
    pub fn raise(&self, v: u32) -> Result<()> {
        if !self.any() {
            return Ok(());
        }
        let mut table = self.table.lock();
        let Some(fault) = table.faults.get_mut(&v) else { return Ok(()) };
        let error = fault.unreported.take().and_then(|c| c.lock().take());
        // Variables of the chain that were not to hold any bytes carry nothing any more.
        if error.is_some() || fault.poison.is_none() {
            table.faults.retain(|_, f| f.carries_anything());
            self.recount(&table);
        }
        error.map_or(Ok(()), Err)
    }

    /// Raises the first unreported error of all and marks every one as reported.
    pub fn raise_all(&self) -> Result<()> {
        let mut table = self.table.lock();
        let cells = std::mem::take(&mut table.cells);
        let errors: Vec<Error> = cells.iter().filter_map(|cell| cell.lock().take()).collect();
        table.prune_at = 0;
        let all = std::mem::take(&mut table.faults);
        let (kept, gone): (HashMap<_, _>, HashMap<_, _>) =
            all.into_iter().partition(|(_, fault)| fault.poison.is_some());
        table.faults = kept;
        self.recount(&table);
        drop(table);
        drop((cells, gone));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    pub fn poisoned(&self, v: u32) -> Option<Error> {
        if !self.any() {
            return None;
        }
        self.table.lock().faults.get(&v)?.active()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_carried_once_the_error_of_tokens_was_raised() {
        let faults = Faults::default();
        for v in [1, 2, 3] {
            faults.is_token(v);
        }
        let failed = faults.failed(Error::value("first"));
        drop(faults.spread(&failed, [1, 2, 7].into_iter()));
        let other = faults.failed(Error::value("second"));
        drop(faults.spread(&other, [3].into_iter()));
        assert!(faults.raise(1).is_err());
        assert!(faults.inherited([2].into_iter()).is_none());
        assert!(faults.poisoned(7).is_some(), "bytes stay unmade");
        assert!(faults.raise(3).is_err());
        assert!(faults.any());
        faults.heal([7].into_iter());
        assert!(!faults.any());
    }

    #[test]
    fn an_error_that_was_told_is_raised_by_no_wait() {
        let faults = Faults::default();
        faults.is_token(1);
        let failed = faults.failed(Error::value("seen").told());
        drop(faults.spread(&failed, [1, 2].into_iter()));
        assert!(faults.raise(1).is_ok() && faults.raise(2).is_ok() && faults.raise_all().is_ok());
        assert!(faults.poisoned(2).is_some(), "bytes stay unmade");
        faults.heal([2].into_iter());
        assert!(!faults.any());
    }
}
