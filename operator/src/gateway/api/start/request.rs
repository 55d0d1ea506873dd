//! The body of `/start` as clients of all generations send it, and what is left of it once it is
//! checked. Unknown fields are ignored, odd ones tolerated where their meaning is clear.

use std::collections::BTreeMap;

use crds::sandbox::{PullPolicy, SecurityContext};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::command::{self, Command};
use super::{environment, runtime_class};
use crate::gateway::RuntimeClasses;
use crate::gateway::api::ApiError;
use crate::gateway::impossible::{check_directory, check_text};

/// Longest session id in bytes.
const MAX_SESSION: usize = 256;
/// Largest factor that a Sandbox may have; the controller caps further.
const MAX_FACTOR: f64 = 64.0;
/// The id that would hide `/sessions/batch`.
const RESERVED: &str = "batch";

/// The body as it is sent. It can hold secrets, so it cannot be printed.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "StartRequest")]
pub(in crate::gateway::api) struct StartRequest {
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    command: Option<RawCommand>,
    #[serde(default)]
    working_dir: Option<String>,
    #[serde(default)]
    environment: Option<Map<String, Value>>,
    #[serde(default)]
    session_id: Option<String>,
    /// The session in clients of 2024.
    #[serde(default)]
    name: Option<Value>,
    /// The same, a little earlier.
    #[serde(default)]
    runtime_id: Option<Value>,
    #[serde(default)]
    resource_factor: Option<f64>,
    #[serde(default)]
    runtime_class: Option<String>,
    #[serde(default)]
    run_as_user: Option<i64>,
    #[serde(default)]
    run_as_group: Option<i64>,
    #[serde(default)]
    fs_group: Option<i64>,
    #[serde(default)]
    image_pull_policy: Option<String>,
}

/// A command as one line or as words.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "odd command, expected text or a list of texts")]
#[schemars(rename = "StartCommand")]
pub(super) enum RawCommand {
    Line(String),
    Words(Vec<String>),
}

/// A checked request; not to be printed either.
pub(in crate::gateway::api) struct Start {
    pub(super) session: String,
    pub(super) image: String,
    pub(super) command: Option<Command>,
    pub(super) working_dir: Option<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) resource_factor: Option<f64>,
    pub(super) runtime_class: Option<String>,
    pub(super) security_context: Option<SecurityContext>,
    pub(super) pull_policy: Option<PullPolicy>,
    /// What the client should know although it is no error.
    pub(super) note: Option<String>,
}

impl StartRequest {
    pub(super) fn check(self, classes: &RuntimeClasses) -> Result<Start, ApiError> {
        let class = runtime_class::choose(self.runtime_class.as_deref(), classes)?;
        Ok(Start {
            session: session(self.session_id, [self.name, self.runtime_id])?,
            image: image(self.image)?,
            command: command::read(self.command)?,
            working_dir: working_dir(self.working_dir)?,
            environment: environment::read(self.environment.unwrap_or_default())?,
            resource_factor: factor(self.resource_factor)?,
            runtime_class: class.name,
            security_context: security(self.run_as_user, self.run_as_group, self.fs_group)?,
            pull_policy: pull_policy(self.image_pull_policy.as_deref())?,
            note: class.note,
        })
    }
}

fn present(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.trim().is_empty())
}

fn image(image: Option<String>) -> Result<String, ApiError> {
    let image = present(image).ok_or_else(|| ApiError::bad("image is required"))?;
    check_text("image", &image)?;
    Ok(image)
}

fn session(id: Option<String>, legacy: [Option<Value>; 2]) -> Result<String, ApiError> {
    let mut legacy = legacy
        .into_iter()
        .flatten()
        .filter_map(|value| match value {
            Value::String(text) => present(Some(text)),
            _ => None,
        });
    let id = id.or_else(|| legacy.next());
    match id {
        None => Err(ApiError::bad("session_id is required and may not be null")),
        Some(id) if id.is_empty() => Err(ApiError::bad("session_id may not be empty")),
        Some(id) if id.len() > MAX_SESSION => Err(ApiError::bad(format!(
            "session_id may have at most {MAX_SESSION} bytes"
        ))),
        Some(id) if id == RESERVED => Err(ApiError::bad("session_id may not be \"batch\"")),
        Some(id) => Ok(id),
    }
}

fn working_dir(dir: Option<String>) -> Result<Option<String>, ApiError> {
    let Some(dir) = present(dir) else {
        return Ok(None);
    };
    if !dir.starts_with('/') {
        return Err(ApiError::bad("working_dir must be an absolute path"));
    }
    check_directory(&dir)?;
    Ok(Some(dir))
}

fn factor(factor: Option<f64>) -> Result<Option<f64>, ApiError> {
    match factor {
        Some(factor) if factor <= 0.0 => {
            Err(ApiError::bad("resource_factor must be greater than 0"))
        }
        factor => Ok(factor.map(|factor| factor.min(MAX_FACTOR))),
    }
}

fn security(
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
    fs_group: Option<i64>,
) -> Result<Option<SecurityContext>, ApiError> {
    let ids = [run_as_user, run_as_group, fs_group];
    if ids
        .iter()
        .flatten()
        .any(|id| !(0..=i64::from(i32::MAX)).contains(id))
    {
        return Err(ApiError::bad(
            "run_as_user, run_as_group and fs_group must be between 0 and 2147483647",
        ));
    }
    let wanted = ids.iter().any(Option::is_some);
    Ok(wanted.then_some(SecurityContext {
        run_as_user,
        run_as_group,
        fs_group,
    }))
}

fn pull_policy(policy: Option<&str>) -> Result<Option<PullPolicy>, ApiError> {
    match policy {
        None | Some("") => Ok(None),
        Some("Always") => Ok(Some(PullPolicy::Always)),
        Some("IfNotPresent") => Ok(Some(PullPolicy::IfNotPresent)),
        Some("Never") => Ok(Some(PullPolicy::Never)),
        Some(_) => Err(ApiError::bad(
            "image_pull_policy must be Always, IfNotPresent or Never",
        )),
    }
}
