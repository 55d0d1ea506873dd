//! Placeholder during scaffolding.

pub mod api;
pub mod node;
