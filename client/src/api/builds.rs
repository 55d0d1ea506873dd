//! Images and image builds (`docs/specs/runtime-api.md`, section 1.10).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{CALL_TIMEOUT, Client, Repeat, missing};
use crate::Error;
use crate::events::sse::EventReader;
use crate::http_client;
use crate::progress::{Progress, RuntimeStatus};

/// A request for the status of a build is held for 50 s.
const STATUS_TIMEOUT: Duration = Duration::from_secs(75);
/// The gateway reads a form for 120 s.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(3);

/// Progress of a build.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct BuildStatus {
    /// `QUEUED`, `WORKING`, `SUCCESS`, `FAILURE`, `INTERNAL_ERROR`, `TIMEOUT`, `CANCELLED` or `EXPIRED`.
    pub status: String,
    /// Reference of the image.
    pub image: String,
    #[serde(default)]
    pub error: Option<String>,
    /// Step of a full build that runs, for example `[2/5] RUN make`. Text of the build.
    #[serde(default)]
    pub step: Option<String>,
}

/// Answer to the question for an image.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ImageInfo {
    pub exists: bool,
    #[serde(default)]
    pub image: Option<ImageDetails>,
}

/// Time and size of an image, as far as the gateway asked a registry.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ImageDetails {
    /// RFC 3339, or empty.
    pub upload_time: String,
    pub image_size_bytes: u64,
}

/// A build in the list of a key.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ListedBuild {
    pub build_id: String,
    #[serde(flatten)]
    pub build: BuildStatus,
    /// Other references of the image.
    #[serde(default)]
    pub tags: Vec<String>,
    /// `alias`, `append` or `full`. Only full builds have a log.
    pub mode: String,
    pub created_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Bytes of the image in its registry, if they are known.
    pub size_bytes: Option<u64>,
}

/// The newest builds of a key.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct BuildList {
    pub builds: Vec<ListedBuild>,
    /// Number of all builds, also those that the list does not have.
    pub total: u64,
}

#[derive(Debug, Deserialize)]
struct Prefix {
    registry_prefix: String,
}

#[derive(Debug, Deserialize)]
struct Accepted {
    build_id: String,
}

/// Lines of the log of a build.
#[derive(Debug)]
pub struct BuildLog(EventReader);

impl BuildStatus {
    /// True when the status does not change any more.
    pub fn is_finished(&self) -> bool {
        !matches!(self.status.as_str(), "QUEUED" | "WORKING")
    }

    /// Explanation of a failure, or the step.
    pub fn detail(&self) -> Option<&str> {
        self.error.as_deref().or(self.step.as_deref())
    }
}

impl Client {
    /// Repository of runtime images of the key.
    pub async fn registry_prefix(&self) -> Result<String, Error> {
        let prefix: Prefix = self.get(&["registry_prefix"], &[]).await?;
        Ok(prefix.registry_prefix)
    }

    pub async fn image(&self, reference: &str) -> Result<ImageInfo, Error> {
        self.get(&["image_exists"], &[("image", reference)]).await
    }

    /// Builds an image from a gzip-compressed tar archive with a `Dockerfile`; the id of the build. A
    /// second call for the same target is the same build.
    pub async fn build(
        &self,
        archive: &[u8],
        target: &str,
        tags: &[String],
    ) -> Result<String, Error> {
        let boundary = format!("part-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let part = |name: &str, value: &str| {
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            )
        };
        let mut form = part("context", &STANDARD.encode(archive));
        form += &part("target_image", target);
        form.extend(tags.iter().map(|tag| part("tags", tag)));
        form.extend(["--", &boundary, "--\r\n"]);
        let form = bytes::Bytes::from(form);
        let kind = format!("multipart/form-data; boundary={boundary}");
        let request = || {
            let request = self
                .request(Method::POST, &["build"], &[])
                .timeout(UPLOAD_TIMEOUT);
            request
                .header(http::header::CONTENT_TYPE, &kind)
                .body(form.clone())
        };
        let accepted: Accepted =
            http_client::json(self.send(Repeat::Temporary, request).await?).await?;
        Ok(accepted.build_id)
    }

    /// Returns the status of a build, after at most 50 s if it is not finished.
    pub async fn build_status(&self, id: &str) -> Result<BuildStatus, Error> {
        let request = || {
            let request = self.request(Method::GET, &["build_status"], &[("build_id", id)]);
            request.timeout(STATUS_TIMEOUT)
        };
        let response = self.send(Repeat::Temporary, request).await;
        let response = response.map_err(|error| missing(error, || format!("build {id}")))?;
        http_client::json(response).await
    }

    /// Waits for the end of a build, at most `ready_timeout` of the settings, and reports each status once.
    pub async fn wait_build(
        &self,
        id: &str,
        report: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<BuildStatus, Error> {
        let limit = self.settings().ready_timeout;
        let deadline = Instant::now() + limit;
        let mut last = None;
        loop {
            let build = self.build_status(id).await?;
            if build.is_finished() {
                return Ok(build);
            }
            let state = build.step.as_ref().unwrap_or(&build.status);
            let step = Progress {
                status: RuntimeStatus::BuildingRuntime,
                id: id.into(),
                message: Some(format!("{}: {state}", build.image)),
            };
            if last.as_ref() != Some(&step) {
                report(&step);
                last = Some(step);
            }
            if Instant::now() > deadline {
                let what = format!("build {id}");
                return Err(Error::Timeout {
                    what,
                    after: limit,
                    state: build.status,
                });
            }
        }
    }

    /// The newest builds of the key, at most `limit` (1 to 500). [`Error::Unsupported`] if the gateway
    /// has no list of builds, or image builds are off.
    pub async fn builds(&self, limit: u32) -> Result<BuildList, Error> {
        let limit = limit.to_string();
        let list = self.get(&["builds"], &[("limit", &limit)]).await;
        list.map_err(|error| match error {
            Error::Rejected {
                status: StatusCode::NOT_FOUND,
                ..
            } => Error::Unsupported("the gateway has no list of image builds".into()),
            error => error,
        })
    }

    /// Follows the log of a full build from its beginning.
    pub async fn build_logs(&self, id: &str) -> Result<BuildLog, Error> {
        let request = || self.request(Method::GET, &["build_logs"], &[("build_id", id)]);
        let connect = self.send(Repeat::Temporary, request);
        let response = tokio::time::timeout(CALL_TIMEOUT, connect).await;
        let response =
            response.map_err(|_| Error::Unavailable("no answer to /build_logs".into()))?;
        let response = response.map_err(|error| missing(error, || format!("build {id}")))?;
        Ok(BuildLog(EventReader::new(response)))
    }
}

impl BuildLog {
    /// Returns the next line, or `None` at the end. An error if the stream was cut before.
    pub async fn next_line(&mut self) -> Result<Option<String>, Error> {
        match self.0.next().await? {
            Some(event) if event.name == "end" => Ok(None),
            Some(event) => Ok(Some(event.data)),
            None => Err(Error::Unavailable("the log was cut; ask again".into())),
        }
    }
}
