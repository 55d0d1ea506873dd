//! `POST /snapshots/{snapshot_id}/image`: an image with the changed files of a snapshot, in the
//! registry of the caller. Its progress is that of an image build.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::post;
use crds::SandboxSnapshot;
use crds::contract::persistence::{LayerRequest, PersistenceLevel};
use http::StatusCode;
use kube::ResourceExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::timeout;

use super::template::check_ready;
use crate::api::auth::RateLimitedCaller;
use crate::api::body::Body;
use crate::api::build::AcceptedBuild;
use crate::api::endpoint::{Endpoint, SNAPSHOTS};
use crate::api::{Api, ApiError, Shared, audit};
use crate::builds::SnapshotImage;
use crate::runtime_status::{RuntimeStatus, derive};
use crate::sandbox_snapshots::SnapshotError;
use crate::sandboxes::SandboxError;
use shared::image_reference;
use shared::index::Key;

/// Bytes of a reference.
const MAX_TARGET_BYTES: usize = 512;

const EXAMPLE: &str = r#"{"target": "registry.example.com/agents/runtime:with-tools"}"#;

pub(super) fn endpoint() -> Endpoint {
    let path = "/snapshots/{snapshot_id}/image";
    Endpoint::new(SNAPSHOTS, "POST", path, post(image))
        .documented(
            "makeSnapshotImage",
            "Makes an image of a snapshot of a running sandbox, with the files that have changed \
             outside of the workspace.",
        )
        .request_body::<SnapshotImageRequest>(EXAMPLE)
        .response::<AcceptedBuild>(202)
        .errors(&[400, 401, 404, 409, 413, 501, 503])
}

/// Body of the request for an image.
#[derive(Debug, Deserialize, JsonSchema)]
struct SnapshotImageRequest {
    /// Reference of the image: a tag in the repository `/runtime` below the registry prefix.
    target: String,
}

async fn image(
    State(api): Shared,
    caller: RateLimitedCaller,
    path: Result<Path<String>, PathRejection>,
    Body(request): Body<SnapshotImageRequest>,
) -> Result<(StatusCode, Json<AcceptedBuild>), ApiError> {
    let Path(id) = path?;
    let accepted = api.make_image(&caller, &id, request.target).await;
    let result = accepted.as_ref().map(drop);
    audit::snapshot("make-snapshot-image", &caller, ("", &id), result);
    let build_id = accepted?;
    Ok((StatusCode::ACCEPTED, Json(AcceptedBuild { build_id })))
}

impl Api {
    async fn make_image(
        &self,
        caller: &RateLimitedCaller,
        id: &str,
        target: String,
    ) -> Result<String, ApiError> {
        let tenant = &caller.tenant;
        if !self.builds.has_registry(tenant) {
            return Err(ApiError::NoBuilder);
        }
        if target.len() > MAX_TARGET_BYTES {
            let text = format!("target exceeds {MAX_TARGET_BYTES} bytes");
            return Err(ApiError::bad_request(text));
        }
        let finding = self.snapshots.find(&tenant.name, id);
        let snapshot = timeout(caller.remaining_time(), finding).await;
        let snapshot = snapshot.map_err(|_| SandboxError::Timeout)??;
        let image = self.snapshot_image(&snapshot, target)?;
        Ok(self.builds.submit_snapshot(tenant, image).await?)
    }

    fn snapshot_image(
        &self,
        snapshot: &SandboxSnapshot,
        target: String,
    ) -> Result<SnapshotImage, SnapshotError> {
        check_ready(snapshot)?;
        let status = snapshot
            .status
            .as_ref()
            .ok_or(SnapshotError::UnknownImage)?;
        if status.level.unwrap_or_default() < PersistenceLevel::Root {
            return Err(SnapshotError::NoImage);
        }
        let key = Key {
            namespace: self.config().namespace.clone(),
            name: snapshot.spec.sandbox.clone(),
        };
        let source = self.sandboxes.index.get(&key);
        let source = source.filter(|entry| {
            let claim = status.claim.as_deref();
            status.sandbox_uid.as_deref() == Some(&entry.uid)
                && claim.is_none_or(|claim| claim == entry.workspace_claim())
                && derive(entry).lifecycle == RuntimeStatus::Running
        });
        let source = source.ok_or(SnapshotError::SourceNotRunning)?;
        let uid = snapshot.uid().ok_or(SnapshotError::Unknown)?;
        let keys = &self.sandboxes.keys;
        let keys = keys.of(snapshot.creation_timestamp().map(|at| at.0));
        let template = status.template.as_ref();
        let template = template.and_then(|spec| spec.get("image")?.as_str());
        let base = base(status.image_digest.as_deref(), template);
        Ok(SnapshotImage {
            target,
            base: base.ok_or(SnapshotError::UnknownImage)?,
            source,
            request: LayerRequest {
                key: keys.state_key(&uid),
                id: uid,
            },
        })
    }
}

/// Image that a sandbox ran, by its digest if it is known. `reported` comes from a container runtime:
/// a reference with or without a digest, or the digest alone, which of some runtimes is not that of a
/// manifest. `stated` is the image of the spec.
fn base(reported: Option<&str>, stated: Option<&str>) -> Option<String> {
    // Of the kubelet's former runtime.
    let reported = reported.map(|text| text.strip_prefix("docker-pullable://").unwrap_or(text));
    let is_pinned =
        |text: &&str| image_reference::parse(text).is_some_and(|it| it.digest.is_some());
    let pinned = [reported, stated].into_iter().flatten().find(is_pinned);
    if let Some(pinned) = pinned {
        return Some(pinned.to_owned());
    }
    let reported = reported?;
    let whole = if reported.starts_with("sha256:") {
        let stated = image_reference::parse(stated?)?;
        format!("{}@{reported}", stated.repository)
    } else {
        reported.to_owned()
    };
    image_reference::parse(&whole).is_some().then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_image_is_found_in_all_forms_of_runtimes() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let of_spec = format!("h:5000/team/image:1@sha256:{}", "b".repeat(64));
        let pinned = format!("docker.io/library/debian@{digest}");
        let former = format!("docker-pullable://{pinned}");
        let combined = format!("h:5000/team/image@{digest}");
        for (reported, stated, expected) in [
            (Some(&*pinned), Some("debian:12"), Some(&*pinned)),
            (Some(&former), None, Some(&pinned)),
            (Some(&digest), Some("h:5000/team/image:1"), Some(&combined)),
            (Some(&digest), Some(&of_spec), Some(&of_spec)),
            (Some("debian:12"), Some("debian:12"), Some("debian:12")),
            (None, Some("debian:12"), None),
            (Some(&digest), None, None),
            (Some("not an image"), None, None),
        ] {
            assert_eq!(base(reported, stated).as_deref(), expected, "{reported:?}");
        }
    }
}
