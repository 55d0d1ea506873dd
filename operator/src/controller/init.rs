//! What turns a dormant Pod into somebody's sandbox: command, directory, environment, probe. The
//! one place where a client's sealed environment is opened.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::control::{Init, Probe};
use crds::contract::{port, variable};
use ring::digest::{SHA256, digest};

use super::build::command::{effective, is_sandbox_server};
use super::build::{pod, resources};
use super::config::{ControllerConfig, Deadlines};
use crate::index::Entry;
use crate::keys::{Keys, SealError};
use crate::urls::{RUNTIME, UrlForm};

type Environment = BTreeMap<String, String>;

/// Path that every sandbox server answers without a key (runtime API spec 0.4 rule 1).
const ALIVE: &str = "/alive";

/// Why a sandbox cannot be initialised.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("the sandbox has no command")]
    NoCommand,
    #[error("spec.sealedEnv: {0}")]
    Sealed(#[from] SealError),
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
}

/// The initialisation. The same sandbox always gets the same one.
pub fn init(identity: &Identity<'_>) -> Result<Init, InitError> {
    let spec = &identity.entry.spec;
    let command = effective(spec).ok_or(InitError::NoCommand)?;
    let working_dir = match &spec.working_dir {
        Some(own) => own.clone(),
        None => pod::workspace_path(spec).to_owned(),
    };
    Ok(Init {
        probe: probe(identity.entry, &command),
        environment: environment(identity)?,
        working_dir,
        command,
    })
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

/// Environment of the command (runtime API spec 4.8): what the server owns wins over what the
/// client sent, that over the spec, and that over defaults.
fn environment(identity: &Identity<'_>) -> Result<Environment, InitError> {
    let entry = identity.entry;
    // Variables of the spec stand in the Pod, over which this is laid.
    let set: HashSet<_> = entry.spec.env.iter().map(|v| v.name.as_str()).collect();
    let mut all = defaults(identity);
    all.retain(|name, _| !set.contains(name.as_str()));
    if let Some(sealed) = &entry.spec.sealed_env {
        let key = &entry.key;
        all.extend(identity.keys.open(&key.namespace, &key.name, sealed)?);
    }
    all.extend(owned(identity));
    Ok(all)
}

fn owned(identity: &Identity<'_>) -> Environment {
    let key = identity.keys.session_key(&identity.entry.uid);
    let mut all = variables([
        ("RUNTIME_ID", identity.entry.runtime_id.clone()),
        ("RUNTIME_URL", identity.url.to_owned()),
        ("OH_WEB_URL", identity.url.to_owned()),
    ]);
    all.insert(variable::SESSION_API_KEY.into(), key.clone());
    all.insert(variable::OH_SESSION_API_KEYS_0.into(), key);
    all
}

fn defaults(identity: &Identity<'_>) -> Environment {
    let entry = identity.entry;
    let number = |name, default: u16| entry.port(name).unwrap_or(default).to_string();
    let vscode = number("vscode", port::VSCODE);
    let (work_1, work_2) = (
        number("work-1", port::WORK_1),
        number("work-2", port::WORK_2),
    );
    let mut all = variables([
        ("VSCODE_PORT", vscode.clone()),
        ("OH_VSCODE_PORT", vscode),
        ("WORK_PORT_1", work_1.clone()),
        ("WORK_PORT_2", work_2.clone()),
        ("WORKER_1", work_1),
        ("WORKER_2", work_2),
        ("LOG_JSON", "1".into()),
        ("LOG_JSON_LEVEL_KEY", "severity".into()),
        ("OH_SECRET_KEY", secret_key(identity)),
    ]);
    if let Some(bytes) = resources::memory_limit(&entry.spec, &identity.config.defaults) {
        let gibibytes = (bytes / 1_073_741_824.0).floor().max(1.0);
        all.insert("RUNTIME_MAX_MEMORY_GB".into(), format!("{gibibytes:.0}"));
    }
    if let Some(idle) = identity.deadlines.idle_timeout {
        all.insert(
            "OH_RUNTIME_IDLE_TIMEOUT_SECONDS".into(),
            idle.as_secs().to_string(),
        );
    }
    if identity.config.urls.form == UrlForm::Path {
        let path = format!("/{}/vscode", entry.runtime_id);
        all.insert("OH_VSCODE_BASE_PATH".into(), path);
    }
    all
}

/// A key that only this sandbox has and that outlives a rotation of its session key, which is
/// derived from the uid as well but can rise.
fn secret_key(identity: &Identity<'_>) -> String {
    let seed = identity.keys.session_key(&identity.entry.uid);
    let hash = digest(&SHA256, format!("oh-secret-key/{seed}").as_bytes());
    URL_SAFE_NO_PAD.encode(hash)
}

fn variables<const N: usize>(pairs: [(&str, String); N]) -> Environment {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
