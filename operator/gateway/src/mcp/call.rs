//! One call of a tool: its client, and what tools do with a sandbox.

use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::PodStatus;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::backend::{Backend, Caller, ToolError};
use super::progress::{INTERVAL, Progress};
use crate::keyed_limit::KeyedPermit;
use crate::runtime_status::{RuntimeStatus, derive};
use shared::index::Entry;

/// Time after the time limit of an action in which its answer arrives, and in which a paused sandbox
/// wakes.
const ANSWER_GRACE: Duration = Duration::from_mins(3);
/// Longest wait for a sandbox to become ready.
const READY_TIMEOUT: Duration = Duration::from_mins(5);

/// A call in progress; cheap to clone, for what goes on when the client has left.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) backend: Backend,
    pub(super) caller: Caller,
    pub(super) progress: Progress,
    pub(super) _permit: Arc<KeyedPermit<String>>,
}

/// A sandbox as the API describes it; fields that tools need.
#[derive(Debug, Deserialize)]
pub(super) struct Runtime {
    #[serde(rename = "runtime_id")]
    pub(super) id: String,
    pub(super) session_id: String,
    pub(super) session_api_key: String,
    pub(super) status: RuntimeStatus,
    pub(super) pod_status: String,
    pub(super) status_detail: Option<String>,
    pub(super) work_hosts: std::collections::BTreeMap<String, u16>,
    pub(super) image: Option<String>,
    pub(super) created_at: Option<String>,
    #[serde(default)]
    pub(super) pod_logs: String,
}

/// A sandbox as a model sees it: without keys.
#[derive(Debug, Serialize)]
pub(super) struct SandboxSummary {
    pub(super) sandbox: String,
    pub(super) status: RuntimeStatus,
    pub(super) ready: bool,
    pub(super) image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    pub(super) created_at: Option<String>,
}

/// Answer of the server in a sandbox to an action.
#[derive(Debug, Deserialize)]
pub(super) struct Observation {
    #[serde(rename = "observation")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) content: String,
    #[serde(default)]
    pub(super) extras: Extras,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Extras {
    pub(super) metadata: Option<CommandMetadata>,
    pub(super) image_urls: Option<Vec<String>>,
    pub(super) screenshot: Option<String>,
    pub(super) last_browser_action_error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CommandMetadata {
    pub(super) exit_code: i64,
    pub(super) working_dir: Option<String>,
    pub(super) suffix: String,
}

/// The argument that most tools have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxName {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    pub(super) sandbox: String,
}

impl Runtime {
    pub(super) fn is_ready(&self) -> bool {
        self.status == RuntimeStatus::Running && self.pod_status.eq_ignore_ascii_case("ready")
    }

    pub(super) fn summary(&self) -> SandboxSummary {
        SandboxSummary {
            sandbox: self.session_id.clone(),
            status: self.status,
            ready: self.is_ready(),
            image: self.image.clone(),
            detail: self.status_detail.clone(),
            created_at: self.created_at.clone(),
        }
    }
}

impl SandboxSummary {
    /// Describes a sandbox as [`Runtime::summary`] does. `None` for one without a session.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let session = entry.session()?;
        let state = derive(entry);
        Some(Self {
            sandbox: session.id.clone(),
            status: state.lifecycle,
            ready: state.pod == PodStatus::Ready,
            image: entry.spec.image.clone(),
            detail: state.detail,
            created_at: entry.created_at.map(|at| at.to_string()),
        })
    }
}

impl Call {
    /// Finds a sandbox of the client by its name.
    pub(super) async fn find(&self, name: &str) -> Result<Runtime, ToolError> {
        let path = format!("/sessions/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
        let found = self.backend.api(&self.caller, Method::GET, &path, None);
        found.await.map_err(|ToolError(text)| {
            let hint = "list shows the sandboxes, create makes a new one";
            ToolError(format!("sandbox {name:?}: {text}; {hint}"))
        })
    }

    /// Lets the server in a sandbox do something. Its own failures are errors of the tool.
    pub(super) async fn act(
        &self,
        sandbox: &Runtime,
        action: &str,
        args: &Value,
        limit: Duration,
    ) -> Result<Observation, ToolError> {
        let seconds = limit.as_secs();
        let action = json!({"action": action, "args": args, "timeout": seconds});
        let body = json!({"action": action});
        self.post(sandbox, "/execute_action", &body, limit).await
    }

    /// Posts to the server in a sandbox.
    pub(super) async fn post<T: serde::de::DeserializeOwned>(
        &self,
        sandbox: &Runtime,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<T, ToolError> {
        let target = (&*sandbox.id, &*sandbox.session_api_key);
        let limit = limit + ANSWER_GRACE;
        let sent = self
            .backend
            .sandbox(&self.caller, target, path, body, limit);
        sent.await.map_err(|ToolError(text)| {
            let hint = match sandbox.status {
                RuntimeStatus::Paused => "; call resume first",
                RuntimeStatus::Stopped => "; it is gone for good, call create for a new one",
                _ => "",
            };
            ToolError(format!("{text}{hint}"))
        })
    }

    /// Waits until a sandbox is ready or has failed, for at most five minutes.
    pub(super) async fn wait_for_ready(&self, sandbox: Runtime) -> Result<Runtime, ToolError> {
        let found = self.backend.sandboxes.find(&sandbox.id).await;
        let entry = found.map_err(|error| ToolError(error.to_string()))?;
        let index = &self.backend.sandboxes.index;
        let settled = |entry: &Entry| derive(entry).lifecycle != RuntimeStatus::Starting;
        let state = || {
            let entry = index.get(&entry.key);
            let detail = entry.and_then(|entry| derive(&entry).detail);
            detail.unwrap_or_else(|| "the sandbox is starting".into())
        };
        let deadline = Instant::now() + READY_TIMEOUT;
        let wait = async {
            // In steps, so that the end of a sandbox that was deleted is seen.
            while let Some(entry) = index.wait(&entry.key, INTERVAL, settled).await {
                if settled(&entry) {
                    break;
                }
            }
        };
        let wait = timeout_at(deadline, wait);
        // The API is asked afterwards in any case.
        let _ = self.progress.during(state, wait).await;
        self.find(&sandbox.session_id).await
    }
}

/// The content of an observation, or its error.
pub(super) fn content(observation: Observation) -> Result<Observation, ToolError> {
    if observation.kind == "error" {
        return Err(ToolError(observation.content));
    }
    Ok(observation)
}

/// The result of a failed tool.
pub(super) fn failed(error: &ToolError) -> CallToolResult {
    let text = super::output::bounded(&error.0);
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Checks the length of an argument, which the schema names too.
pub(super) fn check_length(name: &str, text: &str, max: usize) -> Result<(), ToolError> {
    if text.len() > max {
        return Err(ToolError(format!("{name} exceeds {max} bytes")));
    }
    Ok(())
}

/// Checks a time limit in seconds, which the schema bounds too.
pub(super) fn seconds(timeout: Option<u64>, default: u64, max: u64) -> Result<Duration, ToolError> {
    let seconds = timeout.unwrap_or(default);
    if !(1..=max).contains(&seconds) {
        return Err(ToolError(format!(
            "timeout must be between 1 and {max} seconds"
        )));
    }
    Ok(Duration::from_secs(seconds))
}
