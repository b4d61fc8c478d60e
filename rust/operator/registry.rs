//! The table of operators.

use super::def::OpDef;
use crate::error::{Error, Result};
use crate::lock::{Held, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

/// Operators by name and alias. Entries are immutable: a change replaces the definition, so bound
/// graphs keep the old one.
#[derive(Default)]
pub struct Registry {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    by_name: HashMap<String, Arc<OpDef>>,
    /// Canonical names in the order of registration.
    order: Vec<String>,
    builtin: usize,
}

impl Inner {
    /// An error if a name of `def` belongs to an operator that `counts`.
    fn refuse_taken(&self, def: &OpDef, counts: impl Fn(&OpDef) -> bool) -> Result<()> {
        let names = std::iter::once(&def.name).chain(&def.aliases);
        let owner = |n| self.by_name.get(n).filter(|d| counts(d)).map(|owner| (n, owner));
        match names.filter_map(owner).next() {
            Some((name, owner)) if *name == owner.name => Err(Error::value(format!(
                "operator '{name}' is already registered: expected another name"
            ))),
            Some((name, owner)) => Err(Error::value(format!(
                "operator '{name}' is already registered, as an alias of '{}': expected another \
                 name",
                owner.name
            ))),
            None => Ok(()),
        }
    }

    fn insert(&mut self, def: OpDef) -> Arc<OpDef> {
        let def = Arc::new(def);
        for name in std::iter::once(&def.name).chain(&def.aliases) {
            self.by_name.insert(name.clone(), def.clone());
        }
        def
    }
}

impl Registry {
    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.inner.hold()
    }

    /// Marks all operators registered so far as built in; later ones are the user's.
    pub fn end_of_builtins(&self) {
        let mut inner = self.inner.write();
        inner.builtin = inner.order.len();
    }

    /// The operator of this name or alias.
    pub fn get(&self, name: &str) -> Option<Arc<OpDef>> {
        self.inner.read().by_name.get(name).cloned()
    }

    /// As [`Registry::get`], with an error that names the operator.
    pub fn find(&self, name: &str) -> Result<Arc<OpDef>> {
        self.get(name).ok_or_else(|| Error::key(format!("operator '{name}' is not registered")))
    }

    /// Adds an operator; a name or alias that is taken is an error.
    pub fn add(&self, def: OpDef) -> Result<Arc<OpDef>> {
        let mut inner = self.inner.write();
        inner.refuse_taken(&def, |_| true)?;
        inner.order.push(def.name.clone());
        Ok(inner.insert(def))
    }

    /// Adds operators, and puts others in the places of those of the same names: all of them, or
    /// none if a name or alias is taken.
    pub fn add_all(&self, new: Vec<OpDef>, changed: Vec<OpDef>) -> Result<()> {
        let mut inner = self.inner.write();
        let mut names: Vec<&String> = Vec::new();
        for def in &new {
            inner.refuse_taken(def, |_| true)?;
            for name in std::iter::once(&def.name).chain(&def.aliases) {
                if names.contains(&name) {
                    return Err(Error::value(format!(
                        "two operators have the name '{name}': expected one"
                    )));
                }
                names.push(name);
            }
        }
        for def in new {
            inner.order.push(def.name.clone());
            inner.insert(def);
        }
        for def in changed {
            inner.insert(def);
        }
        Ok(())
    }

    /// Puts `def` in the place of the operator of the same name, or adds it. Replacing a built-in
    /// operator, or taking the name or an alias of another operator, is an error.
    pub fn replace(&self, def: OpDef) -> Result<Arc<OpDef>> {
        let mut inner = self.inner.write();
        let old = inner.order.iter().position(|n| *n == def.name);
        if old.is_some_and(|at| at < inner.builtin) {
            return Err(Error::value(format!(
                "operator '{}' is built in and cannot be replaced: expected another name",
                def.name
            )));
        }
        inner.refuse_taken(&def, |other| other.name != def.name)?;
        match old {
            Some(_) => inner.by_name.retain(|_, d| d.name != def.name),
            None => inner.order.push(def.name.clone()),
        }
        Ok(inner.insert(def))
    }

    /// Returns true if `name` is the canonical name of a built-in operator.
    pub fn is_builtin(&self, name: &str) -> bool {
        let inner = self.inner.read();
        inner.order[..inner.builtin].iter().any(|n| n == name)
    }

    /// All operators in the order of registration.
    pub fn all(&self) -> Vec<Arc<OpDef>> {
        let inner = self.inner.read();
        inner.order.iter().map(|n| inner.by_name[n].clone()).collect()
    }

    /// All names, aliases included, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.inner.read().by_name.keys().cloned().collect();
        names.sort();
        names
    }
}
