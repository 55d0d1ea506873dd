//! Body of `/start` as clients of all generations send it, and its validation. Unknown fields are
//! ignored, and named in the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::{PullPolicy, SandboxSpec, SecurityContext};
use crds::shell_words;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{environment, image, runtime_class};
use crate::GatewayConfig;
use crate::api::ApiError;
use crate::exec_limits::{check_command, check_directory, check_line};

const MAX_SESSION_ID_BYTES: usize = 256;
/// Largest factor that the Sandbox schema allows.
const MAX_RESOURCE_FACTOR: f64 = 64.0;
/// Maximum number of unknown fields that are named, and of characters of each.
const MAX_NAMED_FIELDS: usize = 5;
const MAX_FIELD_CHARS: usize = 64;
/// Session id that the path `/sessions/batch` hides.
const RESERVED_SESSION_ID: &str = "batch";

// It can hold secrets, so it has no `Debug`.
/// Body of a start.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "StartRequest", extend("required" = ["image", "session_id"]))]
pub(in crate::api) struct StartRequest {
    /// Image reference.
    #[schemars(with = "String", transform = without_default)]
    image: Option<String>,
    /// Program and arguments, as a list or as one line. Absent: the command of the image.
    command: Option<RawCommand>,
    /// Absolute path. Absent: the working directory of the image.
    working_dir: Option<String>,
    /// Environment variables. Values become text; null removes a variable.
    environment: Option<Map<String, Value>>,
    /// Name of the session, 1 to 256 bytes, unique per API key.
    #[schemars(with = "String", transform = without_default)]
    session_id: Option<String>,
    /// Session id of clients of 2024, used if `session_id` is absent.
    name: Option<Value>,
    /// Session id of still older clients, used if `session_id` and `name` are absent.
    runtime_id: Option<Value>,
    /// Multiplies CPU and memory; capped by the installation.
    resource_factor: Option<f64>,
    /// Runtime class, for example gvisor.
    runtime_class: Option<String>,
    /// User id of the command.
    run_as_user: Option<i64>,
    /// Group id of the command.
    run_as_group: Option<i64>,
    /// Group id that owns the workspace.
    fs_group: Option<i64>,
    /// State that a pause keeps: `Workspace`, `Root` (all changed files) or `Memory` (processes too).
    /// Absent: the default of the installation.
    persistence: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`.
    image_pull_policy: Option<String>,
    #[serde(flatten)]
    #[schemars(skip)]
    unknown: Map<String, Value>,
}

/// A required field has no default.
fn without_default(schema: &mut Schema) {
    schema.remove("default");
}

/// Command as one line or as an argument list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "odd command, expected text or a list of texts")]
#[schemars(rename = "StartCommand")]
enum RawCommand {
    Line(String),
    Words(Vec<String>),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct ParsedCommand {
    words: Option<Vec<String>>,
    /// Line that the client sent, which responses repeat.
    line: Option<String>,
}

/// Validated request, also without `Debug`.
pub(in crate::api) struct Start {
    pub(in crate::api) session: String,
    /// Spec without session and environment, shared by the starts of one call.
    pub(in crate::api) spec: Arc<SandboxSpec>,
    /// Command as the client wrote it, if it was a line.
    pub(in crate::api) command_line: Option<String>,
    pub(in crate::api) environment: Arc<BTreeMap<String, String>>,
    /// Remarks for `status_detail`.
    pub(in crate::api) notes: Vec<String>,
}

impl StartRequest {
    pub(super) fn check(self, config: &GatewayConfig) -> Result<Start, ApiError> {
        let requested = self.runtime_class.as_deref();
        let class = runtime_class::choose(requested, &config.runtime_classes)?;
        let max_factor = config.settings.max_resource_factor.min(MAX_RESOURCE_FACTOR);
        let (factor, capped) = resource_factor(self.resource_factor, max_factor)?;
        let notes = [class.note, capped, unknown_fields(&self.unknown)];
        let session = session_id(self.session_id, [self.name, self.runtime_id])?;
        let image = image::check(self.image)?;
        let command = command(self.command)?;
        let spec = SandboxSpec {
            image: Some(image),
            image_pull_policy: pull_policy(self.image_pull_policy.as_deref())?,
            command: command.words,
            working_dir: working_dir(self.working_dir)?,
            resource_factor: factor,
            runtime_class_name: class.name,
            security_context: security_context(self.run_as_user, self.run_as_group, self.fs_group)?,
            workspace: Some(config.workspace()),
            persistence: persistence(self.persistence.as_deref())?,
            ..SandboxSpec::default()
        };
        Ok(Start {
            session,
            spec: Arc::new(spec),
            command_line: command.line,
            environment: Arc::new(environment::read(self.environment.unwrap_or_default())?),
            notes: notes.into_iter().flatten().collect(),
        })
    }
}

fn present(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.trim().is_empty())
}

fn session_id(id: Option<String>, legacy: [Option<Value>; 2]) -> Result<String, ApiError> {
    let mut legacy = legacy
        .into_iter()
        .flatten()
        .filter_map(|value| match value {
            Value::String(text) => present(Some(text)),
            _ => None,
        });
    let id = id.or_else(|| legacy.next());
    let missing = || ApiError::bad_request("session_id is required and may not be null");
    check_session_id(id.ok_or_else(missing)?)
}

pub(in crate::api) fn check_session_id(id: String) -> Result<String, ApiError> {
    if id.is_empty() {
        return Err(ApiError::bad_request("session_id may not be empty"));
    }
    if id.len() > MAX_SESSION_ID_BYTES {
        return Err(ApiError::bad_request(format!(
            "session_id may have at most {MAX_SESSION_ID_BYTES} bytes"
        )));
    }
    if id == RESERVED_SESSION_ID {
        return Err(ApiError::bad_request("session_id may not be \"batch\""));
    }
    Ok(id)
}

/// Reads a command: an argument list, or a line that is split by shell quoting. No shell runs it. Null
/// and empty ones stand for the command of the image.
fn command(raw: Option<RawCommand>) -> Result<ParsedCommand, ApiError> {
    let (words, line) = match raw {
        None => return Ok(ParsedCommand::default()),
        Some(RawCommand::Words(words)) => (words, None),
        Some(RawCommand::Line(line)) => {
            check_line(&line)?;
            let words = shell_words::split(&line);
            let words =
                words.map_err(|error| ApiError::bad_request(format!("command: {error}")))?;
            (words, Some(line))
        }
    };
    check_command(&words)?;
    if words.is_empty() {
        return Ok(ParsedCommand::default());
    }
    Ok(ParsedCommand {
        words: Some(words),
        line,
    })
}

fn working_dir(dir: Option<String>) -> Result<Option<String>, ApiError> {
    let Some(dir) = present(dir) else {
        return Ok(None);
    };
    if !dir.starts_with('/') {
        return Err(ApiError::bad_request(
            "working_dir must be an absolute path",
        ));
    }
    check_directory(&dir)?;
    Ok(Some(dir))
}

/// Returns the factor that takes effect, and a remark if it was capped.
fn resource_factor(
    factor: Option<f64>,
    max: f64,
) -> Result<(Option<f64>, Option<String>), ApiError> {
    match factor {
        Some(factor) if factor <= 0.0 => Err(ApiError::bad_request(
            "resource_factor must be greater than 0",
        )),
        Some(factor) if factor > max => {
            let capped = format!("resource_factor is capped at {max}");
            Ok((Some(max), Some(capped)))
        }
        factor => Ok((factor, None)),
    }
}

/// Names fields that have no effect.
pub(in crate::api) fn unknown_fields(unknown: &Map<String, Value>) -> Option<String> {
    let shorten = |name: &String| name.chars().take(MAX_FIELD_CHARS).collect::<String>();
    let names: Vec<_> = unknown.keys().take(MAX_NAMED_FIELDS).map(shorten).collect();
    let more = unknown.len() - names.len();
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| format!("unknown fields are ignored: {}{more}", names.join(", ")))
}

fn security_context(
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
        return Err(ApiError::bad_request(
            "run_as_user, run_as_group and fs_group must be between 0 and 2147483647",
        ));
    }
    let is_set = ids.iter().any(Option::is_some);
    Ok(is_set.then_some(SecurityContext {
        run_as_user,
        run_as_group,
        fs_group,
    }))
}

fn persistence(level: Option<&str>) -> Result<Option<PersistenceLevel>, ApiError> {
    let level = level.filter(|level| !level.is_empty()).map(str::parse);
    let level: Result<Option<PersistenceLevel>, _> = level.transpose();
    level.map_err(|error| ApiError::bad_request(format!("persistence: {error}")))
}

fn pull_policy(policy: Option<&str>) -> Result<Option<PullPolicy>, ApiError> {
    match policy {
        None | Some("") => Ok(None),
        Some("Always") => Ok(Some(PullPolicy::Always)),
        Some("IfNotPresent") => Ok(Some(PullPolicy::IfNotPresent)),
        Some("Never") => Ok(Some(PullPolicy::Never)),
        Some(_) => Err(ApiError::bad_request(
            "image_pull_policy must be Always, IfNotPresent or Never",
        )),
    }
}
