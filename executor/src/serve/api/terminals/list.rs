//! `GET /terminals`: all terminals in order of creation (`docs/specs/executor.md`, section 13.2).

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::serve::executor::Executor;
use crate::serve::terminals::TerminalInfo;

#[derive(Debug, Serialize)]
pub(super) struct TerminalList {
    terminals: Vec<TerminalInfo>,
}

pub(super) async fn get(State(executor): State<Arc<Executor>>) -> Json<TerminalList> {
    let terminals = executor.terminals.list();
    Json(TerminalList { terminals })
}
