//! Every endpoint but `/health` asks for the tenant first, before it looks at anything else.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use crds::contract::header::API_KEY;
use http::request::Parts;
use tokio::time::sleep;

use super::{Api, ApiError};
use crate::tenants::Tenant;

/// Time for the caller's turn and for all that a call does in the cluster, so that a client has its
/// answer within ten seconds (runtime API spec 0.4 rule 3), `/start` with its wait for readiness too.
/// Whatever was cut off is found by the next attempt.
const LIMIT: Duration = Duration::from_secs(8);

/// Who calls, once it is their turn.
#[derive(Debug)]
pub(super) struct Caller(pub(super) Arc<Tenant>);

/// The same, with how long the turn was waited for.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) tenant: Arc<Tenant>,
    waited: Duration,
}

impl Turn {
    /// How long the call may still take.
    pub(super) fn left(&self) -> Duration {
        LIMIT.saturating_sub(self.waited)
    }
}

/// Who polls: at any pace, because a refused poll ends the start that it waits for (runtime API
/// spec 0.4 rule 2).
#[derive(Debug)]
pub(super) struct Poller(pub(super) Arc<Tenant>);

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let turn = Turn::from_request_parts(parts, api).await?;
        Ok(Self(turn.tenant))
    }
}

impl FromRequestParts<Arc<Api>> for Turn {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let tenant = recognise(parts, api)?;
        let waited = api.tenants.take_turn(&tenant)?;
        if !waited.is_zero() {
            sleep(waited).await;
        }
        Ok(Self { tenant, waited })
    }
}

impl FromRequestParts<Arc<Api>> for Poller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        recognise(parts, api).map(Self)
    }
}

fn recognise(parts: &Parts, api: &Api) -> Result<Arc<Tenant>, ApiError> {
    let key = parts.headers.get(API_KEY).and_then(|v| v.to_str().ok());
    Ok(api.tenants.recognise(key)?)
}
