//! Terminals over HTTP and WebSocket (`docs/specs/executor.md`, section 13).

mod agent;
mod limits;
mod pipes;
mod shell;
pub(crate) mod viewer;
