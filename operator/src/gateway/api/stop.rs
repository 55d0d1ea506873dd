//! `POST /stop`: the end of a sandbox and of its storage. Stopping what is stopped, or nothing, is
//! fine: V0 clients raise whatever goes wrong here in place of their real error.

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;

use super::auth::Turn;
use super::body::Body;
use super::endpoint::Endpoint;
use super::state::{StateAnswer, StateRequest};
use super::{ApiError, Shared};

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/stop", stop)
        .says("Ends a sandbox and its storage.")
        .takes::<StateRequest>()
        .answers::<StateAnswer>(200)
        .fails(&[400, 401, 404, 503])
}

async fn stop(
    State(api): Shared,
    turn: Turn,
    Body(request): Body<StateRequest>,
) -> Result<Json<StateAnswer>, ApiError> {
    let Some(id) = request.id()? else {
        return Ok(Json(StateAnswer::nothing()));
    };
    let entry = api
        .change_owned("stop", &turn, &id, DesiredState::Stopped)
        .await?;
    Ok(Json(StateAnswer::of(api.info(&entry))))
}
