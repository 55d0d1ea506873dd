//! Provisioner of `PersistentVolumeClaim`s: each claim is a directory that outlives Pods and this
//! process.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use operator::kubernetes::error_text;
use serde_json::json;
use tokio::sync::watch;

use super::paths::Paths;

/// Namespace and name.
type Key = (String, String);

/// Existing claims by name, with their uids.
#[derive(Debug)]
pub(crate) struct ClaimProvisioner {
    known: watch::Sender<BTreeMap<Key, String>>,
    directory: PathBuf,
}

/// Key and uid of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    key: Key,
    uid: String,
}

impl Claim {
    fn of(object: &PersistentVolumeClaim) -> Option<Self> {
        let metadata = &object.metadata;
        let key = (metadata.namespace.clone()?, metadata.name.clone()?);
        Some(Self {
            key,
            uid: metadata.uid.clone()?,
        })
    }
}

impl ClaimProvisioner {
    pub(crate) fn new(paths: &Paths) -> Self {
        Self {
            known: watch::Sender::new(BTreeMap::new()),
            directory: paths.volumes(),
        }
    }

    /// Waits for a claim and returns its uid, the name of its directory.
    pub(crate) async fn bound(&self, namespace: &str, name: &str) -> String {
        let key = (namespace.to_owned(), name.to_owned());
        let mut known = self.known.subscribe();
        let found = known.wait_for(|claims| claims.contains_key(&key)).await;
        // The sender lives in `self`, so the wait cannot fail.
        found
            .ok()
            .and_then(|claims| claims.get(&key).cloned())
            .unwrap_or_default()
    }

    /// Records a claim and binds it if necessary.
    pub(crate) async fn applied(&self, client: &Client, object: &PersistentVolumeClaim) {
        let Some(claim) = Claim::of(object) else {
            return;
        };
        if let Err(error) = self.make_directory(&claim.uid) {
            tracing::warn!(%error, claim = claim.key.1, "volume directory cannot be made");
            return;
        }
        self.known.send_modify(|known| {
            known.insert(claim.key.clone(), claim.uid.clone());
        });
        let phase = object
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if phase != Some("Bound") {
            bind(client, &claim, object).await;
        }
    }

    fn make_directory(&self, uid: &str) -> std::io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let path = self.directory.join(uid);
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir(&path)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
    }

    /// Forgets a deleted claim and removes its directory.
    pub(crate) fn deleted(&self, object: &PersistentVolumeClaim) {
        let Some(claim) = Claim::of(object) else {
            return;
        };
        self.known.send_modify(|known| {
            if known.get(&claim.key) == Some(&claim.uid) {
                known.remove(&claim.key);
            }
        });
        let path = self.directory.join(&claim.uid);
        tokio::task::spawn_blocking(move || super::remove_tree::remove(&path));
    }

    /// Removes claims that were deleted while no watch was open.
    pub(crate) fn retain(&self, listed: &[PersistentVolumeClaim]) {
        let claims: Vec<Claim> = listed.iter().filter_map(Claim::of).collect();
        self.known.send_modify(|known| {
            known.retain(|key, uid| {
                claims
                    .iter()
                    .any(|claim| claim.key == *key && claim.uid == *uid)
            });
        });
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            if !claims.iter().any(|claim| name == claim.uid.as_str()) {
                tokio::task::spawn_blocking(move || super::remove_tree::remove(&entry.path()));
            }
        }
    }
}

async fn bind(client: &Client, claim: &Claim, object: &PersistentVolumeClaim) {
    let spec = object.spec.clone().unwrap_or_default();
    let capacity = spec
        .resources
        .and_then(|resources| resources.requests)
        .unwrap_or_default();
    let status = json!({"status": {
        "phase": "Bound", "accessModes": spec.access_modes, "capacity": capacity,
    }});
    let (namespace, name) = &claim.key;
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let patched = api
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await;
    if let Err(error) = patched {
        let error = error_text::error_text(&error);
        tracing::warn!(error, claim = name, "claim not marked as bound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, uid: &str) -> PersistentVolumeClaim {
        let object = json!({
            "metadata": {"namespace": "n", "name": name, "uid": uid}, "status": {"phase": "Bound"},
        });
        serde_json::from_value(object).unwrap()
    }

    fn client() -> Client {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no API"))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn claim_directory_lives_as_long_as_claim() {
        let state = tempfile::tempdir().unwrap();
        let paths = Paths::new(state.path());
        let claims = ClaimProvisioner::new(&paths);
        claims.applied(&client(), &claim("a", "uid-a")).await;
        claims.applied(&client(), &claim("b", "uid-b")).await;
        assert_eq!(claims.bound("n", "a").await, "uid-a");
        let directory = paths.volumes().join("uid-a");
        fs::write(directory.join("file"), "x").unwrap();
        claims.applied(&client(), &claim("a", "uid-a")).await;
        assert!(directory.join("file").is_file());
        claims.retain(&[claim("b", "uid-b")]);
        assert!(
            !claims
                .known
                .borrow()
                .contains_key(&("n".into(), "a".into()))
        );
        assert!(
            claims
                .known
                .borrow()
                .contains_key(&("n".into(), "b".into()))
        );
    }
}
