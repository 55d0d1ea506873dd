//! `GET /api/admin/challenge`: the challenge of a login.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::endpoint::{Access, Endpoint, Tag};
use crate::api::{ApiError, Shared};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AdminChallenge")]
struct ChallengeResponse {
    challenge: String,
    /// Hexadecimal digits.
    salt: String,
    /// Iterations of PBKDF2.
    iterations: u32,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/api/admin/challenge", challenge)
        .documented(
            Tag::Administration,
            "getAdminChallenge",
            "Returns a challenge, valid for one login within five minutes.",
        )
        .access(Access::Public)
        .response::<ChallengeResponse>(200)
        .errors(&[403])
}

async fn challenge(State(api): Shared) -> Result<Json<ChallengeResponse>, ApiError> {
    let made = api.admin()?.challenge(Timestamp::now())?;
    Ok(Json(ChallengeResponse {
        challenge: made.challenge,
        salt: made.salt,
        iterations: made.iterations,
    }))
}
