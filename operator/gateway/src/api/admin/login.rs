//! `POST /api/admin/login`: a token in exchange for a proof of the password.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::ConnectInfo;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EnabledAdmin;
use crate::api::ApiError;
use crate::api::audit;
use crate::api::body::Body;
use crate::api::endpoint::{Access, Endpoint, Tag};

/// Largest body of a login: anyone may send one.
const MAX_LOGIN_BYTES: usize = 4 * 1024;

/// Proof of the password; without `Debug`.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AdminLogin")]
struct LoginRequest {
    challenge: String,
    /// Hexadecimal digits of PBKDF2-HMAC-SHA256 of the password over salt and challenge.
    hash: String,
}

/// The token; without `Debug`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AdminToken")]
struct LoginResponse {
    token: String,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/api/admin/login", login)
        .documented(
            Tag::Administration,
            "logInAsAdmin",
            "Returns a token, valid for a day, in exchange for a proof of the password.",
        )
        .access(Access::Public)
        .max_body(MAX_LOGIN_BYTES)
        .request_body::<LoginRequest>()
        .example(r#"{"challenge": "CHALLENGE", "hash": "HEXADECIMAL DIGITS"}"#)
        .response::<LoginResponse>(200)
        .errors(&[400, 401, 403, 503])
}

async fn login(
    EnabledAdmin(admin): EnabledAdmin,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(request): Body<LoginRequest>,
) -> Result<Json<LoginResponse>, ApiError> {
    let now = Timestamp::now();
    let login = admin.login(request.challenge, &request.hash, peer.ip(), now);
    let result = login.await.map_err(ApiError::from);
    audit::admin("login", peer.ip(), "", result.as_ref().map(drop));
    result.map(|token| Json(LoginResponse { token }))
}
