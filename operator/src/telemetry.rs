//! Logs of the process: one JSON object per line in a cluster, plain lines at a terminal.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;

/// Begins to log to standard error. `RUST_LOG` filters; without it, `info` and up.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr);
    // Fails only if somebody logs already, which is as good.
    let _ = if stderr().is_terminal() {
        logs.try_init()
    } else {
        logs.json().flatten_event(true).try_init()
    };
}
