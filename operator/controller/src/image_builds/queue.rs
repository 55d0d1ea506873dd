//! Full builds that have not finished, fed by a watch and by own writes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crds::image_build::BuildMode;
use crds::{ImageBuild, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use shared::image_reference;
use shared::index::Key;
use shared::kubernetes::watch::WatchSink;
use tokio::sync::watch;

use crate::config::BuildLimits;

/// Time from the request of a client until it gives up: 30 minutes, and some for its last call.
pub(super) const CLIENT_PATIENCE: SignedDuration = SignedDuration::from_secs(1740);
/// Time that is too short for a build.
pub(super) const MIN_BUILD_TIME: SignedDuration = SignedDuration::from_mins(1);

/// Builds that wait or run.
#[derive(Debug)]
pub(crate) struct BuildQueue {
    builds: Mutex<Builds>,
    changes: watch::Sender<()>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Builds {
    unfinished: BTreeMap<Key, Arc<ImageBuild>>,
    /// Those that a task of this process runs, with their tenants.
    running: HashMap<Key, String>,
}

/// A build of this process; it counts as running until it is dropped.
#[derive(Debug)]
pub(super) struct RunningBuild {
    pub(super) key: Key,
    pub(super) build: Arc<ImageBuild>,
    queue: Arc<BuildQueue>,
}

impl Default for BuildQueue {
    fn default() -> Self {
        Self {
            builds: Mutex::default(),
            changes: watch::Sender::new(()),
            synced: watch::Sender::new(false),
        }
    }
}

impl BuildQueue {
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Waits for the first complete list.
    pub(super) async fn wait_synced(&self) {
        // The sender lives in the queue, so this cannot fail.
        let _ = self.synced.subscribe().wait_for(|done| *done).await;
    }

    /// Returns whether a build has not finished, or a task of this process still cleans up after it.
    pub(super) fn has(&self, key: &Key) -> bool {
        let builds = self.builds.lock();
        builds.unfinished.contains_key(key) || builds.running.contains_key(key)
    }

    /// The same by its name alone, which is that of its directory.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let builds = self.builds.lock();
        let mut keys = builds.unfinished.keys().chain(builds.running.keys());
        keys.any(|key| key.name == name)
    }

    /// The current version of a build; `None` if it has finished or was deleted or replaced.
    pub(super) fn unfinished(&self, key: &Key, uid: Option<&str>) -> Option<Arc<ImageBuild>> {
        let builds = self.builds.lock();
        let build = builds.unfinished.get(key);
        build
            .filter(|build| build.metadata.uid.as_deref() == uid)
            .cloned()
    }

    /// Takes the oldest build that the limits allow.
    pub(super) fn take(self: &Arc<Self>, limits: &BuildLimits) -> Option<RunningBuild> {
        let mut builds = self.builds.lock();
        if builds.running.len() >= limits.builds {
            return None;
        }
        let has_room = |tenant: &str| {
            let own = builds.running.values().filter(|other| *other == tenant);
            own.count() < limits.builds_per_tenant
        };
        let waiting = builds.unfinished.iter().filter(|(key, build)| {
            !builds.running.contains_key(key) && has_room(&build.spec.tenant)
        });
        // Builds that an earlier leader has begun go on first.
        let first = waiting.min_by_key(|(_, build)| (is_waiting(build), created_at(build)));
        let (key, build) = first.map(|(key, build)| (key.clone(), build.clone()))?;
        let tenant = build.spec.tenant.clone();
        builds.running.insert(key.clone(), tenant);
        Some(RunningBuild {
            key,
            build,
            queue: self.clone(),
        })
    }

    /// Builds that never began, and whose clients give up before they could end.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<Arc<ImageBuild>> {
        let builds = self.builds.lock();
        let is_expired = |key: &Key, build: &ImageBuild| {
            let rest = remaining(build, now);
            !builds.running.contains_key(key) && is_waiting(build) && rest < MIN_BUILD_TIME
        };
        let found = builds.unfinished.iter();
        let found = found.filter(|(key, build)| is_expired(key, build));
        found.map(|(_, build)| build.clone()).collect()
    }

    /// Numbers of waiting and of running builds.
    pub(super) fn counts(&self) -> (usize, usize) {
        let builds = self.builds.lock();
        let running = builds.running.len();
        (builds.unfinished.len().saturating_sub(running), running)
    }

    fn changed(&self) {
        self.changes.send_replace(());
    }
}

/// Time until the client of a build gives up.
pub(super) fn remaining(build: &ImageBuild, now: Timestamp) -> SignedDuration {
    let since = created_at(build).unwrap_or(now);
    CLIENT_PATIENCE - now.duration_since(since)
}

fn is_waiting(build: &ImageBuild) -> bool {
    let status = build.status.as_ref();
    status.is_none_or(|status| status.attempts.unwrap_or_default() == 0)
}

fn created_at(build: &ImageBuild) -> Option<Timestamp> {
    build.creation_timestamp().map(|at| at.0)
}

/// Returns whether a gateway has handed the build over: its name derives from tenant and target, and
/// its context is beside its image.
fn is_handed_over(build: &ImageBuild) -> bool {
    let spec = &build.spec;
    let status = build.status.as_ref();
    let context = status.and_then(|status| status.context.as_deref());
    let repository =
        |reference: &str| Some(image_reference::parse(reference)?.repository.to_owned());
    let is_beside = context.is_some_and(|context| repository(context) == repository(&spec.target));
    let is_own = build.name_any() == names::image_build(&spec.tenant, &spec.target);
    spec.mode == BuildMode::Full && is_beside && is_own
}

impl WatchSink<ImageBuild> for BuildQueue {
    fn apply(&self, build: ImageBuild) {
        let key = key_of(&build);
        let mut builds = self.builds.lock();
        if build.is_finished() || !is_handed_over(&build) {
            builds.unfinished.remove(&key);
        } else if builds
            .unfinished
            .get(&key)
            .is_none_or(|known| !known.is_newer_than(&build))
        {
            builds.unfinished.insert(key, Arc::new(build));
        }
        drop(builds);
        self.changed();
    }

    fn remove(&self, key: &Key, _: &ObjectMeta) {
        self.builds.lock().unfinished.remove(key);
        self.changed();
    }

    fn retain(&self, seen: &HashSet<Key>) {
        let mut builds = self.builds.lock();
        builds.unfinished.retain(|key, _| seen.contains(key));
        drop(builds);
        self.synced.send_replace(true);
        self.changed();
    }
}

pub(super) fn key_of(build: &ImageBuild) -> Key {
    Key {
        namespace: build.namespace().unwrap_or_default(),
        name: build.name_any(),
    }
}

impl Drop for RunningBuild {
    fn drop(&mut self) {
        self.queue.builds.lock().running.remove(&self.key);
        self.queue.changed();
    }
}

#[cfg(test)]
mod tests;
