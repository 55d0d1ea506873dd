//! `list`: the sandboxes that start, run or are paused.

use std::collections::HashSet;

use http::Method;
use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Effect, arguments, describe};
use crate::mcp::call::{Call, Runtime, SandboxSummary};
use crate::mcp::output::{ToolResult, structured};
use crate::runtime_status::RuntimeStatus;

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
        "Lists the names and states of the starting, running and paused sandboxes. Resume a paused one before you use \
         it.",
        Effect::Reads,
    )
}

pub(super) async fn call(call: &Call, given: JsonObject) -> ToolResult {
    let Arguments {} = arguments(given)?;
    let list = call.backend.api(&call.caller, Method::GET, "/list", None);
    let List { runtimes } = list.await?;
    let mut listed: Vec<_> = runtimes.iter().map(Runtime::summary).collect();
    listed.extend(paused(call, &runtimes));
    let total = listed.len();
    listed.truncate(MAX_LISTED);
    let mut lines: Vec<_> = listed.iter().map(line).collect();
    match total {
        0 => lines.push("there is no sandbox; create makes one".into()),
        total if total > MAX_LISTED => lines.push(format!("and {} more", total - MAX_LISTED)),
        _ => {}
    }
    let value = json!({"sandboxes": listed, "total": total});
    structured(&lines.join("\n"), &value)
}

/// Paused sandboxes of the client. `/list` has the live ones only, because other clients count them.
fn paused(call: &Call, live: &[Runtime]) -> Vec<SandboxSummary> {
    // One that was paused a moment ago may be in the list.
    let known: HashSet<_> = live.iter().map(|runtime| runtime.id.as_str()).collect();
    let mut entries = call.backend.sandboxes.of_tenant(call.caller.tenant());
    entries.retain(|entry| !known.contains(entry.runtime_id.as_str()));
    let summaries = entries.iter().filter_map(|it| SandboxSummary::of(it));
    summaries
        .filter(|summary| summary.status == RuntimeStatus::Paused)
        .collect()
}

fn line(sandbox: &SandboxSummary) -> String {
    let state = serde_json::to_value(sandbox.status).unwrap_or_default();
    let image = sandbox.image.as_deref().unwrap_or("unknown image");
    format!(
        "{:?}: {}, {image}",
        sandbox.sandbox,
        state.as_str().unwrap_or_default()
    )
}
