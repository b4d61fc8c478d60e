//! Functions that run on devices: who loads them, and those that are loaded.
//!
//! Compiling and loading is the work of a library outside of the core (CuPy), which is asked on a
//! thread that pushes work. What it returns is the driver's own handle, which is valid for the
//! life of the process and is launched without asking anyone again.

use super::driver::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Held, RwLock};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Loads a function for a device: the number of the device, the source file, text that follows it,
/// and the function with its template arguments. Returns the driver's handle (`CUfunction`).
pub type Loader = fn(i32, &str, &str, &str) -> Result<usize>;

/// What a set of functions was loaded for: an address that stands for who asked, the number of the
/// device, and a number for the template arguments.
pub type Key = (usize, i32, u64);

/// A loaded function.
#[derive(Clone, Debug)]
pub struct Function {
    handle: usize,
    /// With its template arguments, for errors.
    pub name: String,
}

impl Function {
    /// The driver's handle.
    #[inline]
    pub fn handle(&self) -> Handle {
        self.handle as Handle
    }
}

/// The functions that were loaded so far.
#[derive(Default)]
pub struct Functions {
    loader: OnceLock<Loader>,
    loaded: RwLock<HashMap<Key, Arc<[Function]>>>,
}

impl Functions {
    /// Sets who loads functions from now on.
    pub fn set_loader(&self, loader: Loader) {
        let _ = self.loader.set(loader);
    }

    /// The functions of `key`; `wanted` says (source, text, function) of those that are loaded if
    /// this is the first call for them. Whoever the key names must stay at its address.
    #[inline]
    pub fn get<'a>(
        &self,
        key: Key,
        wanted: impl FnOnce() -> Vec<(&'static str, &'a str, String)>,
    ) -> Result<Arc<[Function]>> {
        if let Some(known) = self.loaded.read().get(&key) {
            return Ok(known.clone());
        }
        self.load(key, wanted())
    }

    #[cold]
    fn load(&self, key: Key, wanted: Vec<(&'static str, &str, String)>) -> Result<Arc<[Function]>> {
        let Some(loader) = self.loader.get() else {
            let text = "CUDA functions need the Python package of rsnet, which compiles them";
            return Err(Error::new(ErrorKind::NotImplemented, text));
        };
        // Without the lock: the loader may wait for the interpreter. Of two threads that load the
        // same functions the second gets those that the loader has kept.
        let load = |(source, text, name): (&'static str, &str, String)| {
            loader(key.1, source, text, &name).map(|handle| Function { handle, name })
        };
        let loaded: Arc<[Function]> = wanted.into_iter().map(load).collect::<Result<_>>()?;
        Ok(self.loaded.write().entry(key).or_insert(loaded).clone())
    }

    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.loaded.hold()
    }
}
