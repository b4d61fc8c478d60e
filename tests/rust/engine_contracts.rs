//! What the engine promises beyond order: waits, errors, deletion, fork and shutdown.
