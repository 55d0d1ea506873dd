//! `GET /builds`: image builds of the caller's tenant, the newest first.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use crds::ImageBuild;
use crds::image_build::BuildMode;
use jiff::Timestamp;
use kube::ResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::RateLimitedCaller;
use super::build::{BuildProgress, progress};
use super::endpoint::{Endpoint, IMAGES};
use super::{ApiError, Shared};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 500;

#[derive(Debug, Deserialize)]
struct ListQuery {
    limit: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct BuildList {
    /// The newest first.
    builds: Vec<ListedBuild>,
    /// Number of all builds of the tenant, also those beyond the limit.
    total: usize,
}

/// A build in the list.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedBuild {
    build_id: String,
    #[serde(flatten)]
    progress: BuildProgress,
    /// Other references of the image.
    tags: Vec<String>,
    /// `alias`, `append` or `full`. Only full builds have a log.
    mode: &'static str,
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    created_at: Option<Timestamp>,
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    finished_at: Option<Timestamp>,
    /// Bytes of the image in its registry, if they are known.
    size_bytes: Option<i64>,
}

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(IMAGES, "GET", "/builds", get(list))
        .documented(
            "listBuilds",
            "Lists the builds of the caller, the newest first.",
        )
        .optional_query("limit", "Number of builds, 1 to 500; 100 without it.")
        .response::<BuildList>(200)
        .errors(&[400, 401, 503])
}

async fn list(
    State(api): Shared,
    caller: RateLimitedCaller,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<BuildList>, ApiError> {
    let Query(query) = query?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let text = format!("limit must be from 1 to {MAX_LIMIT}");
        return Err(ApiError::bad_request(text));
    }
    let (builds, total) = api.builds.newest(&caller.tenant, limit).await?;
    let builds = builds.iter().map(|build| ListedBuild::of(build)).collect();
    Ok(Json(BuildList { builds, total }))
}

impl ListedBuild {
    fn of(build: &ImageBuild) -> Self {
        let status = build.status.as_ref();
        let finished_at = status.and_then(|status| status.finished_at.as_ref());
        Self {
            build_id: build.name_any(),
            progress: progress(build),
            tags: build.spec.tags.clone(),
            mode: match build.spec.mode {
                BuildMode::Alias => "alias",
                BuildMode::Append => "append",
                BuildMode::Full => "full",
            },
            created_at: build.creation_timestamp().map(|time| time.0),
            finished_at: finished_at.map(|time| time.0),
            size_bytes: status.and_then(|status| status.size_bytes),
        }
    }
}
