//! Roots that outlive their Pods: the changes of a container's root, beside the volume of the claim
//! that the container mounts at [`STORE_DIR`].
//!
//! No volume reaches them, so only the container whose root it is changes one. A root belongs to
//! one container at a time: two mounts of the same changes are undefined.

mod generations;
mod record;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crds::contract::path::STORE_DIR;
use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::syncfs;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::sync::watch;

pub(crate) use self::generations::{GenerationStart, KeptGenerations, recorded_bytes};
pub(crate) use self::record::RootImage;

use super::paths::remove_tree;

/// Time in which the programs of an ended container have to be gone.
const END_TIMEOUT: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};
/// Time of a flush to disk after which it goes on unattended.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// Claims whose root is in use, by uid, and the Pod that uses it.
#[derive(Debug)]
pub(crate) struct KeptRoots(watch::Sender<BTreeMap<String, String>>);

impl Default for KeptRoots {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

/// Right of one container to the root of a claim.
#[derive(Debug)]
pub(crate) struct RootLease {
    pub claim: String,
    users: watch::Sender<BTreeMap<String, String>>,
}

impl KeptRoots {
    /// Waits until no other container uses the root. `report` gets the Pod that is waited for.
    pub(crate) async fn lease(
        &self,
        claim: &str,
        pod: &str,
        report: impl Fn(&str),
    ) -> Arc<RootLease> {
        let mut users = self.0.subscribe();
        loop {
            let is_free = self.0.send_if_modified(|users| {
                let is_free = !users.contains_key(claim);
                if is_free {
                    users.insert(claim.to_owned(), pod.to_owned());
                }
                is_free
            });
            if is_free {
                let (claim, users) = (claim.to_owned(), self.0.clone());
                return Arc::new(RootLease { claim, users });
            }
            if let Some(user) = users.borrow_and_update().get(claim) {
                report(user);
            }
            // The sender lives in `self`, so the wait cannot fail.
            let _ = users.wait_for(|users| !users.contains_key(claim)).await;
        }
    }
}

impl Drop for RootLease {
    fn drop(&mut self) {
        self.users
            .send_modify(|users| drop(users.remove(&self.claim)));
    }
}

/// Root in use by a container that runs.
#[derive(Debug)]
pub(crate) struct KeptRoot {
    pub lease: Arc<RootLease>,
    pub generations: KeptGenerations,
    pub start: GenerationStart,
}

impl KeptRoot {
    /// Records that the container starts, before its command does.
    pub(crate) async fn record_start(&self) -> io::Result<()> {
        let (start, generations) = (self.start.clone(), self.generations.clone());
        tokio::task::spawn_blocking(move || generations.record_start(&start)).await?
    }

    /// Removes the generation before a settled one. The root is not released meanwhile.
    pub(crate) fn settle(&self) {
        if self.start.is_settled {
            let (previous, lease) = (self.generations.previous(), Arc::clone(&self.lease));
            tokio::task::spawn_blocking(move || {
                remove_tree(&previous);
                drop(lease);
            });
        }
    }

    /// Waits until the container's programs are gone, and flushes their changes to disk.
    pub(crate) async fn release(self, init: OwnedFd) {
        let flush = move || {
            let flushed = end(&init).and_then(|()| sync(self.generations.path()));
            // Without its directory, the sandbox was deleted and its volume with it.
            let problem = flushed.err();
            if let Some(error) = problem.filter(|it| it.kind() != io::ErrorKind::NotFound) {
                tracing::warn!(%error, claim = self.lease.claim, "kept root not flushed");
            }
        };
        let flush = tokio::task::spawn_blocking(flush);
        if tokio::time::timeout(SYNC_TIMEOUT, flush).await.is_err() {
            tracing::warn!("flushing a kept root takes long");
        }
    }
}

/// The end of PID 1 comes after that of all other processes of its namespace.
fn end(init: &OwnedFd) -> io::Result<()> {
    // Usually it has ended, and the signal cannot be delivered.
    let _ = pidfd_send_signal(init, Signal::KILL);
    let ended = poll(&mut [PollFd::new(init, PollFlags::IN)], Some(&END_TIMEOUT))?;
    if ended == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(())
}

fn sync(directory: &Path) -> io::Result<()> {
    Ok(syncfs(File::open(directory)?)?)
}

/// Mount of a container that asks for a kept root.
pub(crate) fn store_mount(container: &Container) -> Option<&VolumeMount> {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.find(|mount| {
        let is_store = Path::new("/").join(&mount.mount_path) == Path::new(STORE_DIR);
        is_store && mount.read_only != Some(true)
    })
}

/// Returns whether a root node keeps the root of a container.
pub(crate) fn is_kept(pod: &PodSpec, container: &Container) -> bool {
    let Some(mount) = store_mount(container) else {
        return false;
    };
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == mount.name);
    let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
    claim.is_some_and(|claim| claim.read_only != Some(true))
}

/// Name of the directory of a claim's root, beside that of its volume.
pub(crate) fn directory_name(claim: &str) -> String {
    format!("{claim}{SUFFIX}")
}

/// Uid of the claim to which a directory of volumes belongs.
pub(crate) fn claim_of(directory: &str) -> &str {
    directory.strip_suffix(SUFFIX).unwrap_or(directory)
}

const SUFFIX: &str = ".root";

/// Creates a directory that only the node may enter.
pub(crate) fn create_private(directory: &Path) -> io::Result<()> {
    let mut private = fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use parking_lot::Mutex;
    use serde_json::json;

    #[tokio::test]
    async fn second_container_waits_for_the_root_and_names_its_user() {
        let roots = KeptRoots::default();
        let first = roots.lease("a", "one", |_| panic!("free")).await;
        let other = roots.lease("b", "two", |_| panic!("free")).await;
        let waits_for = Mutex::new(String::new());
        let second = roots.lease("a", "three", |user| user.clone_into(&mut waits_for.lock()));
        let mut second = Box::pin(second);
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(*waits_for.lock(), "one");
        drop(other);
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        assert_eq!(second.claim, "a");
        drop(second);
        assert!(roots.0.borrow().is_empty());
    }

    #[test]
    fn store_mount_is_found_by_its_path_if_it_is_writable() {
        for (path, read_only, is_found) in [
            ("/run/sandbox-store", false, true),
            ("/run/sandbox-store/", false, true),
            ("/run/sandbox-store", true, false),
            ("/run/sandbox", false, false),
        ] {
            let mount = json!({"name": "work", "mountPath": path, "readOnly": read_only});
            let container = json!({"name": "main", "volumeMounts": [mount]});
            let container: Container = serde_json::from_value(container).unwrap();
            assert_eq!(store_mount(&container).is_some(), is_found, "{path}");
            let claim = json!({"name": "work", "persistentVolumeClaim": {"claimName": "a"}});
            let directory = json!({"name": "work", "emptyDir": {}});
            for (volume, is_claim) in [(claim, true), (directory, false)] {
                let pod = json!({"containers": [], "volumes": [volume]});
                let pod: PodSpec = serde_json::from_value(pod).unwrap();
                assert_eq!(is_kept(&pod, &container), is_found && is_claim, "{path}");
            }
        }
    }

    #[test]
    fn directory_belongs_to_its_claim() {
        assert_eq!(directory_name("uid"), "uid.root");
        assert_eq!(claim_of("uid.root"), "uid");
        assert_eq!(claim_of("uid"), "uid");
    }
}
