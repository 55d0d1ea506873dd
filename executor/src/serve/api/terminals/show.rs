//! `GET /terminals/{id}`: one terminal (`docs/specs/executor.md`, section 13.2).

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;

use super::not_found;
use crate::serve::executor::Executor;
use crate::serve::terminals::TerminalInfo;

pub(super) async fn get(
    State(executor): State<Arc<Executor>>,
    Path(id): Path<String>,
) -> Result<Json<TerminalInfo>, Response> {
    let terminal = executor.terminals.get(&id).ok_or_else(not_found)?;
    Ok(Json(terminal.info()))
}
