//! The initialization message, which turns a dormant Pod into a sandbox: command, working
//! directory, environment and readiness probe.

mod context;
mod environment;
#[cfg(test)]
mod tests;

use crds::contract::control::{Init, Probe};

use crate::reconcile::build::command::{effective_command, is_sandbox_server};
use crate::reconcile::build::workspace_claim::workspace_path;
use context::MAX_INIT_BYTES;
use shared::index::Entry;
use shared::urls::RUNTIME;

pub use context::{InitContext, InitError};
pub use environment::{Environment, environment};

/// Path that every sandbox server answers without a key (`docs/specs/runtime-api.md`, section 0.4).
const ALIVE_PATH: &str = "/alive";

/// Builds the initialization. The same sandbox always gets the same one.
pub fn init(context: &InitContext<'_>) -> Result<Init, InitError> {
    let spec = &context.entry.spec;
    let native = context.config.native_executor;
    let command = effective_command(spec, native).ok_or(InitError::NoCommand)?;
    let working_dir = match &spec.working_dir {
        Some(own) => own.clone(),
        None => workspace_path(spec).to_owned(),
    };
    let init = Init {
        probe: probe(context.entry, &command),
        environment: environment(context)?,
        working_dir,
        command,
    };
    let size = serde_json::to_vec(&init)?.len();
    if size > MAX_INIT_BYTES {
        return Err(InitError::TooLarge(size));
    }
    Ok(init)
}

/// The readiness probe of the supervisor (`docs/lifecycle.md`, "Readiness"). Without port and path
/// the sandbox is ready as soon as its command runs.
pub fn probe(entry: &Entry, command: &[String]) -> Probe {
    let server = entry.spec.session.is_some() || is_sandbox_server(command);
    let listens = server || !entry.spec.ports.is_empty();
    Probe {
        port: entry.port(RUNTIME).filter(|_| listens),
        path: server.then(|| ALIVE_PATH.to_owned()),
    }
}
