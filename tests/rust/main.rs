//! The integration tests of the core: one binary with one module per subject.

mod engine_bulk;
mod engine_contracts;
mod engine_naive;
mod engine_programs;
mod engine_reference;
mod engine_scheduling;
mod files_from_strangers;
