//! Administration over HTTP (runtime API spec 1.11): a login by challenge, then a token.

mod challenge;
mod configs;
mod keys;
mod login;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::Timestamp;

use super::endpoint::Endpoint;
use super::{Api, ApiError};
use crate::gateway::admin::{Admin, AdminError};

/// All endpoints for administrators.
pub(super) fn endpoints() -> [Endpoint; 5] {
    [
        challenge::endpoint(),
        login::endpoint(),
        keys::endpoint(),
        configs::put_endpoint(),
        configs::delete_endpoint(),
    ]
}

/// Somebody with a valid token.
#[derive(Debug)]
struct Administrator;

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
        Ok(Self)
    }
}

impl Api {
    fn admin(&self) -> Result<&Arc<Admin>, ApiError> {
        Ok(self.admin.as_ref().ok_or(AdminError::Disabled)?)
    }
}
