//! `POST /pause`: deletes the Pod and keeps workspace and URL. Pausing a tombstone or `null`
//! succeeds: V0 clients raise an error of this call in place of their real one.

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;

use super::auth::RateLimitedCaller;
use super::body::Body;
use super::endpoint::{Endpoint, Tag};
use super::state_change::{StateChangeRequest, StateChangeResponse};
use super::{ApiError, Shared, state_change};

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/pause", pause)
        .documented(
            Tag::Sandboxes,
            "pauseSandbox",
            "Pauses a sandbox: deletes its Pod, keeps workspace, URL and key.",
        )
        .request_body::<StateChangeRequest>()
        .example(state_change::EXAMPLE)
        .response::<StateChangeResponse>(200)
        .errors(&[400, 401, 404, 503])
}

async fn pause(
    State(api): Shared,
    caller: RateLimitedCaller,
    Body(request): Body<StateChangeRequest>,
) -> Result<Json<StateChangeResponse>, ApiError> {
    let Some(id) = request.id()? else {
        return Ok(Json(StateChangeResponse::nothing()));
    };
    let entry = api
        .change_owned("pause", &caller, &id, DesiredState::Paused)
        .await?;
    Ok(Json(StateChangeResponse::new(api.info(&entry))))
}
