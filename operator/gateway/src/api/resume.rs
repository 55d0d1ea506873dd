//! `POST /resume`: starts a paused sandbox. The response includes the session key, because some
//! clients read it here.

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;

use super::auth::RateLimitedCaller;
use super::body::Body;
use super::endpoint::{Endpoint, Tag};
use super::info::RuntimeInfo;
use super::state_change::StateChangeRequest;
use super::{ApiError, Shared, state_change};
use crate::runtime_status::is_stopped;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/resume", resume)
        .documented(Tag::Sandboxes, "resumeSandbox", "Resumes a paused sandbox.")
        .request_body::<StateChangeRequest>()
        .example(state_change::EXAMPLE)
        .response::<RuntimeInfo>(200)
        .errors(&[400, 401, 404, 503])
}

async fn resume(
    State(api): Shared,
    caller: RateLimitedCaller,
    Body(request): Body<StateChangeRequest>,
) -> Result<Json<RuntimeInfo>, ApiError> {
    let id = request.id()?;
    let id = id.ok_or_else(|| ApiError::bad_request("runtime_id is required"))?;
    let entry = api
        .change_owned("resume", &caller, &id, DesiredState::Running)
        .await?;
    if is_stopped(&entry) {
        return Err(ApiError::UnknownRuntime);
    }
    let info = api.info(&entry).ok_or(ApiError::UnknownRuntime)?;
    Ok(Json(info))
}
