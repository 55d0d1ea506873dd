//! `list`: the running sandboxes.

use http::Method;
use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Effect, arguments, describe};
use crate::mcp::call::{Call, Runtime};
use crate::mcp::output::{ToolResult, structured};

/// Maximum of listed sandboxes.
const MAX_LISTED: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {}

#[derive(Debug, Deserialize)]
struct List {
    runtimes: Vec<Runtime>,
}

pub(super) fn tool() -> Tool {
    describe::<Arguments>(
        "list",
        "List sandboxes",
        "Lists the names and states of the starting and running sandboxes. Paused ones are not listed: resume one by \
         its name.",
        Effect::Reads,
    )
}

pub(super) async fn call(call: &Call, given: JsonObject) -> ToolResult {
    let Arguments {} = arguments(given)?;
    let list = call.backend.api(&call.caller, Method::GET, "/list", None);
    let List { runtimes } = list.await?;
    let listed: Vec<_> = runtimes
        .iter()
        .take(MAX_LISTED)
        .map(Runtime::summary)
        .collect();
    let line = |runtime: &Runtime| {
        let state = serde_json::to_value(runtime.status).unwrap_or_default();
        let image = runtime.image.as_deref().unwrap_or("unknown image");
        format!(
            "{:?}: {}, {image}",
            runtime.session_id,
            state.as_str().unwrap_or_default()
        )
    };
    let mut lines: Vec<_> = runtimes.iter().take(MAX_LISTED).map(line).collect();
    match runtimes.len() {
        0 => lines.push("no sandbox is running".into()),
        total if total > MAX_LISTED => lines.push(format!("and {} more", total - MAX_LISTED)),
        _ => {}
    }
    let value = json!({"sandboxes": listed, "total": runtimes.len()});
    structured(&lines.join("\n"), &value)
}
