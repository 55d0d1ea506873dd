//! The admin API: login by challenge, then a bearer token (`docs/specs/runtime-api.md`, section
//! 1.11).

mod api_keys;
mod challenge;
mod login;
mod warm_configs;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::Timestamp;

use super::auth::client_address;
use super::endpoint::Endpoint;
use super::{Api, ApiError};
use crate::admin_auth::{AdminAuth, AdminError};

/// Returns all endpoints of the admin API.
pub(super) fn endpoints() -> [Endpoint; 5] {
    [
        challenge::endpoint(),
        login::endpoint(),
        api_keys::endpoint(),
        warm_configs::put_endpoint(),
        warm_configs::delete_endpoint(),
    ]
}

/// Extractor that accepts requests with a valid administrator token.
#[derive(Debug)]
struct Administrator {
    address: IpAddr,
}

impl FromRequestParts<Arc<Api>> for Administrator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let admin = api.admin()?;
        let line = parts.headers.get(AUTHORIZATION);
        let line = line.and_then(|line| line.to_str().ok()).unwrap_or_default();
        let (kind, token) = line.split_once(' ').unwrap_or_default();
        if !kind.eq_ignore_ascii_case("bearer") {
            return Err(AdminError::Token.into());
        }
        admin.check(token.trim(), Timestamp::now())?;
        let address = client_address(parts);
        Ok(Self { address })
    }
}

/// An enabled administration. Extracted before a body, so that none is read while it is disabled.
#[derive(Debug)]
struct EnabledAdmin(Arc<AdminAuth>);

impl FromRequestParts<Arc<Api>> for EnabledAdmin {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        Ok(Self(api.admin()?.clone()))
    }
}

impl Api {
    fn admin(&self) -> Result<&Arc<AdminAuth>, ApiError> {
        Ok(self.admin.as_ref().ok_or(AdminError::Disabled)?)
    }
}
