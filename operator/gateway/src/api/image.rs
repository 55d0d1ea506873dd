//! `GET /registry_prefix` and `GET /image_exists`, called by V0 clients that name no image. The
//! gateway has no access to registries and reports every image as existing; a start fails if the
//! cluster cannot pull it (`docs/specs/runtime-api.md`, section 7, rule 37).

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::Caller;
use super::endpoint::{Endpoint, Tag};
use super::{ApiError, Shared};

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RegistryPrefix {
    registry_prefix: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ImageExists {
    exists: bool,
    image: Image,
}

/// Clients require both fields and log them.
#[derive(Debug, Serialize, JsonSchema)]
struct Image {
    upload_time: &'static str,
    image_size_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct ImageQuery {
    #[serde(default)]
    image: Option<String>,
}

pub(super) fn prefix_endpoint() -> Endpoint {
    Endpoint::get("/registry_prefix", registry_prefix)
        .documented(
            Tag::Images,
            "getRegistryPrefix",
            "Returns the image repository of runtimes.",
        )
        .response::<RegistryPrefix>(200)
        .errors(&[401])
}

pub(super) fn exists_endpoint() -> Endpoint {
    Endpoint::get("/image_exists", image_exists)
        .documented(
            Tag::Images,
            "checkImage",
            "Always answers true: registries are not queried, and a start reports a missing image.",
        )
        .query("image", "Image reference.")
        .response::<ImageExists>(200)
        .errors(&[400, 401])
}

async fn registry_prefix(State(api): Shared, _: Caller) -> Json<RegistryPrefix> {
    let prefix = api.settings.registry_prefix.trim_end_matches('/');
    Json(RegistryPrefix {
        registry_prefix: prefix.to_owned(),
    })
}

async fn image_exists(
    _: Caller,
    query: Result<Query<ImageQuery>, QueryRejection>,
) -> Result<Json<ImageExists>, ApiError> {
    let Query(ImageQuery { image }) = query?;
    let image = image.filter(|image| !image.is_empty());
    image.ok_or_else(|| ApiError::bad_request("image is required"))?;
    Ok(Json(ImageExists {
        exists: true,
        image: Image {
            upload_time: "",
            image_size_bytes: 0,
        },
    }))
}
