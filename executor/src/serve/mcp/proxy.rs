//! What a client of MCP may ask, and which server answers (spec 8.4).
//!
//! One server's tools keep their names; of several, every tool and prompt gets its server's name in
//! front. A server that fails hides only what is its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::peer::{PeerError, VERSION};
use super::server::Server;
use super::{Mcp, together};

/// Versions that a client may speak.
const VERSIONS: [&str; 3] = ["2024-11-05", "2025-03-26", VERSION];
/// For the list of a server, its start included: clients wait a minute, and one that does not come up
/// must not hide the others.
const LIST_LIMIT: Duration = Duration::from_secs(20);
/// For a tool to do its work.
const CALL_LIMIT: Duration = Duration::from_mins(10);
/// Messages that come at once.
const MAX_BATCH: usize = 32;
/// Pages of a list of one server.
const MAX_PAGES: usize = 50;

/// Whether it can be answered: a message, or some of them at once, as version 2025-03-26 has it.
pub(in crate::serve) fn is_message(value: &Value) -> bool {
    match value {
        Value::Array(batch) => {
            (1..=MAX_BATCH).contains(&batch.len()) && batch.iter().all(Value::is_object)
        }
        other => other.is_object(),
    }
}

/// The answer to a message; notifications have none. Of several, one after the other.
pub(in crate::serve) async fn answer(mcp: &Mcp, message: &Value) -> Option<Value> {
    let Value::Array(batch) = message else {
        return answer_one(mcp, message).await;
    };
    let mut answers = Vec::new();
    for message in batch {
        answers.extend(answer_one(mcp, message).await);
    }
    (!answers.is_empty()).then_some(Value::Array(answers))
}

async fn answer_one(mcp: &Mcp, message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    // Answers to questions that were never asked.
    let method = message.get("method")?.as_str().unwrap_or_default();
    let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
    Some(match carry_out(mcp, method, params).await {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    })
}

async fn carry_out(mcp: &Mcp, method: &str, params: Value) -> Result<Value, Value> {
    match method {
        "initialize" => Ok(introduce(&params)),
        "ping" => Ok(json!({})),
        "tools/list" => list(mcp, method, "tools", Some("name")).await,
        "prompts/list" => list(mcp, method, "prompts", Some("name")).await,
        "resources/list" => list(mcp, method, "resources", None).await,
        "resources/templates/list" => list(mcp, method, "resourceTemplates", None).await,
        "tools/call" => call_tool(mcp, params).await,
        "prompts/get" => get_prompt(mcp, params).await,
        "resources/read" => read_resource(mcp, params).await,
        other => Err(error(-32601, &format!("Method not found: {other}"))),
    }
}

fn introduce(params: &Value) -> Value {
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

/// What all servers have. A server that cannot tell is left out, unless none can.
async fn list(mcp: &Mcp, method: &str, key: &str, named: Option<&str>) -> Result<Value, Value> {
    let servers = mcp.all();
    let (asked, wanted) = (method.to_owned(), key.to_owned());
    let lists = together(servers.clone().into_iter().map(move |server| {
        let (method, key) = (asked.clone(), wanted.clone());
        async move {
            let listed = tokio::time::timeout(LIST_LIMIT, entries(&server, &method, &key)).await;
            listed.unwrap_or(Err(PeerError::Silent(LIST_LIMIT)))
        }
    }));
    let lists = lists.await;
    let mut all = Vec::new();
    let mut problem = None;
    for (server, entries) in servers.iter().zip(lists) {
        match entries {
            Ok(mut entries) => {
                if let Some(name) = named.filter(|_| servers.len() > 1) {
                    for entry in &mut entries {
                        prefix(entry, name, server.name());
                    }
                }
                all.extend(entries);
            }
            // It has none.
            Err(PeerError::Answer(answer)) if answer["code"] == -32601 => {}
            Err(error) => {
                tracing::warn!(server = server.name(), %error, method, "a tool server fails");
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
        let mut page = server.call(method, params, LIST_LIMIT).await?;
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

/// The server of a name and its own word for it. Names of servers may contain the separator: the
/// longest one counts.
fn owner(servers: &[Arc<Server>], name: &str) -> Option<(Arc<Server>, String)> {
    if let [only] = servers {
        return Some((Arc::clone(only), name.to_owned()));
    }
    let parts = servers.iter().filter_map(|server| {
        let rest = name.strip_prefix(server.name())?.strip_prefix('_')?;
        Some((Arc::clone(server), rest.to_owned()))
    });
    parts.max_by_key(|(server, _)| server.name().len())
}

fn name_of(params: &Value) -> Result<&str, Value> {
    let name = params.get("name").and_then(Value::as_str);
    name.ok_or_else(|| error(-32602, "Invalid request parameters"))
}

fn renamed(params: &Value, name: String) -> Value {
    let mut params: Map<String, Value> = params.as_object().cloned().unwrap_or_default();
    params.insert("name".to_owned(), Value::String(name));
    Value::Object(params)
}

/// What goes wrong is for the model to read, so it is a result.
async fn call_tool(mcp: &Mcp, params: Value) -> Result<Value, Value> {
    let name = name_of(&params)?;
    let failed =
        |text: String| json!({"content": [{"type": "text", "text": text}], "isError": true});
    let Some((server, own)) = owner(&mcp.all(), name) else {
        return Ok(failed(format!("Unknown tool: {name}")));
    };
    match server
        .call("tools/call", renamed(&params, own), CALL_LIMIT)
        .await
    {
        Ok(result) => Ok(result),
        Err(PeerError::Answer(answer)) if answer["code"] == -32602 => {
            let text = answer["message"]
                .as_str()
                .unwrap_or("Invalid request parameters");
            Ok(failed(text.to_owned()))
        }
        Err(problem) => Ok(failed(format!("{}: {problem}", server.name()))),
    }
}

async fn get_prompt(mcp: &Mcp, params: Value) -> Result<Value, Value> {
    let name = name_of(&params)?;
    let (server, own) =
        owner(&mcp.all(), name).ok_or_else(|| error(-32602, &format!("Unknown prompt: {name}")))?;
    let prompt = server
        .call("prompts/get", renamed(&params, own), CALL_LIMIT)
        .await;
    prompt.map_err(failure)
}

/// The first server that has it.
async fn read_resource(mcp: &Mcp, params: Value) -> Result<Value, Value> {
    let uri = params
        .get("uri")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut problem = error(-32002, &format!("Unknown resource: {uri}"));
    for server in mcp.all() {
        match server
            .call("resources/read", params.clone(), CALL_LIMIT)
            .await
        {
            Ok(resource) => return Ok(resource),
            Err(PeerError::Answer(answer)) if answer["code"] == -32601 => {}
            Err(other) => problem = failure(other),
        }
    }
    Err(problem)
}
