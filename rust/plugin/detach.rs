//! Memory of a library's own in place of its file's, so that what becomes of the file does it no
//! harm. The system maps files, and what overwrites one in place changes the code that runs.

use std::ffi::c_void;
use std::io::{Error, Result};
use std::ptr::null_mut;

/// A range of memory, as `/proc/self/maps` lists it.
struct Mapping<'a> {
    start: usize,
    end: usize,
    /// What may be done with it, such as `r-xp`.
    access: &'a str,
    /// The device and the inode of its file.
    file: (&'a str, &'a str),
}

/// Copies all that is mapped from the file of the library that has this symbol. It stays where it
/// is, under the same name for debuggers. Where the system refuses that, the rest stays mapped.
pub fn detach(symbol: *const c_void) -> Result<()> {
    let listed = std::fs::read("/proc/self/maps")?;
    let listed = String::from_utf8_lossy(&listed);
    let all: Vec<_> = listed.lines().filter_map(Mapping::read).collect();
    let there = all.iter().find(|m| (m.start..m.end).contains(&(symbol as usize)));
    let Some(file) = there.map(|m| m.file).filter(|file| file.1 != "0") else { return Ok(()) };
    let own =
        |m: &&Mapping<'_>| m.file == file && m.access.starts_with('r') && m.access.ends_with('p');
    // SAFETY: ranges of a library that stays, in which no other thread writes while it is loaded.
    all.iter().filter(own).try_for_each(|m| unsafe { m.copy() })
}

impl<'a> Mapping<'a> {
    fn read(line: &'a str) -> Option<Mapping<'a>> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (start, end, access) = (number(start)?, number(end)?, words.next()?);
        let file = (words.nth(1)?, words.next()?);
        Some(Mapping { start, end, access, file })
    }

    /// Puts a copy in the place of the range.
    ///
    /// # Safety
    /// The range is mapped as it says, and nobody writes to it meanwhile.
    unsafe fn copy(&self) -> Result<()> {
        let size = self.end - self.start;
        let allowed = [("r", libc::PROT_READ), ("w", libc::PROT_WRITE), ("x", libc::PROT_EXEC)];
        let allowed = allowed.iter().filter(|(letter, _)| self.access.contains(*letter));
        let access = allowed.fold(0, |all, (_, one)| all | one);
        let (how, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory.
        let fresh = unsafe { libc::mmap(null_mut(), size, how, kind, -1, 0) };
        if fresh == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let (from, to) = (self.start as *const u64, fresh.cast::<u64>());
        for i in 0..size / size_of::<u64>() {
            // Word by word, since a sanitizer forbids to read what lies between variables by a
            // function that it watches.
            // SAFETY: both have `size` bytes, whole pages.
            unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
        }
        let place = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: `fresh` is of this size, and replaces as much of the same content.
        let moved = unsafe {
            libc::mprotect(fresh, size, access) == 0
                && libc::mremap(fresh, size, size, place, self.start as *mut c_void)
                    != libc::MAP_FAILED
        };
        if moved {
            return Ok(());
        }
        let error = Error::last_os_error();
        // SAFETY: it is where it was made, and not used.
        unsafe { libc::munmap(fresh, size) };
        Err(error)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// A library outlives its file, which is cut off.
    #[test]
    fn a_library_needs_its_file_no_more() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut files = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        let original = files.find(|file| file.contains("/libm.so")).unwrap();
        let copy = std::env::temp_dir().join(format!("rsnet-detach-{}.so", std::process::id()));
        std::fs::copy(original, &copy).unwrap();
        let name = CString::new(copy.to_str().unwrap()).unwrap();
        // SAFETY: the library of mathematics, whose initialisers do no harm.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        // SAFETY: a name that ends with 0.
        let symbol = unsafe { libc::dlsym(handle, c"cbrt".as_ptr()) };
        // SAFETY: the type of `cbrt`.
        let cbrt: extern "C" fn(f64) -> f64 = unsafe { std::mem::transmute(symbol) };
        let before = cbrt(27.0);
        detach(symbol).unwrap();
        std::fs::File::create(&copy).unwrap();
        assert_eq!(cbrt(27.0), before);
        // SAFETY: nothing of it is used any more; its finalisers run.
        unsafe { libc::dlclose(handle) };
        std::fs::remove_file(&copy).unwrap();
    }
}
