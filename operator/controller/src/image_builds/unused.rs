//! Deletion of image builds that are not used any more. The gateway makes them and records their
//! use; the leader lists them from time to time, so that no process but the gateway has to keep
//! them in memory.

use std::time::Duration;

use crds::ImageBuild;
use crds::image_build::BuildPhase;
use crds::sandbox::Phase;
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, ResourceExt as _};
use shared::image_builds::ImageBuilds;
use shared::index::{Entry, Index};
use shared::kubernetes::client::{CallError, with_timeout};
use tokio::time::sleep;

use super::sweep;
use crate::context::Context;

/// Time between two looks at all image builds.
const INTERVAL: Duration = Duration::from_hours(1);
/// Time of the first look after the controller began to lead, when there is more urgent work.
const FIRST_DELAY: Duration = Duration::from_mins(1);
/// Time after which an image that no client has asked for or started is deleted.
const MAX_UNUSED: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Time for which a failed or interrupted build is kept for the administrator.
const MAX_FAILED: SignedDuration = SignedDuration::from_hours(24);
const PAGE_SIZE: u32 = 100;

/// Deletes unused image builds, now and then. Never ends.
pub(super) async fn delete_unused(context: &Context) {
    if !context.config.image_builds.is_on() {
        return std::future::pending().await;
    }
    sleep(FIRST_DELAY).await;
    loop {
        match delete_once(context).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "deleted unused image builds"),
            Err(error) => tracing::warn!(%error, "cannot delete unused image builds; retrying"),
        }
        if context.config.image_builds == ImageBuilds::Full
            && let Err(error) = sweep::delete_logs(context).await
        {
            tracing::warn!(%error, "cannot delete logs of image builds; retrying");
        }
        sleep(INTERVAL).await;
    }
}

/// Deletes all image builds that are due, and returns their number.
async fn delete_once(context: &Context) -> Result<usize, CallError> {
    let api = api(context, context.config.namespace.as_deref());
    let (now, mut deleted) = (context.clock.now(), 0);
    let mut page = ListParams::default().limit(PAGE_SIZE);
    loop {
        let builds = with_timeout(api.list(&page)).await?;
        let due = builds.items.iter().filter(|build| is_due(build, now));
        for build in due.filter(|build| !is_in_use(build, &context.index)) {
            delete(context, build).await?;
            deleted += 1;
        }
        match builds.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(deleted),
        }
    }
}

fn api(context: &Context, namespace: Option<&str>) -> Api<ImageBuild> {
    match namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    }
}

/// Deletes a build as it was listed: one that was used since stays.
async fn delete(context: &Context, build: &ImageBuild) -> Result<(), CallError> {
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: build.uid(),
        resource_version: build.resource_version(),
    });
    let api = api(context, build.namespace().as_deref());
    match with_timeout(api.delete(&build.name_any(), &params)).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a build is old enough to be deleted.
fn is_due(build: &ImageBuild, now: Timestamp) -> bool {
    let status = build.status.as_ref();
    let used = status.and_then(|status| status.last_used_at.as_ref());
    let finished = status.and_then(|status| status.finished_at.as_ref());
    let created = build.metadata.creation_timestamp.as_ref();
    let Some(since) = used.or(finished).or(created) else {
        return false;
    };
    let kept = match build.phase() {
        BuildPhase::Succeeded => MAX_UNUSED,
        BuildPhase::Queued | BuildPhase::Running | BuildPhase::Failed => MAX_FAILED,
    };
    now.duration_since(since.0) > kept
}

/// Returns whether the tenant has a sandbox of the image, also a paused one.
fn is_in_use(build: &ImageBuild, index: &Index) -> bool {
    let Some(image) = build.runnable() else {
        return false;
    };
    let runs = |entry: &Entry| {
        entry.spec.image.as_ref() == Some(&image) && entry.status.phase != Phase::Stopped
    };
    let sandboxes = index.of_tenant(&build.spec.tenant);
    build.is_usable() && sandboxes.iter().any(|entry| runs(entry))
}

#[cfg(test)]
mod tests;
