//! Images, without image builds. V0 clients that name none ask for the registry prefix and whether the image exists. The
//! gateway has no access to registries and reports every image as existing; a start fails if the
//! cluster cannot pull it (`docs/specs/runtime-api.md`, section 7, rule 37). Builds are not
//! supported (section 1.10); clients that name an image do not call them.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::routing::{get, post};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::auth::RateLimitedCaller;
use super::endpoint::{Endpoint, IMAGES};
use super::{ApiError, Shared};

/// Bytes of a build context that are read, and time for it. A client that gets its response while
/// it is still sending sees a broken connection instead.
const MAX_CONTEXT_BYTES: usize = 256 << 20;
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(25);

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RegistryPrefix {
    pub(super) registry_prefix: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ImageExists {
    exists: bool,
    image: Image,
}

/// Clients require both fields and log them.
#[derive(Debug, Serialize, JsonSchema)]
struct Image {
    upload_time: String,
    image_size_bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct BuildStatus {
    status: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ImageQuery {
    image: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BuildStatusQuery {
    build_id: Option<String>,
}

impl ImageExists {
    /// Answer for an image of which no more is known.
    pub(super) fn yes() -> Self {
        Self::with(String::new(), 0)
    }

    pub(super) fn with(upload_time: String, image_size_bytes: u64) -> Self {
        let image = Image {
            upload_time,
            image_size_bytes,
        };
        Self {
            exists: true,
            image,
        }
    }
}

impl ImageQuery {
    pub(super) fn reference(self) -> Result<String, ApiError> {
        let image = self.image.filter(|image| !image.is_empty());
        image.ok_or_else(|| ApiError::bad_request("image is required"))
    }
}

impl BuildStatusQuery {
    pub(super) fn id(self) -> Result<String, ApiError> {
        let id = self.build_id.filter(|id| !id.is_empty());
        id.ok_or_else(|| ApiError::bad_request("build_id is required"))
    }
}

pub(super) fn endpoints() -> [Endpoint; 4] {
    [
        Endpoint::new(IMAGES, "GET", "/registry_prefix", get(registry_prefix))
            .documented("getRegistryPrefix", "Returns the image repository of runtimes.")
            .response::<RegistryPrefix>(200)
            .errors(&[401]),
        Endpoint::new(IMAGES, "GET", "/image_exists", get(image_exists))
            .documented(
                "checkImage",
                "Always answers true: registries are not queried, and a start reports a missing image.",
            )
            .query("image", "Image reference.", false)
            .response::<ImageExists>(200)
            .errors(&[400, 401]),
        Endpoint::new(IMAGES, "POST", "/build", post(build))
            .documented("buildImage", "Not supported: always answers 501.")
            .errors(&[401, 501]),
        Endpoint::new(IMAGES, "GET", "/build_status", get(build_status))
            .documented("getBuildStatus", "Not supported: always answers 404.")
            .query("build_id", "Id of the build.", false)
            .response::<BuildStatus>(200)
            .errors(&[400, 401, 404]),
    ]
}

pub(super) async fn registry_prefix(
    State(api): Shared,
    caller: RateLimitedCaller,
) -> Json<RegistryPrefix> {
    Json(RegistryPrefix {
        registry_prefix: api.builds.registry_prefix(&caller.tenant).to_owned(),
    })
}

async fn image_exists(
    _: RateLimitedCaller,
    query: Result<Query<ImageQuery>, QueryRejection>,
) -> Result<Json<ImageExists>, ApiError> {
    let Query(query) = query?;
    query.reference()?;
    Ok(Json(ImageExists::yes()))
}

async fn build(_: RateLimitedCaller, request: Request) -> ApiError {
    discard_form(request).await;
    ApiError::NoBuilder
}

/// Reads a form to its end. The response is the same for an incomplete upload.
pub(super) async fn discard_form(request: Request) {
    let _ = timeout(CONTEXT_TIMEOUT, discard(request.into_body())).await;
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
    _: RateLimitedCaller,
    query: Result<Query<BuildStatusQuery>, QueryRejection>,
) -> Result<Json<BuildStatus>, ApiError> {
    let Query(query) = query?;
    query.id()?;
    Err(ApiError::UnknownBuild)
}
