//! Methods of MCP clients and their routing to tool servers (`docs/specs/executor.md`, section
//! 8.4).
//!
//! With several servers, tools and prompts are prefixed with the name of their server. A failing
//! server hides only its own entries.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::peer::{PeerError, VERSION};
use super::server::Server;

/// Protocol versions that a client may use.
const VERSIONS: [&str; 3] = ["2024-11-05", "2025-03-26", VERSION];
/// Time for the list of a server, its start included. Clients wait a minute, and a server that does
/// not start must not hide the others.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
const CALL_TIMEOUT: Duration = Duration::from_mins(10);
const MAX_BATCH: usize = 32;
/// Pages of a list of one server.
const MAX_PAGES: usize = 50;

/// Returns whether a value is a message or a batch (protocol version 2025-03-26).
pub(crate) fn is_message(value: &Value) -> bool {
    match value {
        Value::Array(batch) => {
            (1..=MAX_BATCH).contains(&batch.len()) && batch.iter().all(Value::is_object)
        }
        other => other.is_object(),
    }
}

/// Responds to a message or, in order, to a batch. Notifications have no response.
pub(super) async fn answer(servers: &[Arc<Server>], message: &Value) -> Option<Value> {
    let Value::Array(batch) = message else {
        return answer_one(servers, message).await;
    };
    let mut answers = Vec::new();
    for message in batch {
        answers.extend(answer_one(servers, message).await);
    }
    (!answers.is_empty()).then_some(Value::Array(answers))
}

async fn answer_one(servers: &[Arc<Server>], message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    // A message without a method is a response; this server sends no requests.
    let method = message.get("method")?.as_str().unwrap_or_default();
    let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
    Some(match carry_out(servers, method, params).await {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    })
}

async fn carry_out(servers: &[Arc<Server>], method: &str, params: Value) -> Result<Value, Value> {
    match method {
        "initialize" => Ok(initialize_result(&params)),
        "ping" => Ok(json!({})),
        "tools/list" => list(servers, method, "tools", Some("name")).await,
        "prompts/list" => list(servers, method, "prompts", Some("name")).await,
        "resources/list" => list(servers, method, "resources", None).await,
        "resources/templates/list" => list(servers, method, "resourceTemplates", None).await,
        "tools/call" => call_tool(servers, params).await,
        "prompts/get" => get_prompt(servers, params).await,
        "resources/read" => read_resource(servers, params).await,
        other => Err(error(-32601, &format!("Method not found: {other}"))),
    }
}

fn initialize_result(params: &Value) -> Value {
    let wanted = params.get("protocolVersion").and_then(Value::as_str);
    let version = wanted
        .filter(|version| VERSIONS.contains(version))
        .unwrap_or(VERSION);
    json!({
        "protocolVersion": version,
        "capabilities": {
            "experimental": {},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": false, "listChanged": true},
            "tools": {"listChanged": true},
        },
        "serverInfo": {"name": "sandbox-executor", "version": env!("CARGO_PKG_VERSION")},
    })
}

fn error(code: i32, message: &str) -> Value {
    json!({"code": code, "message": message})
}

fn failure(problem: PeerError) -> Value {
    match problem {
        PeerError::Answer(answer) => answer,
        other => error(-32603, &other.to_string()),
    }
}

/// Merges the lists of all servers. A failing server is left out, unless all fail.
async fn list(
    servers: &[Arc<Server>],
    method: &str,
    key: &str,
    named: Option<&str>,
) -> Result<Value, Value> {
    let lists = join_all(servers.iter().map(async |server| {
        let listed = tokio::time::timeout(LIST_TIMEOUT, entries(server, method, key)).await;
        listed.unwrap_or(Err(PeerError::Silent(LIST_TIMEOUT)))
    }));
    let mut all = Vec::new();
    let mut problem = None;
    for (server, entries) in servers.iter().zip(lists.await) {
        match entries {
            Ok(mut entries) => {
                if let Some(name) = named.filter(|_| servers.len() > 1) {
                    for entry in &mut entries {
                        prefix(entry, name, server.name());
                    }
                }
                all.extend(entries);
            }
            // The server does not support the method.
            Err(PeerError::Answer(answer)) if answer["code"] == -32601 => {}
            Err(error) => {
                tracing::warn!(server = server.name(), %error, method, "a tool server failed");
                problem = Some(error);
            }
        }
    }
    match problem {
        Some(problem) if all.is_empty() => Err(failure(problem)),
        _ => Ok(json!({key: all})),
    }
}

async fn entries(server: &Arc<Server>, method: &str, key: &str) -> Result<Vec<Value>, PeerError> {
    let mut all = Vec::new();
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let mut page = server.call(method, params, LIST_TIMEOUT).await?;
        if let Some(Value::Array(entries)) = page.get_mut(key) {
            all.append(entries);
        }
        match page.get("nextCursor").filter(|cursor| cursor.is_string()) {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    Ok(all)
}

fn prefix(entry: &mut Value, key: &str, server: &str) {
    if let Some(Value::String(name)) = entry.get_mut(key) {
        *name = format!("{server}_{name}");
    }
}

/// Server of a prefixed name, and the rest. Server names may contain the separator: longest wins.
fn owner<'a>(servers: &'a [Arc<Server>], name: &'a str) -> Option<(&'a Arc<Server>, &'a str)> {
    if let [only] = servers {
        return Some((only, name));
    }
    let parts = servers.iter().filter_map(|server| {
        let rest = name.strip_prefix(server.name())?.strip_prefix('_')?;
        Some((server, rest))
    });
    parts.max_by_key(|(server, _)| server.name().len())
}

fn name_of(params: &Value) -> Result<String, Value> {
    let name = params.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| error(-32602, "Invalid request parameters"))?;
    Ok(name.to_owned())
}

/// Calls a tool. Failures are results, so that the model can read them.
async fn call_tool(servers: &[Arc<Server>], mut params: Value) -> Result<Value, Value> {
    let name = name_of(&params)?;
    let failed =
        |text: String| json!({"content": [{"type": "text", "text": text}], "isError": true});
    let Some((server, own)) = owner(servers, &name) else {
        return Ok(failed(format!("Unknown tool: {name}")));
    };
    params["name"] = own.into();
    let called = server.call("tools/call", params, CALL_TIMEOUT).await;
    Ok(called.unwrap_or_else(|problem| match problem {
        PeerError::Answer(answer) if answer["code"] == -32602 => {
            let text = answer["message"].as_str();
            failed(text.unwrap_or("Invalid request parameters").to_owned())
        }
        problem => failed(format!("{}: {problem}", server.name())),
    }))
}

async fn get_prompt(servers: &[Arc<Server>], mut params: Value) -> Result<Value, Value> {
    let name = name_of(&params)?;
    let (server, own) =
        owner(servers, &name).ok_or_else(|| error(-32602, &format!("Unknown prompt: {name}")))?;
    params["name"] = own.into();
    let prompt = server.call("prompts/get", params, CALL_TIMEOUT).await;
    prompt.map_err(failure)
}

/// Reads a resource from the first server that has it.
async fn read_resource(servers: &[Arc<Server>], params: Value) -> Result<Value, Value> {
    let uri = params.get("uri").and_then(Value::as_str);
    let text = format!("Unknown resource: {}", uri.unwrap_or_default());
    let mut problem = error(-32002, &text);
    for server in servers {
        let read = server.call("resources/read", params.clone(), CALL_TIMEOUT);
        match read.await {
            Ok(resource) => return Ok(resource),
            Err(PeerError::Answer(answer)) if answer["code"] == -32601 => {}
            Err(other) => problem = failure(other),
        }
    }
    Err(problem)
}
