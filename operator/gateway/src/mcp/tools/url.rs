//! `url`: the public address of a port.

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Effect, arguments, describe};
use crate::mcp::backend::ToolError;
use crate::mcp::call::Call;
use crate::mcp::output::{ToolResult, structured};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Port that a server in the sandbox listens on. Default: all ports that have a URL.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65535))]
    port: Option<u16>,
}

pub(super) fn tool() -> Tool {
    describe::<Arguments>(
        "url",
        "Get a public URL",
        "Returns the public URLs of a sandbox with the port that each leads to. Only these ports can be reached from \
         outside: call this first, then start the server on one of them, on all addresses (0.0.0.0). Everyone who \
         knows a URL can open it.",
        Effect::Reads,
    )
}

pub(super) async fn call(call: &Call, given: JsonObject) -> ToolResult {
    let Arguments { sandbox, port } = arguments(given)?;
    let sandbox = call.find(&sandbox).await?;
    let hosts = sandbox.work_hosts.iter();
    let line = |url: &str, port: u16| format!("port {port}: {url}");
    let wanted = hosts
        .clone()
        .filter(|(_, of)| port.is_none_or(|port| port == **of));
    let lines: Vec<_> = wanted.clone().map(|(url, port)| line(url, *port)).collect();
    if lines.is_empty() {
        let all: Vec<_> = hosts.map(|(url, port)| line(url, *port)).collect();
        let known = if all.is_empty() {
            "none".into()
        } else {
            all.join(", ")
        };
        let text = format!("this port has no public URL; ports with one: {known}");
        return Err(ToolError(text));
    }
    let urls: Vec<_> = wanted
        .map(|(url, port)| json!({"url": url, "port": port}))
        .collect();
    structured(&lines.join("\n"), &json!({"urls": urls}))
}
