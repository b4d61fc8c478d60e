//! Loading: opens a library, compares versions, lets it register, and enters all of it at once.

use super::abi;
use super::define::{Parts, define};
use super::elf;
use super::host::HOST;
use super::library::Library;
use super::registration::Registration;
use crate::error::{Error, Result};
use crate::lock::{Guard, Held, Lock};
use crate::operator::Registry;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::{self, ThreadId};

/// The libraries of a process.
///
/// The lock of the table is held for short, and never while anything is called that may want the
/// interpreter or fork. One thread loads at a time; that is noted in the table, so that a fork need
/// not wait for it.
#[derive(Default)]
pub struct Libraries {
    table: Lock<Table>,
    /// No thread is loading any more.
    ended: Condvar,
}

#[derive(Default)]
struct Table {
    /// The process and the thread in which a library is being loaded. In a forked child the note of
    /// its parent means nothing.
    loading: Option<(u32, ThreadId)>,
    by_content: HashMap<u64, Loaded>,
    by_path: HashMap<PathBuf, u64>,
    parts: HashMap<String, Parts>,
    libraries: HashMap<u64, Arc<Library>>,
    /// Paths of libraries that were refused after the system had opened them.
    refused: HashSet<PathBuf>,
}

/// A library that was loaded, with the operators that it registered.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub path: PathBuf,
    /// Its operators, but for those that are for gradients alone.
    pub operators: Vec<String>,
    /// Names and aliases of its operators, and of those that it gave kernels or gradients to.
    pub names: Vec<String>,
    /// Those of `names` that programs call: not of operators for gradients alone.
    pub called: Vec<String>,
}

/// Approves of the names of new operators.
pub type Admit<'a> = &'a (dyn Fn(&str) -> Result<()> + Sync);

/// Tries whether a file can be opened without ending the process that does it.
pub type Try<'a> = &'a (dyn Fn(&Path) -> Result<()> + Sync);

impl Libraries {
    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.table.hold()
    }

    /// The descriptions of an operator, by libraries.
    pub fn parts(&self, op: &str) -> Option<Parts> {
        self.table.lock().parts.get(op).cloned()
    }

    /// Waits until no other thread is loading; this one is, until the returned value is dropped.
    fn begin(&self) -> Result<Loading<'_>> {
        let own = (std::process::id(), thread::current().id());
        let mut table: Guard<'_, Table> = self.table.lock();
        while let Some((process, thread)) = table.loading.filter(|at| at.0 == own.0) {
            if (process, thread) == own {
                return Err(Error::value("a library cannot be loaded while this thread loads one"));
            }
            table = self.ended.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
        table.loading = Some(own);
        Ok(Loading(self))
    }

    /// Loads a library into `registry`. The same file, or another one of the same content, is
    /// loaded once. Not to be called with the interpreter attached: a thread that loads may want
    /// it.
    pub fn load(
        &self,
        registry: &Arc<Registry>,
        path: &Path,
        checked: bool,
        try_first: Try<'_>,
        admit: Admit<'_>,
    ) -> Result<Loaded> {
        let shown = path;
        let io = |e: std::io::Error| Error::io(format!("cannot load '{}': {e}", shown.display()));
        let path = path.canonicalize().map_err(io)?;
        let kind = std::fs::metadata(&path).map_err(io)?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            // Reading a pipe would wait for whoever writes to it.
            let text = format!("cannot load '{}': it is not a regular file", shown.display());
            return Err(Error::io(text));
        }
        let bytes = read(&path).map_err(|e| refused(e, shown))?;
        let content = digest(&bytes);
        let _loading = self.begin()?;
        if let Some(known) = self.table.lock().known(&path, content, checked)? {
            return Ok(known);
        }
        let fresh = || {
            elf::check(&bytes)?;
            try_first(&path)?;
            let opened = self.open(&path)?;
            let is_cpp = elf::is_cpp(&bytes);
            let registered = opened.register(registry, &self.table, is_cpp, checked, admit);
            if registered.is_err() {
                self.table.lock().refused.insert(path.clone());
            }
            registered.map(|(loaded, library)| (opened, loaded, library))
        };
        let (opened, loaded, library) = fresh().map_err(|e| refused(e, shown))?;
        opened.keep();
        let mut table = self.table.lock();
        table.libraries.insert(content, library);
        table.by_content.insert(content, loaded.clone());
        table.by_path.insert(path, content);
        Ok(loaded)
    }

    /// Opens a library, or a copy of one that was refused before.
    fn open(&self, path: &Path) -> Result<Opened> {
        let was_refused = self.table.lock().refused.contains(path);
        if was_refused { Opened::copy(path) } else { Opened::open(path, path) }
    }
}

/// Why a library is not loaded. Where an operator is at fault, it stays named.
fn refused(error: Error, shown: &Path) -> Error {
    let text = format!("cannot load '{}': {}", shown.display(), error.message());
    match error.payload() {
        Some(_) => error,
        None => Error::new(error.kind(), text).in_operator(error.operator().unwrap_or_default()),
    }
}

/// This thread is loading a library.
struct Loading<'a>(&'a Libraries);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.table.lock().loading = None;
        self.0.ended.notify_all();
    }
}

impl Table {
    /// What a file of this content registered when it was loaded; an error if another content of
    /// the same file was.
    fn known(&mut self, path: &Path, content: u64, checked: bool) -> Result<Option<Loaded>> {
        let Some(known) = self.by_content.get(&content) else {
            if self.by_path.contains_key(path) {
                return Err(Error::value(format!(
                    "cannot load '{}': the file has changed since it was loaded, and a library \
                     cannot be replaced; start a new process, or compile to another file",
                    path.display()
                )));
            }
            return Ok(None);
        };
        let known = known.clone();
        if let Some(library) = self.libraries.get(&content).filter(|_| checked) {
            library.checked.store(true, Ordering::Relaxed);
        }
        self.by_path.insert(path.to_owned(), content);
        Ok(Some(known))
    }
}

/// The content of a file; of one that is no library no more than the header is read.
fn read(path: &Path) -> Result<Vec<u8>> {
    let io = |e: std::io::Error| Error::io(e.to_string());
    let mut file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    Read::take(&mut file, elf::HEADER as u64).read_to_end(&mut bytes).map_err(io)?;
    elf::check_header(&bytes)?;
    file.read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// A hash: equal for equal files, and different by chance for others.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The address where the library begins that an address is in.
fn begin_of(address: *mut c_void) -> Option<usize> {
    // SAFETY: plain data, which the system fills in.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0;
    found.then_some(info.dli_fbase as usize)
}

/// A library that the system has opened; closed again if it is not kept.
struct Opened {
    handle: *mut c_void,
    path: PathBuf,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: nothing of it is used.
            unsafe { libc::dlclose(self.handle) };
        }
    }
}

impl Opened {
    /// Opens a copy of the file. A library in C++ stays in the process although it was refused, and
    /// the system would give it out again for the same path, whatever the file is now.
    fn copy(path: &Path) -> Result<Opened> {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir();
        let n = COPIES.fetch_add(1, Ordering::Relaxed);
        let copy = folder.join(format!("rsnet-{}-{n}.so", std::process::id()));
        let io =
            |e: std::io::Error| Error::io(format!("cannot copy it to {}: {e}", folder.display()));
        let bytes = std::fs::read(path).map_err(io)?;
        let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&copy);
        let opened = match made.and_then(|mut file| file.write_all(&bytes)) {
            Ok(()) => Opened::open(&copy, path),
            Err(error) => Err(io(error)),
        };
        let _ = std::fs::remove_file(&copy);
        opened
    }

    /// Opens a file, which is shown as `path`.
    fn open(file: &Path, path: &Path) -> Result<Opened> {
        let name = CString::new(file.as_os_str().as_bytes())
            .map_err(|_| Error::io("the path has a zero byte: expected a path of the system"))?;
        // SAFETY: the library's initialisers run, as its loading asks.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: the text belongs to the system, and lives until this thread's next call.
            let text = unsafe { abi::text(libc::dlerror()) };
            return Err(Error::io(text.unwrap_or_else(|| "the system says no reason".into())));
        }
        Ok(Opened { handle, path: path.to_owned() })
    }

    /// The library stays open as long as the process.
    fn keep(mut self) {
        self.handle = std::ptr::null_mut();
    }

    /// A symbol of the library itself. (The system looks in those that it is linked with, too.)
    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a name that ends with 0.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null() && self.begins_at() == begin_of(found)).then_some(found)
    }

    /// The address where the library begins.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn begins_at(&self) -> Option<usize> {
        /// The first fields of the system's `link_map`.
        #[repr(C)]
        struct LinkMap {
            base: usize,
            name: *const c_char,
            dynamic: *mut c_void,
        }
        let mut map: *mut LinkMap = std::ptr::null_mut();
        let at = (&raw mut map).cast();
        // SAFETY: a handle that is open, and a place for the pointer that is asked for.
        let failed = unsafe { libc::dlinfo(self.handle, libc::RTLD_DI_LINKMAP, at) } != 0;
        // SAFETY: it lives as long as the handle.
        unsafe { map.as_ref() }.filter(|_| !failed).and_then(|map| begin_of(map.dynamic))
    }

    /// The address where the library begins, as far as the system tells it here: all symbols have
    /// to be of the library that has the first one.
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    fn begins_at(&self) -> Option<usize> {
        // SAFETY: a name that ends with 0.
        begin_of(unsafe { libc::dlsym(self.handle, c"rsnet_plugin_abi".as_ptr()) })
    }

    /// Compares the version of the interface that the library was compiled with.
    fn check_version(&self) -> Result<()> {
        let symbol = self.symbol(c"rsnet_plugin_abi").ok_or_else(|| {
            Error::value(
                "it is not a library of rsnet operators: it has no symbol rsnet_plugin_abi (see \
                 rsnet/plugin.h)",
            )
        })?;
        // SAFETY: plugin.h declares it as a uint32_t.
        let version = unsafe { symbol.cast::<u32>().read_unaligned() };
        let (major, minor) = (version >> 16, version & 0xffff);
        let (ours, our_minor) = (abi::ABI >> 16, abi::ABI & 0xffff);
        if major == ours && minor <= our_minor {
            return Ok(());
        }
        let why = match major {
            0 | 1000.. => "the number is damaged",
            m if m < ours => "compile it again with this version's headers",
            _ => "a newer version of rsnet is needed",
        };
        Err(Error::value(format!(
            "it was compiled for version {major}.{minor} of the plug-in interface, expected \
             {ours}.0 to {ours}.{our_minor}: {why}"
        )))
    }

    /// The function that keeps exceptions within the library; one that is linked with C++ must have
    /// it.
    fn guard(&self, is_cpp: bool) -> Result<Option<abi::GuardFn>> {
        match self.symbol(c"rsnet_plugin_guard") {
            // SAFETY: the only symbol of this name is that of plugin.h.
            Some(f) => Ok(Some(unsafe { std::mem::transmute::<*mut c_void, abi::GuardFn>(f) })),
            None if is_cpp => Err(Error::value(
                "it is linked with C++ and has no function rsnet_plugin_guard, without which an \
                 exception would end the process: export it, as rsnet_plugin_register, and compile \
                 with exceptions (see rsnet/plugin.h)",
            )),
            None => Ok(None),
        }
    }

    fn register(
        &self,
        registry: &Arc<Registry>,
        table: &Lock<Table>,
        is_cpp: bool,
        checked: bool,
        admit: Admit<'_>,
    ) -> Result<(Loaded, Arc<Library>)> {
        self.check_version()?;
        let register = self.symbol(c"rsnet_plugin_register").ok_or_else(|| {
            Error::value("it has no function rsnet_plugin_register (see rsnet/plugin.h)")
        })?;
        let guard = self.guard(is_cpp)?;
        // SAFETY: plugin.h declares it with this type.
        let register: abi::RegisterFn = unsafe { std::mem::transmute(register) };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let library = Arc::new(Library {
            path: self.path.clone(),
            name,
            guard,
            checked: AtomicBool::new(checked),
        });
        let mut registration = Registration::new(library.clone());
        // SAFETY: the function of the library, with the table and a registry that live longer.
        let run = || unsafe { register(&HOST, (&raw mut registration).cast()) };
        let status = library.run(run);
        if let Some(error) = registration.failure {
            return Err(error);
        }
        match status? {
            abi::OK => {}
            status => {
                return Err(Error::value(format!(
                    "rsnet_plugin_register failed with status {status}"
                )));
            }
        }
        Ok((enter(registration, registry, table, admit)?, library))
    }
}

/// Puts what was registered together with what is known, and enters it.
fn enter(
    found: Registration,
    registry: &Arc<Registry>,
    table: &Lock<Table>,
    admit: Admit<'_>,
) -> Result<Loaded> {
    let path = found.library.path.clone();
    let fresh: Vec<String> = found.ops.iter().map(|op| op.name.clone()).collect();
    for op in &found.ops {
        for name in std::iter::once(&op.name).chain(&op.aliases) {
            admit(name).map_err(|e| e.in_operator(&op.name))?;
        }
    }
    let parts = put_together(found, table)?;
    if parts.is_empty() {
        return Err(Error::value("rsnet_plugin_register registered nothing: expected an operator"));
    }
    let weak = Arc::downgrade(registry);
    let defs = parts.iter().map(|p| define(p, &weak)).collect::<Result<Vec<_>>>()?;
    let is_new = |def: &crate::operator::OpDef| fresh.contains(&def.name);
    let (new, changed): (Vec<_>, Vec<_>) = defs.into_iter().partition(is_new);
    let mut table = table.lock();
    registry.add_all(new, changed)?;
    let (mut operators, mut names, mut called) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let op = &part.op;
        let own = || std::iter::once(&op.name).chain(&op.aliases).cloned();
        names.extend(own());
        if !op.has(abi::BACKWARD) {
            called.extend(own());
            operators.extend(fresh.contains(&op.name).then(|| op.name.clone()));
        }
        table.parts.insert(op.name.clone(), part);
    }
    Ok(Loaded { path, operators, names, called })
}

/// The registration, sorted by operator. Kernels and gradients may belong to an operator of a
/// library that was loaded before.
fn put_together(found: Registration, table: &Lock<Table>) -> Result<Vec<Parts>> {
    let new = |op| Parts { op, kernels: Vec::new(), gradient: None };
    let mut parts: Vec<Parts> = found.ops.into_iter().map(new).collect();
    for kernel in found.kernels {
        of(&mut parts, table, &kernel.op, "a kernel")?.kernels.push(kernel);
    }
    for gradient in found.gradients {
        let part = of(&mut parts, table, &gradient.op, "a gradient")?;
        if part.gradient.is_some() {
            return Err(Error::value("a gradient is registered already: expected one")
                .in_operator(&gradient.op));
        }
        part.gradient = Some(gradient);
    }
    Ok(parts)
}

/// The operator that the library has `what` for.
fn of<'a>(
    parts: &'a mut Vec<Parts>,
    table: &Lock<Table>,
    op: &str,
    what: &str,
) -> Result<&'a mut Parts> {
    let at = match parts.iter().position(|p| p.op.name == op) {
        Some(at) => at,
        None => {
            let known = table.lock().parts.get(op).cloned().ok_or_else(|| {
                Error::value(format!(
                    "the library has {what} for '{op}', which is no operator of this library or of \
                     one loaded before"
                ))
            })?;
            parts.push(known);
            parts.len() - 1
        }
    };
    Ok(&mut parts[at])
}
