//! The table of operators.

use super::def::OpDef;
use crate::error::{Error, Result};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// Operators by name and alias. Entries are immutable: to change one is to put a new definition in its
/// place, so graphs that are bound keep the old one.
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

impl Registry {
    /// What is registered so far came with rsnet; what follows is the user's.
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
        let names = || std::iter::once(&def.name).chain(&def.aliases);
        if let Some(taken) = names().find(|n| inner.by_name.contains_key(*n)) {
            return Err(Error::value(format!("operator '{taken}' is already registered")));
        }
        let names: Vec<String> = names().cloned().collect();
        let def = Arc::new(def);
        inner.order.push(def.name.clone());
        for name in names {
            inner.by_name.insert(name, def.clone());
        }
        Ok(def)
    }

    /// Puts `def` in the place of the operator of the same name, or adds it. Replacing a built-in
    /// operator is an error.
    pub fn replace(&self, def: OpDef) -> Result<Arc<OpDef>> {
        let mut inner = self.inner.write();
        match inner.order.iter().position(|n| *n == def.name) {
            Some(at) if at < inner.builtin => {
                return Err(Error::value(format!(
                    "operator '{}' is built in and cannot be replaced",
                    def.name
                )));
            }
            Some(_) => inner.by_name.retain(|_, d| d.name != def.name),
            None => inner.order.push(def.name.clone()),
        }
        let def = Arc::new(def);
        for name in std::iter::once(&def.name).chain(&def.aliases) {
            inner.by_name.insert(name.clone(), def.clone());
        }
        Ok(def)
    }

    /// Is `name` the canonical name of a built-in operator?
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
