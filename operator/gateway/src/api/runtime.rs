//! `GET /runtime/{runtime_id}`: polled by V0 clients, which give up at the first status other than
//! 200.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};

use super::auth::Poller;
use super::endpoint::{Endpoint, Tag};
use super::info::RuntimeInfo;
use super::{ApiError, Shared};

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/runtime/{runtime_id}", runtime)
        .documented(Tag::Sandboxes, "getSandbox", "Returns a sandbox by its id.")
        .response::<RuntimeInfo>(200)
        .errors(&[400, 401, 404, 503])
}

async fn runtime(
    State(api): Shared,
    Poller(tenant): Poller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<RuntimeInfo>, ApiError> {
    let Path(id) = path?;
    let entry = api.find_owned(&tenant, &id).await?;
    let info = api.info(&entry).ok_or(ApiError::UnknownRuntime)?;
    Ok(Json(info))
}
