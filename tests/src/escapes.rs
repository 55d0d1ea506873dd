//! Attempts to leave a sandbox, the same wherever it runs.

pub mod attempts;
pub mod other_volume;
pub mod outside;
pub mod program;
