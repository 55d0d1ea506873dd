//! In-memory index of image builds, fed by a watch and by own writes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crds::{ImageBuild, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use parking_lot::RwLock;
use shared::index::Key;
use shared::kubernetes::watch::WatchSink;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

/// Changes that a slow reader may lag behind before it has to read everything again.
const UPDATE_BUFFER: usize = 256;

/// Index of the image builds of one namespace.
#[derive(Debug)]
pub struct BuildIndex {
    tables: RwLock<Tables>,
    synced: watch::Sender<bool>,
    /// Counts changes.
    changes: watch::Sender<u64>,
    updates: broadcast::Sender<Arc<ImageBuild>>,
}

#[derive(Debug, Default)]
struct Tables {
    by_name: HashMap<String, Arc<ImageBuild>>,
    /// Tenant and reference to the builds that have it, the oldest first.
    by_reference: HashMap<(String, String), BTreeSet<Age>>,
    /// Tenant to the names of its builds.
    names: HashMap<String, BTreeSet<String>>,
}

/// Order of the builds of a reference: the first one has the name.
type Age = (Option<Timestamp>, String);

impl Default for BuildIndex {
    fn default() -> Self {
        Self {
            tables: RwLock::default(),
            synced: watch::Sender::new(false),
            changes: watch::Sender::new(0),
            updates: broadcast::Sender::new(UPDATE_BUFFER),
        }
    }
}

impl BuildIndex {
    /// Stores an object, and returns the newest known version. `None` if it is none of the gateway:
    /// its name does not belong to its tenant and target.
    pub fn store(&self, build: ImageBuild) -> Option<Arc<ImageBuild>> {
        let name = build.name_any();
        if name != names::image_build(&build.spec.tenant, &build.spec.target) {
            return None;
        }
        let mut tables = self.tables.write();
        let mut is_new = true;
        if let Some(known) = tables.by_name.get(&name) {
            if known.is_newer_than(&build) {
                return Some(known.clone());
            }
            is_new = known.resource_version() != build.resource_version();
            tables.remove(&name);
        }
        let build = Arc::new(build);
        tables.insert(&name, build.clone());
        if is_new {
            // Fails only without receivers.
            let _ = self.updates.send(build.clone());
        }
        drop(tables);
        self.announce();
        Some(build)
    }

    /// Removes a deleted object; a newer one of its name stays.
    pub fn forget(&self, name: &str, uid: &str) {
        let mut tables = self.tables.write();
        let known = tables.by_name.get(name);
        if known.is_some_and(|known| known.metadata.uid.as_deref() == Some(uid)) {
            tables.remove(name);
            drop(tables);
            self.announce();
        }
    }

    pub(super) fn by_name(&self, tenant: &str, name: &str) -> Option<Arc<ImageBuild>> {
        let tables = self.tables.read();
        let build = tables.by_name.get(name);
        build.filter(|build| build.spec.tenant == tenant).cloned()
    }

    /// Returns the oldest build of a reference that succeeded.
    pub(super) fn by_reference(&self, tenant: &str, reference: &str) -> Option<Arc<ImageBuild>> {
        let tables = self.tables.read();
        let key = (tenant.to_owned(), reference.to_owned());
        let builds = tables.by_reference.get(&key)?.iter();
        let mut builds = builds.filter_map(|(_, name)| tables.by_name.get(name));
        builds.find(|build| build.is_usable()).cloned()
    }

    /// Number of builds of a tenant.
    pub(super) fn count(&self, tenant: &str) -> usize {
        let tables = self.tables.read();
        tables.names.get(tenant).map_or(0, BTreeSet::len)
    }

    /// Returns the builds of a tenant.
    pub(crate) fn of_tenant(&self, tenant: &str) -> Vec<Arc<ImageBuild>> {
        let tables = self.tables.read();
        let names = tables.names.get(tenant).into_iter().flatten();
        let builds = names.filter_map(|name| tables.by_name.get(name).cloned());
        builds.collect()
    }

    /// Subscribes to new versions of builds.
    pub(crate) fn updates(&self) -> broadcast::Receiver<Arc<ImageBuild>> {
        self.updates.subscribe()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until a complete list has been seen, at most for `limit`.
    pub(super) async fn wait_synced(&self, limit: Duration) -> bool {
        let mut synced = self.synced.subscribe();
        let waited = timeout(limit, synced.wait_for(|done| *done)).await;
        waited.is_ok_and(|seen| seen.is_ok())
    }

    fn announce(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl Tables {
    fn insert(&mut self, name: &str, build: Arc<ImageBuild>) {
        let tenant = &build.spec.tenant;
        for reference in build.references() {
            let key = (tenant.clone(), reference.to_owned());
            self.by_reference
                .entry(key)
                .or_default()
                .insert(age(&build));
        }
        let names = self.names.entry(tenant.clone()).or_default();
        names.insert(name.to_owned());
        self.by_name.insert(name.to_owned(), build);
    }

    fn remove(&mut self, name: &str) {
        let Some(build) = self.by_name.remove(name) else {
            return;
        };
        let tenant = &build.spec.tenant;
        for reference in build.references() {
            let key = (tenant.clone(), reference.to_owned());
            if let Some(builds) = self.by_reference.get_mut(&key) {
                builds.remove(&age(&build));
                if builds.is_empty() {
                    self.by_reference.remove(&key);
                }
            }
        }
        if let Some(names) = self.names.get_mut(tenant) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(tenant);
            }
        }
    }
}

fn age(build: &ImageBuild) -> Age {
    let created_at = build.creation_timestamp().map(|time| time.0);
    (created_at, build.name_any())
}

impl WatchSink<ImageBuild> for BuildIndex {
    fn apply(&self, build: ImageBuild) {
        self.store(build);
    }

    fn remove(&self, key: &Key, meta: &ObjectMeta) {
        if let Some(uid) = &meta.uid {
            self.forget(&key.name, uid);
        }
    }

    fn retain(&self, seen: &HashSet<Key>) {
        let seen: HashSet<_> = seen.iter().map(|key| &key.name).collect();
        let mut tables = self.tables.write();
        let names: Vec<_> = tables.by_name.keys().cloned().collect();
        for name in names.iter().filter(|name| !seen.contains(name)) {
            tables.remove(name);
        }
        drop(tables);
        self.announce();
        self.synced.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use crds::image_build::{BuildPhase, ImageBuildStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn build(tenant: &str, target: &str, second: i64, phase: BuildPhase) -> ImageBuild {
        let name = names::image_build(tenant, target);
        let mut build = ImageBuild::new(
            &name,
            crds::image_build::ImageBuildSpec {
                tenant: tenant.into(),
                target: target.into(),
                tags: vec!["r:lock".into()],
                ..Default::default()
            },
        );
        build.metadata.uid = Some(format!("uid of {target}"));
        build.metadata.resource_version = Some("1".into());
        let created_at = Timestamp::from_second(second).unwrap();
        build.metadata.creation_timestamp = Some(Time(created_at));
        build.status = Some(ImageBuildStatus {
            phase,
            ..ImageBuildStatus::default()
        });
        build
    }

    fn target(index: &BuildIndex, tenant: &str, reference: &str) -> Option<String> {
        let build = index.by_reference(tenant, reference)?;
        Some(build.spec.target.clone())
    }

    #[test]
    fn reference_belongs_to_oldest_succeeded_build_of_tenant() {
        let index = BuildIndex::default();
        index.store(build("a", "r:second", 2, BuildPhase::Succeeded));
        index.store(build("a", "r:failed", 0, BuildPhase::Failed));
        index.store(build("b", "r:other", 0, BuildPhase::Succeeded));
        assert_eq!(target(&index, "a", "r:lock").unwrap(), "r:second");
        let first = index.store(build("a", "r:first", 1, BuildPhase::Succeeded));
        assert_eq!(target(&index, "a", "r:lock").unwrap(), "r:first");
        assert_eq!(target(&index, "b", "r:lock").unwrap(), "r:other");
        assert_eq!(target(&index, "a", "r:failed"), None);
        assert_eq!(target(&index, "a", "r:other"), None);
        assert_eq!((index.count("a"), index.count("b")), (3, 1));
        let first = first.unwrap();
        index.forget(&first.name_any(), "another uid");
        assert_eq!(index.count("a"), 3);
        index.forget(&first.name_any(), &first.uid().unwrap());
        assert_eq!(target(&index, "a", "r:lock").unwrap(), "r:second");
        index.retain(&HashSet::new());
        let tables = index.tables.read();
        assert!(tables.by_reference.is_empty() && tables.names.is_empty());
    }

    #[test]
    fn older_version_and_foreign_name_are_ignored() {
        let index = BuildIndex::default();
        let mut newer = build("a", "r:1", 1, BuildPhase::Succeeded);
        newer.metadata.resource_version = Some("10".into());
        index.store(newer);
        index.store(build("a", "r:1", 1, BuildPhase::Queued));
        assert!(target(&index, "a", "r:1").is_some());
        let mut foreign = build("b", "r:2", 1, BuildPhase::Succeeded);
        foreign.metadata.name = Some("planted".into());
        assert!(index.store(foreign).is_none());
        assert_eq!(target(&index, "b", "r:2"), None);
    }
}
