//! Audit log: one line for every change that somebody asked for, with who and what, and never with
//! a secret. The log escapes texts of clients, so that none can write a line of its own.

use super::ApiError;

/// Target of the lines, by which a log can be filtered.
const TARGET: &str = "audit";

/// A tenant changed a sandbox, or tried to.
pub(super) fn tenant(
    action: &'static str,
    tenant: &str,
    runtime: &str,
    outcome: Result<(), &ApiError>,
) {
    let runtime = short(runtime);
    match outcome {
        Ok(()) => tracing::info!(target: TARGET, action, tenant, runtime, outcome = "done"),
        Err(error) => {
            let outcome = error.category();
            tracing::info!(target: TARGET, action, tenant, runtime, outcome);
        }
    }
}

/// The administrator did something to a named thing.
pub(super) fn admin(action: &'static str, name: &str) {
    let name = short(name);
    tracing::info!(target: TARGET, action, tenant = "admin", name, outcome = "done");
}

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(128)]
}
