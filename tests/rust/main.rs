//! The integration tests of the core: one binary with one module per subject.

use proptest::test_runner::Config;

/// The configuration of a property test whose cases are long: there are `standard` of them, unless
/// `PROPTEST_CASES` says otherwise.
fn cases(standard: u32) -> Config {
    let is_told = std::env::var_os("PROPTEST_CASES").is_some();
    let config = Config::default();
    Config { cases: if is_told { config.cases } else { standard }, ..config }
}

mod engine_bulk;
mod engine_contracts;
mod engine_naive;
mod engine_programs;
mod engine_reference;
mod engine_scheduling;
mod files_from_strangers;
