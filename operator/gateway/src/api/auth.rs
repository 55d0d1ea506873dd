//! Extractors that authenticate the caller. They run before an endpoint reads anything else.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts};
use crds::contract::header::API_KEY;
use http::request::Parts;
use jiff::Timestamp;
use tokio::time::sleep;

use super::{Api, ApiError, rate_limit};
use shared::tenants::{ApiKey, Tenant};
use shared::traces::TraceParent;

/// Time for the wait for the rate limit and for all calls to the cluster, so that a client has its
/// response within ten seconds (`docs/specs/runtime-api.md`, section 0.4, rule 3). A repeated call
/// finds the result of one that ran into the timeout.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// An authenticated caller, after the wait for its rate limit.
#[derive(Debug)]
pub(super) struct RateLimitedCaller {
    pub(super) tenant: Arc<Tenant>,
    /// Tells keys of one tenant apart in the audit log.
    pub(super) key_id: String,
    pub(super) address: IpAddr,
    /// Trace of the call, as parent of the span of a start.
    pub(super) trace: Option<TraceParent>,
    waited: Duration,
}

impl RateLimitedCaller {
    pub(super) fn remaining_time(&self) -> Duration {
        CALL_TIMEOUT.saturating_sub(self.waited)
    }
}

/// No rate limit: a rejected poll ends a start (`docs/specs/runtime-api.md`, section 0.4, rule 2).
#[derive(Debug)]
pub(super) struct Poller(pub(super) Arc<Tenant>);

impl FromRequestParts<Arc<Api>> for RateLimitedCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let ApiKey { tenant, id } = authenticate(parts, api)?;
        let reserved = api.tenants.reserve_call(&tenant);
        rate_limit::record(parts, api.tenants.call_budget(&tenant));
        let waited = reserved?;
        if !waited.is_zero() {
            sleep(waited).await;
        }
        Ok(Self {
            tenant,
            key_id: id,
            address: client_address(parts),
            trace: TraceParent::from_headers(&parts.headers),
            waited,
        })
    }
}

impl FromRequestParts<Arc<Api>> for Poller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        authenticate(parts, api).map(|key| Self(key.tenant))
    }
}

fn authenticate(parts: &Parts, api: &Api) -> Result<ApiKey, ApiError> {
    let key = parts.headers.get(API_KEY).and_then(|v| v.to_str().ok());
    Ok(api.tenants.authenticate(key, Timestamp::now())?)
}

/// Returns the address of the client, which the dispatcher has set.
pub(super) fn client_address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip())
}
