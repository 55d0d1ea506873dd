//! `pause`, `resume` and `stop`.

use http::Method;
use rmcp::model::{JsonObject, Tool};
use serde::de::IgnoredAny;
use serde_json::json;

use super::{Effect, arguments, create, describe};
use crate::mcp::call::{Call, SandboxName};
use crate::mcp::output::{ToolResult, structured};

pub(super) fn tools() -> [Tool; 3] {
    [
        describe::<SandboxName>(
            "pause",
            "Pause a sandbox",
            "Pauses a sandbox, which then uses no CPU and memory. Files under /workspace and the URL stay; processes end \
             unless persistence is Memory. resume continues.",
            Effect::Changes,
        ),
        describe::<SandboxName>(
            "resume",
            "Resume a sandbox",
            "Resumes a paused sandbox and returns when it is ready.",
            Effect::Adds,
        ),
        describe::<SandboxName>(
            "stop",
            "Stop a sandbox",
            "Stops a sandbox for good and deletes all its files. This cannot be undone.",
            Effect::Changes,
        ),
    ]
}

pub(super) async fn pause(call: &Call, given: JsonObject) -> ToolResult {
    end(call, given, "/pause", "is paused; resume continues it").await
}

pub(super) async fn stop(call: &Call, given: JsonObject) -> ToolResult {
    end(call, given, "/stop", "is stopped and its files are deleted").await
}

pub(super) async fn resume(call: &Call, given: JsonObject) -> ToolResult {
    let SandboxName { sandbox } = arguments(given)?;
    let sandbox = call.find(&sandbox).await?;
    let body = json!({"runtime_id": sandbox.id});
    let resumed = call
        .backend
        .api(&call.caller, Method::POST, "/resume", Some(&body));
    create::ready(call, resumed.await?).await
}

async fn end(call: &Call, given: JsonObject, path: &str, said: &str) -> ToolResult {
    let SandboxName { sandbox: name } = arguments(given)?;
    let sandbox = call.find(&name).await?;
    let body = json!({"runtime_id": sandbox.id});
    let ended = call
        .backend
        .api(&call.caller, Method::POST, path, Some(&body));
    let _: IgnoredAny = ended.await?;
    let sandbox = call.find(&name).await?;
    structured(&format!("sandbox {name:?} {said}"), &sandbox.summary())
}
