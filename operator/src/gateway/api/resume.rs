//! `POST /resume`: brings a paused sandbox back. The answer is complete, key included: some clients
//! take the key from here.

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;

use super::auth::Turn;
use super::body::Body;
use super::endpoint::Endpoint;
use super::info::RuntimeInfo;
use super::state::{StateRequest, is_stopped};
use super::{ApiError, Shared};

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/resume", resume)
        .says("Brings a paused sandbox back.")
        .takes::<StateRequest>()
        .answers::<RuntimeInfo>(200)
        .fails(&[400, 401, 404, 503])
}

async fn resume(
    State(api): Shared,
    turn: Turn,
    Body(request): Body<StateRequest>,
) -> Result<Json<RuntimeInfo>, ApiError> {
    let id = request.id()?;
    let id = id.ok_or_else(|| ApiError::bad("runtime_id is required"))?;
    let entry = api
        .change_owned("resume", &turn, &id, DesiredState::Running)
        .await?;
    if is_stopped(&entry) {
        return Err(ApiError::UnknownRuntime);
    }
    let info = api.info(&entry).ok_or(ApiError::UnknownRuntime)?;
    Ok(Json(info))
}
