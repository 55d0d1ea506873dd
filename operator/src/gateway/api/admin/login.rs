//! `POST /api/admin/login`: a token for the right answer to a challenge.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gateway::api::audit;
use crate::gateway::api::body::Body;
use crate::gateway::api::endpoint::{Access, Endpoint};
use crate::gateway::api::{ApiError, Shared};

/// A proof of the password; not to be printed.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AdminLogin")]
struct Request {
    challenge: String,
    /// Hexadecimal digits of PBKDF2-HMAC-SHA256 of the password over salt and challenge.
    hash: String,
}

/// The token; not to be printed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AdminToken")]
struct Answer {
    token: String,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/api/admin/login", login)
        .says("A token for the right answer to a challenge; valid for a day.")
        .open_to(Access::Anybody)
        .takes::<Request>()
        .answers::<Answer>(200)
        .fails(&[400, 401, 403, 503])
}

async fn login(
    State(api): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(request): Body<Request>,
) -> Result<Json<Answer>, ApiError> {
    let admin = api.admin()?;
    let now = Timestamp::now();
    let login = admin.login(request.challenge, &request.hash, peer.ip(), now);
    match login.await {
        Ok(token) => {
            audit::admin("login", "");
            Ok(Json(Answer { token }))
        }
        Err(error) => {
            audit::admin("login-refused", "");
            Err(error.into())
        }
    }
}
