//! Every endpoint but `/health` asks for the tenant first, before it looks at anything else.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use crds::contract::header::API_KEY;
use http::request::Parts;
use tokio::time::sleep;

use super::{Api, ApiError};
use crate::tenants::Tenant;

/// Who calls.
#[derive(Debug)]
pub(super) struct Caller(pub(super) Arc<Tenant>);

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let key = parts.headers.get(API_KEY).and_then(|v| v.to_str().ok());
        let tenant = api.tenants.recognise(key)?;
        let wait = api.tenants.take_turn(&tenant)?;
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(Self(tenant))
    }
}
