//! `POST /pause`: compute is released, storage and URL are kept. Pausing a tombstone, or nothing,
//! is fine: V0 clients raise whatever goes wrong here in place of their real error.

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;

use super::auth::Turn;
use super::body::Body;
use super::endpoint::Endpoint;
use super::state::{StateAnswer, StateRequest};
use super::{ApiError, Shared};

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/pause", pause)
        .says("Releases the compute of a sandbox and keeps its storage, URL and key.")
        .takes::<StateRequest>()
        .answers::<StateAnswer>(200)
        .fails(&[400, 401, 404, 503])
}

async fn pause(
    State(api): Shared,
    turn: Turn,
    Body(request): Body<StateRequest>,
) -> Result<Json<StateAnswer>, ApiError> {
    let Some(id) = request.id()? else {
        return Ok(Json(StateAnswer::nothing()));
    };
    let entry = api
        .change_owned("pause", &turn, &id, DesiredState::Paused)
        .await?;
    Ok(Json(StateAnswer::of(api.info(&entry))))
}
