//! `GET /api/admin/challenge`: what a login has to answer.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::gateway::api::endpoint::{Access, Endpoint};
use crate::gateway::api::{ApiError, Shared};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AdminChallenge")]
struct Answer {
    challenge: String,
    /// Hexadecimal digits.
    salt: String,
    /// Rounds of PBKDF2.
    iterations: u32,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/api/admin/challenge", challenge)
        .says("What a login has to answer; good for one login within five minutes.")
        .open_to(Access::Anybody)
        .answers::<Answer>(200)
        .fails(&[403])
}

async fn challenge(State(api): Shared) -> Result<Json<Answer>, ApiError> {
    let made = api.admin()?.challenge(Timestamp::now())?;
    Ok(Json(Answer {
        challenge: made.challenge,
        salt: made.salt,
        iterations: made.iterations,
    }))
}
