//! `GET /terminals/{id}/connect` and `/terminals/agent/connect`: opens a WebSocket
//! (`docs/specs/executor.md`, section 13.3).

use std::sync::Arc;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::not_found;
use super::viewer::Viewer;
use crate::serve::api::access::SameOrigin;
use crate::serve::api::error::{Query, detail, flag, invalid, issue, last};
use crate::serve::executor::Executor;
use crate::serve::output_log::MAX_READERS;
use crate::serve::terminals::{MAX_MESSAGE_BYTES, Terminal};

/// Buffers of one connection in bytes; most of them are idle.
const BUFFER_BYTES: usize = 8 << 10;

type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

pub(super) async fn to_terminal(
    State(executor): State<Arc<Executor>>,
    Path(id): Path<String>,
    _: SameOrigin,
    query: Query,
    upgrade: Upgrade,
) -> Result<Response, Response> {
    let terminal = executor.terminals.get(&id).ok_or_else(not_found)?;
    Ok(open(&executor, Some(terminal), &query, upgrade))
}

pub(super) async fn to_agent(
    State(executor): State<Arc<Executor>>,
    _: SameOrigin,
    query: Query,
    upgrade: Upgrade,
) -> Response {
    open(&executor, None, &query, upgrade)
}

/// Opens a connection to a terminal, or to the agent's shell.
fn open(
    executor: &Arc<Executor>,
    terminal: Option<Arc<Terminal>>,
    query: &Query,
    upgrade: Upgrade,
) -> Response {
    let (is_read_only, after) = match (flag(query, "read_only"), offset(query)) {
        (Ok(is_read_only), Ok(after)) => (is_read_only, after),
        (Err(error), _) | (_, Err(error)) => return invalid(&[error]),
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(error) => return detail(error.status(), &error.body_text()),
    };
    let Some(viewer) = Viewer::new(executor, terminal, after, is_read_only) else {
        let text = format!("a terminal has at most {MAX_READERS} viewers");
        return detail(StatusCode::TOO_MANY_REQUESTS, &text);
    };
    let serve = async move |socket: WebSocket| viewer.serve(socket).await;
    upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .on_upgrade(serve)
}

fn offset(query: &Query) -> Result<Option<u64>, String> {
    let Some(text) = last(query, "after") else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        issue(
            "int_parsing",
            "'query', 'after'",
            "Input should be a valid integer, unable to parse string as an integer",
            &Value::from(text),
        )
    })
}
