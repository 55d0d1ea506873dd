//! The initialization message, which turns a dormant Pod into a sandbox: command, working
//! directory, environment and readiness probe.

mod environment;
#[cfg(test)]
mod tests;

use crds::contract::control::{Init, Probe};
use crds::contract::persistence::{SnapshotSource, StateAccess};
use crds::contract::token;

use crate::pools::fixed_variables::is_fixed;
use crate::reconcile::build::BuildContext;
use crate::reconcile::build::command::{effective_command, is_sandbox_server};
use crate::reconcile::build::volumes::workspace_path;
use shared::index::Entry;
use shared::keys::SealError;
use shared::urls::RUNTIME;

pub(crate) use environment::shared_variables;
pub use environment::{Environment, environment};

/// Path that every sandbox server answers without a key (`docs/specs/runtime-api.md`, section 0.4).
const ALIVE_PATH: &str = "/alive";
/// Longest initialization in bytes of JSON that fits a token of `MAX_TOKEN_BYTES`: base64 adds a
/// third twice, keys and signature some hundred bytes.
const MAX_INIT_BYTES: usize = (token::MAX_TOKEN_BYTES - 2048) / 16 * 9;

/// Fault of the spec that keeps a sandbox from being initialized.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("the sandbox has no command")]
    NoCommand,
    #[error("spec.sealedEnv: {0}")]
    Sealed(#[from] SealError),
    #[error("spec.sealedEnv: the variable {0} exceeds the 128 KiB that Linux allows")]
    Variable(String),
    #[error(
        "spec.command and spec.sealedEnv: {0} bytes together exceed the limit of {MAX_INIT_BYTES}"
    )]
    TooLarge(usize),
    #[error("spec.command: cannot serialize it as JSON")]
    Encode(#[from] serde_json::Error),
}

/// Pod that an init message is for.
#[derive(Debug, Clone, Copy, Default)]
pub struct InitTarget<'a> {
    /// Number of the session key of the Pod; the spec may be newer.
    pub key_rotation: u32,
    /// It lacks the variables of the spec.
    pub was_warm: bool,
    /// If the Pod keeps more than the workspace: its image by digest, empty if that is unknown.
    pub state_image: Option<&'a str>,
    /// Snapshot that it begins with.
    pub source: Option<&'a SnapshotSource>,
}

/// Builds the initialization. The same sandbox always gets the same one for the same Pod.
pub fn init(context: &BuildContext<'_>, target: InitTarget<'_>) -> Result<Init, InitError> {
    let spec = &context.entry.spec;
    let native = context.config.native_executor;
    let command = effective_command(spec, native).ok_or(InitError::NoCommand)?;
    let working_dir = spec.working_dir.as_deref();
    let mut variables = environment(context, target.key_rotation)?;
    if target.was_warm && !is_fixed(&spec.env) {
        for own in &spec.env {
            let value = own.value.clone().unwrap_or_default();
            variables.entry(own.name.clone()).or_insert(value);
        }
    }
    let init = Init {
        probe: probe(context.entry, &command),
        environment: variables,
        working_dir: working_dir.unwrap_or(workspace_path(spec)).to_owned(),
        command,
        sandbox_uid: Some(context.entry.uid.clone()),
        state: target.state_image.map(|image| StateAccess {
            source: target.source.cloned(),
            ..context.state_access(image)
        }),
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
