//! Request, result and error of a cell.

use std::path::Path;

use super::output::Output;

#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum JupyterError {
    /// Text of the Python server.
    #[error("JupyterRequirement not found. Unable to run IPython action.")]
    NotEnabled,
    #[error("{0}")]
    NoKernel(String),
    #[error("the server is shutting down")]
    Closed,
}

/// Result of a cell.
#[derive(Debug)]
pub(in crate::serve) struct CellResult {
    pub(in crate::serve) output: Output,
    /// Path of the Python of the kernel; empty if no kernel has started yet.
    pub(in crate::serve) interpreter: String,
}

/// Code, timeout and directory of a cell.
#[derive(Debug, Clone, Copy)]
pub(in crate::serve) struct CellRequest<'a> {
    pub(in crate::serve) code: &'a str,
    /// Seconds; absent and zero mean no limit.
    pub(in crate::serve) timeout: Option<f64>,
    /// Working directory of the shell.
    pub(in crate::serve) directory: &'a Path,
}
