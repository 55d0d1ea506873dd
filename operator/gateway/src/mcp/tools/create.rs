//! `create`: the sandbox of a name, ready to use.

use http::Method;
use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Effect, arguments, describe};
use crate::mcp::backend::ToolError;
use crate::mcp::call::{Call, Runtime};
use crate::mcp::output::{ToolResult, structured};
use crate::runtime_status::RuntimeStatus;

/// Command of the server for actions, in the form that the controller translates for every image.
const COMMAND: [&str; 9] = [
    "python",
    "-u",
    "-m",
    "openhands.runtime.action_execution_server",
    "60000",
    "--working-dir",
    "/workspace",
    "--plugins",
    "jupyter",
];
const WORKING_DIR: &str = "/workspace";
/// Random letters of a name that the client leaves open.
const NAME_LETTERS: usize = 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Container image, for example python:3.13 or debian:12. Any Linux image works.
    #[schemars(length(min = 1, max = 1024))]
    image: String,
    /// Name for the sandbox, which all other tools need. Default: a random one. With the name of a
    /// sandbox that exists, that one is returned, resumed if it was paused.
    #[serde(default)]
    #[schemars(length(min = 1, max = 256))]
    name: Option<String>,
    /// State that a pause keeps. Default: that of the installation.
    #[serde(default)]
    persistence: Option<Persistence>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
enum Persistence {
    /// Files under /workspace.
    Workspace,
    /// All changed files.
    Root,
    /// All changed files and running processes.
    Memory,
}

pub(super) fn tool() -> Tool {
    describe::<Arguments>(
        "create",
        "Create a sandbox",
        "Creates a sandbox and returns its name when it is ready, which takes from under a second to a few minutes \
         (the first pull of an image). Calling it again with the same name waits for the same sandbox.",
        Effect::Adds,
    )
}

pub(super) async fn call(call: &Call, given: JsonObject) -> ToolResult {
    let given: Arguments = arguments(given)?;
    let name = given.name.unwrap_or_else(random_name);
    let mut body = json!({
        "session_id": name, "image": given.image, "command": COMMAND, "working_dir": WORKING_DIR,
    });
    if let Some(persistence) = given.persistence {
        body["persistence"] = json!(persistence);
    }
    let started = call
        .backend
        .api(&call.caller, Method::POST, "/start", Some(&body));
    ready(call, started.await?).await
}

/// Waits for a sandbox and describes it.
pub(super) async fn ready(call: &Call, sandbox: Runtime) -> ToolResult {
    let sandbox = if sandbox.status == RuntimeStatus::Starting {
        call.wait_for_ready(sandbox).await?
    } else {
        sandbox
    };
    let name = &sandbox.session_id;
    let detail = sandbox.status_detail.as_deref().unwrap_or("no explanation");
    match sandbox.status {
        RuntimeStatus::Running => {
            let text = format!("sandbox {name:?} is ready; its files are under {WORKING_DIR}");
            structured(&text, &sandbox.summary())
        }
        RuntimeStatus::Starting => Err(ToolError(format!(
            "sandbox {name:?} is still starting ({detail}); call create with the same name and image to wait on"
        ))),
        _ => Err(ToolError(format!(
            "sandbox {name:?} has not started: {detail}\n{}",
            sandbox.pod_logs
        ))),
    }
}

fn random_name() -> String {
    let letters = (0..NAME_LETTERS).map(|_| fastrand::lowercase());
    format!("mcp-{}", letters.collect::<String>())
}
