//! Sets up the log: JSON lines in a cluster, text at a terminal.
//!
//! Field names are the same everywhere: `key` is namespace and name of a Sandbox, `kind` a
//! resource, `error` the text of an error and `category` its label, `identity` and `holder` are
//! candidates for the lease. No field holds a secret.

use std::io::{IsTerminal as _, stderr};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Text lines for people.
    Text,
}

/// Filter of libraries that log each request at `info`. Later directives replace it.
const LIBRARIES: &str = "rmcp=warn";

/// Starts logging to standard error in this format; without one, as text at a terminal, else as
/// JSON. `RUST_LOG` filters; the default level is `info`.
pub fn init(format: Option<LogFormat>) {
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_else(|_| "info".into());
    let filter = EnvFilter::try_new(format!("{LIBRARIES},{wanted}"));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(format!("{LIBRARIES},info")));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr);
    let terminal = stderr().is_terminal();
    let default = if terminal {
        LogFormat::Text
    } else {
        LogFormat::Json
    };
    // Fails only if a subscriber is set already, which is kept.
    let _ = match format.unwrap_or(default) {
        LogFormat::Text => logs.with_ansi(terminal).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
}
