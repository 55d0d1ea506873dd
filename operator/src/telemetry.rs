//! Logs of the process: one JSON object per line in a cluster, plain lines at a terminal.
//!
//! Fields have the same names everywhere: `key` is namespace and name of a Sandbox, `kind` a
//! resource, `error` the text of an error and `category` its fixed name, `identity` and `holder`
//! are candidates for the lease. No field ever holds a secret.

use std::io::{IsTerminal as _, stderr};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Lines for people.
    Text,
}

/// Begins to log to standard error, as text at a terminal and as JSON elsewhere. `RUST_LOG`
/// filters; without it, `info` and up.
pub fn init() {
    init_as(None);
}

/// Begins to log in this format; without one, as [`init`] does.
pub fn init_as(format: Option<LogFormat>) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr);
    let terminal = stderr().is_terminal();
    let default = if terminal {
        LogFormat::Text
    } else {
        LogFormat::Json
    };
    // Fails only if somebody logs already, which is as good.
    let _ = match format.unwrap_or(default) {
        LogFormat::Text => logs.with_ansi(terminal).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
}
