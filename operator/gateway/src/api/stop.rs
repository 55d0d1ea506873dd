//! `POST /stop`: deletes Pod and workspace. Stopping a stopped sandbox or `null` succeeds: V0
//! clients raise an error of this call in place of their real one.

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;

use super::auth::RateLimitedCaller;
use super::body::Body;
use super::endpoint::{Endpoint, Tag};
use super::state_change::{StateChangeRequest, StateChangeResponse};
use super::{ApiError, Shared, state_change};

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/stop", stop)
        .documented(
            Tag::Sandboxes,
            "stopSandbox",
            "Stops a sandbox for good: deletes its Pod and workspace.",
        )
        .request_body::<StateChangeRequest>()
        .example(state_change::EXAMPLE)
        .response::<StateChangeResponse>(200)
        .errors(&[400, 401, 404, 503])
}

async fn stop(
    State(api): Shared,
    caller: RateLimitedCaller,
    Body(request): Body<StateChangeRequest>,
) -> Result<Json<StateChangeResponse>, ApiError> {
    let Some(id) = request.id()? else {
        return Ok(Json(StateChangeResponse::nothing()));
    };
    let entry = api
        .change_owned("stop", &caller, &id, DesiredState::Stopped)
        .await?;
    Ok(Json(StateChangeResponse::new(api.info(&entry))))
}
