//! `POST /build` and `GET /build_status`: image builds are not supported
//! (`docs/specs/runtime-api.md`, section 1.10). V0 clients that name an image do not call them.

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
use super::endpoint::{Endpoint, Tag};

/// Bytes of a build context that are read, and time for it. A client that gets its response while
/// it is still sending sees a broken connection instead.
const MAX_CONTEXT_BYTES: usize = 256 << 20;
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(25);

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BuildStatus {
    status: String,
}

#[derive(Debug, Deserialize)]
struct BuildStatusQuery {
    #[serde(default)]
    build_id: Option<String>,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/build", build)
        .documented(
            Tag::Images,
            "buildImage",
            "Not supported: always answers 501.",
        )
        .errors(&[401, 501])
}

pub(super) fn status_endpoint() -> Endpoint {
    Endpoint::get("/build_status", build_status)
        .documented(
            Tag::Images,
            "getBuildStatus",
            "Not supported: always answers 404.",
        )
        .query("build_id", "Id of the build.")
        .response::<BuildStatus>(200)
        .errors(&[400, 401, 404])
}

async fn build(_: Caller, request: Request) -> ApiError {
    // The response is the same for an incomplete upload.
    let _ = timeout(CONTEXT_TIMEOUT, discard(request.into_body())).await;
    ApiError::NoBuilder
}

async fn discard(mut body: Body) {
    let mut taken = 0;
    while let Some(Ok(frame)) = body.frame().await {
        taken += frame.data_ref().map_or(0, bytes::Bytes::len);
        if taken > MAX_CONTEXT_BYTES {
            return;
        }
    }
}

async fn build_status(
    _: Caller,
    query: Result<Query<BuildStatusQuery>, QueryRejection>,
) -> Result<Json<BuildStatus>, ApiError> {
    let Query(BuildStatusQuery { build_id }) = query?;
    let id = build_id.filter(|id| !id.is_empty());
    id.ok_or_else(|| ApiError::bad_request("build_id is required"))?;
    Err(ApiError::UnknownBuild)
}
