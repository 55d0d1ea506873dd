//! What turns a dormant Pod into somebody's sandbox: command, directory, environment, probe.

mod environment;
#[cfg(test)]
mod tests;

use crds::contract::control::{Init, Probe};
use crds::contract::token;

use super::build::command::{effective, is_sandbox_server};
use super::build::container::workspace_path;
use super::config::{ControllerConfig, Deadlines};
use crate::index::Entry;
use crate::keys::{Keys, SealError};
use crate::urls::RUNTIME;

pub use environment::{Environment, environment};

/// Path that every sandbox server answers without a key (runtime API spec 0.4 rule 1).
const ALIVE: &str = "/alive";

/// Longest initialisation in bytes of JSON, such that the signed call is one that supervisors take:
/// base64 adds a third, claim and signature some hundred bytes.
const LONGEST: usize = (token::MAX_LEN - 1024) / 4 * 3;

/// Why a sandbox cannot be initialised. Every one is a fault of the spec.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("the sandbox has no command")]
    NoCommand,
    #[error("spec.sealedEnv: {0}")]
    Sealed(#[from] SealError),
    #[error("spec.sealedEnv: the variable {0} is longer than the 128 KiB that Linux allows")]
    Variable(String),
    #[error("spec.command and spec.sealedEnv: together {0} bytes, and {LONGEST} is the most")]
    TooLarge(usize),
    #[error("spec.command: it has no JSON form")]
    Encode(#[from] serde_json::Error),
}

/// Everything that the initialisation of one sandbox depends on.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The object; its spec has what the pool supplies.
    pub entry: &'a Entry,
    pub config: &'a ControllerConfig,
    pub keys: &'a Keys,
    pub url: &'a str,
    pub deadlines: Deadlines,
    /// Number of the session key: that of the Pod, because the spec may be ahead of it.
    pub key_rotation: u32,
}

/// The initialisation. The same sandbox always gets the same one.
pub fn init(identity: &Identity<'_>) -> Result<Init, InitError> {
    let spec = &identity.entry.spec;
    let native = identity.config.native_executor;
    let command = effective(spec, native).ok_or(InitError::NoCommand)?;
    let working_dir = match &spec.working_dir {
        Some(own) => own.clone(),
        None => workspace_path(spec).to_owned(),
    };
    let init = Init {
        probe: probe(identity.entry, &command),
        environment: environment(identity)?,
        working_dir,
        command,
    };
    let size = serde_json::to_vec(&init)?.len();
    if size > LONGEST {
        return Err(InitError::TooLarge(size));
    }
    Ok(init)
}

/// What must answer before the sandbox is ready (decision 012). `sleep infinity` has nothing that
/// could, so it is ready as soon as it runs.
pub fn probe(entry: &Entry, command: &[String]) -> Probe {
    let server = entry.spec.session.is_some() || is_sandbox_server(command);
    let listens = server || !entry.spec.ports.is_empty();
    Probe {
        port: entry.port(RUNTIME).filter(|_| listens),
        path: server.then(|| ALIVE.to_owned()),
    }
}
