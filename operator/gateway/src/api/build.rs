//! Images of V0 clients that name none, with image builds (`docs/specs/runtime-api.md`, section
//! 1.10). Builds and image references are those of the caller's tenant.

use axum::Json;
use axum::extract::multipart::MultipartRejection;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest as _, Multipart, Query, Request, State};
use axum::routing::{get, post};
use crds::ImageBuild;
use crds::image_build::BuildPhase;
use http::StatusCode;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::auth::{Poller, RateLimitedCaller};
use super::endpoint::{Endpoint, IMAGES};
use super::image::{
    self, BuildStatusQuery, ImageExists, ImageQuery, RegistryPrefix, registry_prefix,
};
use super::{ApiError, Shared, audit};
use crate::builds::{BuildError, BuildForm, ImageState, MAX_FORM_BYTES, is_interrupted};
use shared::image_builds::reason::{
    BUILDER_ERROR, DEADLINE_EXCEEDED, DISK_ERROR, INTERRUPTED, QUEUE_EXPIRED, REGISTRY_ERROR,
};

/// Answer to the question for an image.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum ImageAnswer {
    Exists(ImageExists),
    Missing { exists: bool },
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AcceptedBuild {
    /// Id for `/build_status`.
    pub(super) build_id: String,
}

/// Progress of a build.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BuildProgress {
    status: BuildWord,
    /// Reference of the image.
    image: String,
    /// Explanation of a failure.
    error: Option<String>,
    /// Step of a full build that runs, as its log names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum BuildWord {
    Queued,
    Working,
    Success,
    Failure,
    InternalError,
    Timeout,
    Cancelled,
    Expired,
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
                "Says whether an image was built, or is in a registry that the gateway knows.",
            )
            .query("image", "Image reference.", false)
            .response::<ImageAnswer>(200)
            .errors(&[400, 401, 500, 503]),
        Endpoint::new(IMAGES, "POST", "/build", post(build))
            .documented(
                "buildImage",
                "Builds an image from a form: context (base64 of a compressed tar archive), target_image \
                 and any number of tags.",
            )
            .response::<AcceptedBuild>(202)
            .errors(&[400, 401, 413, 503])
            .max_body(MAX_FORM_BYTES),
        Endpoint::new(IMAGES, "GET", "/build_status", get(build_status))
            .documented("getBuildStatus", "Returns the progress of a build.")
            .query("build_id", "Id of the build.", false)
            .response::<BuildProgress>(200)
            .errors(&[400, 401, 404, 503]),
    ]
}

async fn image_exists(
    State(api): Shared,
    caller: RateLimitedCaller,
    query: Result<Query<ImageQuery>, QueryRejection>,
) -> Result<Json<ImageAnswer>, ApiError> {
    let Query(query) = query?;
    let reference = query.reference()?;
    let state = api.builds.state(&caller.tenant, &reference).await?;
    Ok(Json(match state {
        ImageState::Missing => ImageAnswer::Missing { exists: false },
        ImageState::Exists { time, size } => ImageAnswer::Exists(ImageExists::with(time, size)),
    }))
}

async fn build(
    State(api): Shared,
    caller: RateLimitedCaller,
    request: Request,
) -> Result<(StatusCode, Json<AcceptedBuild>), ApiError> {
    if !api.builds.policy(&caller.tenant).is_on() {
        image::discard_form(request).await;
        return Err(ApiError::NoBuilder);
    }
    let form = async {
        let form = Multipart::from_request(request, &()).await;
        let form = form.map_err(|error| not_a_form(&error))?;
        BuildForm::read(form, api.builds.has_registry(&caller.tenant)).await
    };
    let submitted = api.builds.submit(&caller.tenant, form).await;
    let submitted = submitted.map_err(ApiError::from);
    let id = submitted.as_ref().map_or("", String::as_str);
    audit::tenant("build", &caller, id, submitted.as_ref().map(drop));
    let build_id = submitted?;
    Ok((StatusCode::ACCEPTED, Json(AcceptedBuild { build_id })))
}

fn not_a_form(error: &MultipartRejection) -> BuildError {
    BuildError::Form(error.body_text())
}

async fn build_status(
    State(api): Shared,
    Poller(tenant): Poller,
    query: Result<Query<BuildStatusQuery>, QueryRejection>,
) -> Result<Json<BuildProgress>, ApiError> {
    let Query(query) = query?;
    let build = api.builds.finished(&tenant, &query.id()?).await?;
    let build = build.ok_or(ApiError::UnknownBuild)?;
    Ok(Json(build.map_or_else(BuildProgress::cancelled, |build| {
        progress(&build)
    })))
}

impl BuildProgress {
    /// End of a build that was deleted meanwhile.
    pub(super) fn cancelled() -> Self {
        Self {
            status: BuildWord::Cancelled,
            image: String::new(),
            error: Some("the build was deleted".to_owned()),
            step: None,
        }
    }
}

pub(super) fn progress(build: &ImageBuild) -> BuildProgress {
    let observed = build.status.as_ref();
    let message = || observed.and_then(|status| status.message.clone());
    let reason = observed.and_then(|status| status.reason.as_deref());
    let (status, error) = match build.phase() {
        BuildPhase::Succeeded => (BuildWord::Success, None),
        BuildPhase::Failed => (failure_word(reason), message()),
        BuildPhase::Queued | BuildPhase::Running if is_interrupted(build, Timestamp::now()) => {
            let interrupted = "the build was interrupted; start again".to_owned();
            (BuildWord::InternalError, Some(interrupted))
        }
        BuildPhase::Queued => (BuildWord::Queued, None),
        BuildPhase::Running => (BuildWord::Working, None),
    };
    // The controller writes the step as the message.
    let step = matches!(status, BuildWord::Working).then(message).flatten();
    BuildProgress {
        status,
        image: build.spec.target.clone(),
        error,
        step,
    }
}

fn failure_word(reason: Option<&str>) -> BuildWord {
    match reason {
        Some(REGISTRY_ERROR | DISK_ERROR | INTERRUPTED | BUILDER_ERROR) => BuildWord::InternalError,
        Some(DEADLINE_EXCEEDED) => BuildWord::Timeout,
        Some(QUEUE_EXPIRED) => BuildWord::Expired,
        _ => BuildWord::Failure,
    }
}
