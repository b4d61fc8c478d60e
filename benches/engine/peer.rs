//! A peer measured in the same run: libgomp's `task depend`, in a small C program that is compiled
//! on the fly.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/engine/libgomp.c");

/// The compiled program.
pub struct Libgomp(PathBuf);

impl Libgomp {
    /// Compiles the program; an error states why it is not available.
    pub fn build() -> Result<Self, String> {
        let program = std::env::temp_dir().join(format!("rsnet-libgomp-{}", std::process::id()));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let made = Command::new(&compiler)
            .args(["-O2", "-fopenmp", SOURCE, "-o"])
            .arg(&program)
            .output()
            .map_err(|e| format!("{compiler}: {e}"))?;
        match made.status.success() {
            true => Ok(Libgomp(program)),
            false => Err(format!("{compiler} -fopenmp: {}", made.status)),
        }
    }

    /// Nanoseconds per task of `pattern`, with `workers` threads in addition to the one that
    /// creates the tasks.
    pub fn measure(&self, pattern: &str, workers: usize) -> Result<f64, String> {
        let out = Command::new(&self.0)
            .args([pattern, &workers.to_string()])
            .output()
            .map_err(|e| e.to_string())?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
        }
        let text = String::from_utf8_lossy(&out.stdout);
        text.trim().parse().map_err(|e| format!("{text}: {e}"))
    }
}

impl Drop for Libgomp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
