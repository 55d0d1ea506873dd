//! `DELETE /terminals/{id}`: hangs up, and kills what is left (`docs/specs/executor.md`, section 13.2).

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;

use super::not_found;
use crate::serve::executor::Executor;

pub(super) async fn delete(
    State(executor): State<Arc<Executor>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Response> {
    if executor.terminals.delete(&id).await {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(not_found())
    }
}
