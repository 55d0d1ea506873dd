//! `POST /build` and `GET /build_status`: this server builds no images (runtime API spec 1.10). V0
//! clients that name an image never ask.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::ApiError;
use super::auth::Caller;
use super::endpoint::Endpoint;

/// How much of a build context is taken, and for how long: a client that is answered while it is
/// still sending sees a broken connection and not the answer.
const MOST: usize = 256 << 20;
const LONGEST: Duration = Duration::from_secs(25);

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BuildStatus {
    status: String,
}

#[derive(Debug, Deserialize)]
struct Asked {
    #[serde(default)]
    build_id: Option<String>,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/build", build)
        .says("Always refused: this server builds no images.")
        .fails(&[401, 501])
}

pub(super) fn status_endpoint() -> Endpoint {
    Endpoint::get("/build_status", build_status)
        .says("Always unknown: this server builds no images.")
        .query("build_id")
        .answers::<BuildStatus>(200)
        .fails(&[400, 401, 404])
}

async fn build(_: Caller, request: Request) -> ApiError {
    // Whether all of it came makes no difference to the answer.
    let _ = timeout(LONGEST, discard(request.into_body())).await;
    ApiError::NoBuilder
}

async fn discard(mut body: Body) {
    let mut taken = 0;
    while let Some(Ok(frame)) = body.frame().await {
        taken += frame.data_ref().map_or(0, bytes::Bytes::len);
        if taken > MOST {
            return;
        }
    }
}

async fn build_status(
    _: Caller,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<BuildStatus>, ApiError> {
    let Query(Asked { build_id }) = query?;
    let id = build_id.filter(|id| !id.is_empty());
    id.ok_or_else(|| ApiError::bad("build_id is required"))?;
    Err(ApiError::UnknownBuild)
}
