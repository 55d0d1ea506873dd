//! `GET /registry_prefix` and `GET /image_exists`: asked by V0 clients that name no image. This
//! server has no access to registries, so it takes every image for one that exists and leaves it to
//! the cluster to find out (runtime API spec 7.37).

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::Caller;
use super::endpoint::Endpoint;
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

/// Both are demanded by clients that write them into a log.
#[derive(Debug, Serialize, JsonSchema)]
struct Image {
    upload_time: &'static str,
    image_size_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Asked {
    #[serde(default)]
    image: Option<String>,
}

pub(super) fn prefix_endpoint() -> Endpoint {
    Endpoint::get("/registry_prefix", registry_prefix)
        .says("Where images of runtimes are.")
        .answers::<RegistryPrefix>(200)
        .fails(&[401])
}

pub(super) fn exists_endpoint() -> Endpoint {
    Endpoint::get("/image_exists", image_exists)
        .says("Always yes: this server asks no registry, and a start tells if the cluster finds none.")
        .query("image")
        .answers::<ImageExists>(200)
        .fails(&[400, 401])
}

async fn registry_prefix(State(api): Shared, _: Caller) -> Json<RegistryPrefix> {
    let prefix = api.settings.registry_prefix.trim_end_matches('/');
    Json(RegistryPrefix {
        registry_prefix: prefix.to_owned(),
    })
}

async fn image_exists(
    _: Caller,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<ImageExists>, ApiError> {
    let Query(Asked { image }) = query?;
    let image = image.filter(|image| !image.is_empty());
    image.ok_or_else(|| ApiError::bad("image is required"))?;
    Ok(Json(ImageExists {
        exists: true,
        image: Image {
            upload_time: "",
            image_size_bytes: 0,
        },
    }))
}
