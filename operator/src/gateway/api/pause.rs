//! `POST /pause`: compute is released, storage and URL are kept. Pausing a tombstone, or nothing,
//! is fine: V0 clients raise whatever goes wrong here in place of their real error.

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;

use super::auth::Caller;
use super::body::Body;
use super::state::{StateAnswer, StateRequest};
use super::{ApiError, Shared};

pub(super) async fn pause(
    State(api): Shared,
    Caller(tenant): Caller,
    Body(request): Body<StateRequest>,
) -> Result<Json<StateAnswer>, ApiError> {
    let Some(id) = request.id()? else {
        return Ok(Json(StateAnswer::nothing()));
    };
    let entry = api.owned(&tenant, &id).await?;
    let entry = api.change(entry, DesiredState::Paused).await?;
    Ok(Json(StateAnswer::of(api.info(&entry))))
}
