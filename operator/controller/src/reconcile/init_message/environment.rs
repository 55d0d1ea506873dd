//! The environment of the command (`docs/specs/runtime-api.md`, section 4.8). Variables of the
//! server win over those of the client, these over the spec, and these over defaults.
//!
//! Only this module decrypts the environment of the client.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::{port, variable};
use ring::digest::{SHA256, digest};

use super::InitError;
use crate::reconcile::build::BuildContext;
use shared::resources;
use shared::urls::UrlForm;

/// Variables by name.
pub type Environment = BTreeMap<String, String>;

/// Longest variable that Linux passes to a program, in bytes: `NAME=VALUE` and the final NUL.
const MAX_VARIABLE_BYTES: usize = 128 * 1024;

/// Builds the environment without the variables of the spec, which are part of the Pod.
pub fn environment(
    context: &BuildContext<'_>,
    key_rotation: u32,
) -> Result<Environment, InitError> {
    let entry = context.entry;
    let set: HashSet<_> = entry.spec.env.iter().map(|v| v.name.as_str()).collect();
    let mut all = default_variables(context);
    all.retain(|name, _| !set.contains(name.as_str()));
    if let Some(sealed) = &entry.spec.sealed_env {
        let key = &entry.key;
        let opened = context.keys.open(&key.namespace, &key.name, sealed)?;
        check(&opened)?;
        all.extend(opened);
    }
    all.extend(server_variables(context, key_rotation));
    Ok(all)
}

/// Variables that all sandboxes of a pool have in common.
pub(crate) fn shared_variables(context: &BuildContext<'_>) -> Environment {
    let mut all = default_variables(context);
    all.retain(|name, _| !variable::PER_SANDBOX.contains(&name.as_str()));
    all
}

/// Rejects variables that `execve` would reject at every start.
fn check(opened: &Environment) -> Result<(), InitError> {
    let too_long =
        |(name, value): &(&String, &String)| name.len() + value.len() + 2 > MAX_VARIABLE_BYTES;
    match opened.iter().find(too_long) {
        Some((name, _)) => Err(InitError::Variable(name.chars().take(64).collect())),
        None => Ok(()),
    }
}

fn server_variables(context: &BuildContext<'_>, rotation: u32) -> Environment {
    let uid = &context.entry.uid;
    let key = context.key_set().rotated_session_key(uid, rotation);
    let mut all = variables([
        ("RUNTIME_ID", context.entry.runtime_id.clone()),
        ("RUNTIME_URL", context.url.to_owned()),
        ("OH_WEB_URL", context.url.to_owned()),
        (variable::SESSION_API_KEY, key.clone()),
        (variable::OH_SESSION_API_KEYS_0, key),
    ]);
    if let Some(before) = rotation.checked_sub(1) {
        all.insert(
            variable::OH_SESSION_API_KEYS_1.into(),
            context.key_set().rotated_session_key(uid, before),
        );
    }
    all
}

fn default_variables(context: &BuildContext<'_>) -> Environment {
    let entry = context.entry;
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
        ("OH_SECRET_KEY", secret_key(context)),
    ]);
    if let Some(bytes) = resources::memory_limit(&entry.spec, &context.config.defaults.resources) {
        let gibibytes = (bytes / 1_073_741_824.0).floor().max(1.0);
        all.insert("RUNTIME_MAX_MEMORY_GB".into(), format!("{gibibytes:.0}"));
    }
    if let Some(idle) = context.deadlines.idle_timeout {
        all.insert(
            "OH_RUNTIME_IDLE_TIMEOUT_SECONDS".into(),
            idle.as_secs().to_string(),
        );
    }
    if context.config.urls(entry).form == UrlForm::Path {
        let path = format!("/{}/vscode", entry.runtime_id);
        all.insert("OH_VSCODE_BASE_PATH".into(), path);
    }
    all
}

/// A key of this sandbox that survives rotations of its session key: it derives from the first
/// one.
fn secret_key(context: &BuildContext<'_>) -> String {
    let seed = context.key_set().session_key(&context.entry.uid);
    let hash = digest(&SHA256, format!("oh-secret-key/{seed}").as_bytes());
    URL_SAFE_NO_PAD.encode(hash)
}

fn variables<const N: usize>(pairs: [(&str, String); N]) -> Environment {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
