//! Times of the last use of image builds, by which the controller deletes unused ones. They are
//! written in the background and at most once an hour.

use std::collections::HashSet;
use std::sync::Arc;

use crds::ImageBuild;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::json;

use super::store::BuildStore;

/// Age from which the time of the last use is written anew.
const RESOLUTION: SignedDuration = SignedDuration::from_hours(1);
/// Writes at once; the next use repeats what is left out.
const MAX_CONCURRENT_WRITES: usize = 4;

#[derive(Debug)]
pub(super) struct UsageRecorder {
    store: BuildStore,
    /// Names of the builds that are being written.
    writing: Arc<Mutex<HashSet<String>>>,
}

impl UsageRecorder {
    pub(super) fn new(store: BuildStore) -> Self {
        Self {
            store,
            writing: Arc::default(),
        }
    }

    /// Records the use of a build at this time.
    pub(super) fn record(&self, build: &Arc<ImageBuild>) {
        let (now, name) = (Timestamp::now(), build.name_any());
        if last_use(build).is_some_and(|at| now.duration_since(at) < RESOLUTION) {
            return;
        }
        let mut writing = self.writing.lock();
        if writing.len() >= MAX_CONCURRENT_WRITES || !writing.insert(name.clone()) {
            return;
        }
        drop(writing);
        let (store, build, writing) = (self.store.clone(), build.clone(), self.writing.clone());
        tokio::spawn(async move {
            let status = json!({"lastUsedAt": Time(now)});
            if let Err(error) = store.report(&build, &status).await {
                tracing::debug!(name, %error, "cannot record the use of an image build");
            }
            writing.lock().remove(&name);
        });
    }
}

/// Time of the last use; a build counts as used when it finishes.
fn last_use(build: &ImageBuild) -> Option<Timestamp> {
    let status = build.status.as_ref()?;
    let used = status.last_used_at.as_ref().or(status.finished_at.as_ref());
    used.map(|time| time.0)
}
