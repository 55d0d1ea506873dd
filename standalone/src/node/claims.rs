//! Provisioner of `PersistentVolumeClaim`s: each claim is a directory that outlives Pods and this
//! process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use operator::index::Key;
use operator::kubernetes::error_text;
use operator::quantity::whole;
use serde_json::json;
use tokio::sync::watch;

use super::kept_root::{claim_of, directory_name};
use super::paths::{Paths, remove_tree};
use super::volumes::make_shared;

/// Existing claims by name.
#[derive(Debug)]
pub(crate) struct ClaimProvisioner {
    known: watch::Sender<BTreeMap<Key, ExistingClaim>>,
    directory: PathBuf,
}

/// Uid, which is the name of the directory, and requested bytes.
pub(crate) type ExistingClaim = (String, Option<u64>);

/// Key and uid of a claim.
fn identity(claim: &PersistentVolumeClaim) -> Option<(Key, String)> {
    let metadata = &claim.metadata;
    let key = Key {
        namespace: metadata.namespace.clone()?,
        name: metadata.name.clone()?,
    };
    Some((key, metadata.uid.clone()?))
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
        let key = Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let mut known = self.known.subscribe();
        let found = known.wait_for(|claims| claims.contains_key(&key)).await;
        // The sender lives in `self`, so the wait cannot fail.
        let uid = found
            .ok()
            .and_then(|claims| Some(claims.get(&key)?.0.clone()));
        uid.unwrap_or_default()
    }

    pub(crate) fn uids(&self) -> BTreeSet<String> {
        let known = self.known.borrow();
        known.values().map(|(uid, _)| uid.clone()).collect()
    }

    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<ExistingClaim> {
        let key = Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.known.borrow().get(&key).cloned()
    }

    /// Records a claim and binds it if necessary.
    pub(crate) async fn applied(&self, client: &Client, claim: &PersistentVolumeClaim) {
        let Some((key, uid)) = identity(claim) else {
            return;
        };
        if let Err(error) = make_shared(&self.directory.join(&uid), None) {
            tracing::warn!(%error, claim = key.name, "volume directory cannot be made");
            return;
        }
        let requests = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        let capacity = requests.and_then(|requests| whole(&requests.get("storage")?.0, 1.0));
        self.known.send_modify(|known| {
            known.insert(key.clone(), (uid, capacity));
        });
        let status = claim.status.as_ref();
        if status.and_then(|status| status.phase.as_deref()) != Some("Bound") {
            bind(client, &key, claim).await;
        }
    }

    /// Forgets a deleted claim and removes its directory.
    pub(crate) fn deleted(&self, claim: &PersistentVolumeClaim) {
        let Some((key, uid)) = identity(claim) else {
            return;
        };
        self.known.send_modify(|known| {
            if known.get(&key).is_some_and(|claim| claim.0 == uid) {
                known.remove(&key);
            }
        });
        let names = [directory_name(&uid), uid];
        let paths = names.map(|name| self.directory.join(name));
        tokio::task::spawn_blocking(move || paths.each_ref().map(|path| remove_tree(path)));
    }

    /// Removes claims that were deleted while no watch was open.
    pub(crate) fn retain(&self, listed: &[PersistentVolumeClaim]) {
        let claims: Vec<(Key, String)> = listed.iter().filter_map(identity).collect();
        let is_listed = |key: &Key, uid: &String| claims.iter().any(|(k, u)| k == key && u == uid);
        let known = &self.known;
        known.send_modify(|known| known.retain(|key, claim| is_listed(key, &claim.0)));
        let entries = fs::read_dir(&self.directory);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_claim = |uid: &str| name.to_str().is_some_and(|name| claim_of(name) == uid);
            if !claims.iter().any(|(_, uid)| is_claim(uid)) {
                tokio::task::spawn_blocking(move || remove_tree(&entry.path()));
            }
        }
    }
}

async fn bind(client: &Client, key: &Key, claim: &PersistentVolumeClaim) {
    let spec = claim.spec.clone().unwrap_or_default();
    let capacity = spec.resources.and_then(|resources| resources.requests);
    let status = json!({"status": {
        "phase": "Bound", "accessModes": spec.access_modes,
        "capacity": capacity.unwrap_or_default(),
    }});
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &key.namespace);
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
    if let Err(error) = claims.patch_status(&key.name, &parameters, &patch).await {
        let error = error_text::error_text(&error);
        tracing::warn!(error, claim = key.name, "claim not marked as bound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> PersistentVolumeClaim {
        let object = json!({
            "metadata": {"namespace": "n", "name": name, "uid": format!("uid-{name}")},
            "status": {"phase": "Bound"},
        });
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn claim_directory_lives_as_long_as_claim() {
        let state = tempfile::tempdir().unwrap();
        let paths = Paths::new(state.path());
        let claims = ClaimProvisioner::new(&paths);
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no API"))
        });
        let client = Client::new(service, "default");
        claims.applied(&client, &claim("a")).await;
        claims.applied(&client, &claim("b")).await;
        assert_eq!(claims.bound("n", "a").await, "uid-a");
        let directory = paths.volumes().join("uid-a");
        fs::write(directory.join("file"), "x").unwrap();
        claims.applied(&client, &claim("a")).await;
        assert!(directory.join("file").is_file());
        let kept = |name: &str| paths.volumes().join(format!("uid-{name}.root"));
        for name in ["a", "b"] {
            fs::create_dir(kept(name)).unwrap();
        }
        claims.retain(&[claim("b")]);
        while directory.exists() || kept("a").exists() {
            tokio::task::yield_now().await;
        }
        assert!(kept("b").is_dir());
        let known: Vec<Key> = claims.known.borrow().keys().cloned().collect();
        assert_eq!(known, [identity(&claim("b")).unwrap().0]);
    }
}
