//! Hands the interpreter's configuration flags to the binding; nothing to do for the pure Rust
//! core.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "python")]
    {
        pyo3_build_config::use_pyo3_cfgs();
        #[cfg(feature = "embed")]
        pyo3_build_config::add_libpython_rpath_link_args();
    }
}
