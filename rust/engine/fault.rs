//! Errors on their way: which variables carry one, and whether it has been reported.
//!
//! Two facts are kept apart. *Unreported*: a cell, shared by all variables of one chain of failures, that
//! the first wait empties. *Poisoned*: the bytes behind the variable were never computed; this stays until
//! they are overwritten whole. Only variables with one of the two have an entry, so that an engine without
//! errors looks at one counter.

use super::sync::{Guard, Lock};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An error not yet raised by a wait.
pub type Cell = Arc<Lock<Option<Error>>>;

/// What one variable carries.
#[derive(Clone, Default)]
struct Fault {
    unreported: Option<Cell>,
    poison: Option<Error>,
}

#[derive(Default)]
pub struct Table {
    faults: HashMap<u32, Fault>,
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
}

/// Why an operation is skipped.
pub type Inherited = (Error, Option<Cell>);

impl Faults {
    pub fn hold(&self) -> Guard<'_, Table> {
        self.table.lock()
    }

    /// Is there any variable with an error?
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The error that an operation reading `sources` inherits.
    pub fn inherited(&self, mut sources: impl Iterator<Item = u32>) -> Option<Inherited> {
        let table = self.table.lock();
        sources.find_map(|v| {
            let fault = table.faults.get(&v)?;
            Some((fault.poison.clone()?, fault.unreported.clone()))
        })
    }

    /// A new failure, to be given to [`Faults::spread`].
    pub fn failed(&self, error: Error) -> Inherited {
        let cell: Cell = Arc::new(Lock::new(Some(error.clone())));
        let mut table = self.table.lock();
        if table.cells.len() >= table.prune_at.max(1024) {
            table.cells.retain(|c| c.lock().is_some());
            let mut orphans = 0;
            table.cells.retain(|c| {
                orphans += usize::from(Arc::strong_count(c) == 1);
                Arc::strong_count(c) > 1 || orphans <= KEPT
            });
            table.prune_at = 2 * table.cells.len();
        }
        table.cells.push(cell.clone());
        (error, Some(cell))
    }

    /// All of `written` were to be computed by an operation that failed or was skipped.
    pub fn spread(&self, (error, cell): &Inherited, written: impl Iterator<Item = u32>) {
        let mut table = self.table.lock();
        for v in written {
            let fault = table.faults.entry(v).or_default();
            fault.poison = Some(error.clone());
            fault.unreported = cell.clone();
        }
        self.count.store(table.faults.len(), Ordering::Relaxed);
    }

    /// All of `overwritten` were computed afresh.
    pub fn heal(&self, overwritten: impl Iterator<Item = u32>) {
        let mut table = self.table.lock();
        for v in overwritten {
            if let Some(fault) = table.faults.get_mut(&v) {
                fault.poison = None;
                if fault.unreported.as_ref().is_none_or(|c| c.lock().is_none()) {
                    table.faults.remove(&v);
                }
            }
        }
        self.count.store(table.faults.len(), Ordering::Relaxed);
    }

    /// The variable is deleted.
    pub fn forget(&self, v: u32) {
        if !self.any() {
            return;
        }
        let mut table = self.table.lock();
        table.faults.remove(&v);
        self.count.store(table.faults.len(), Ordering::Relaxed);
    }

    /// Raises the unreported error of a variable.
    pub fn raise(&self, v: u32) -> Result<()> {
        if !self.any() {
            return Ok(());
        }
        let mut table = self.table.lock();
        let Some(fault) = table.faults.get_mut(&v) else { return Ok(()) };
        let error = fault.unreported.take().and_then(|c| c.lock().take());
        if fault.poison.is_none() {
            table.faults.remove(&v);
            self.count.store(table.faults.len(), Ordering::Relaxed);
        }
        error.map_or(Ok(()), Err)
    }

    /// Raises the first unreported error of all and marks every one as reported.
    pub fn raise_all(&self) -> Result<()> {
        let mut table = self.table.lock();
        let mut first = Ok(());
        for cell in std::mem::take(&mut table.cells) {
            if let Some(error) = cell.lock().take() {
                first = first.and(Err(error));
            }
        }
        table.prune_at = 0;
        table.faults.retain(|_, f| f.poison.is_some());
        self.count.store(table.faults.len(), Ordering::Relaxed);
        first
    }

    pub fn poisoned(&self, v: u32) -> Option<Error> {
        if !self.any() {
            return None;
        }
        self.table.lock().faults.get(&v)?.poison.clone()
    }
}
