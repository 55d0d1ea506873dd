//! Volumes with snapshots: a PVC has its snapshots as owners besides the sandbox, so that it stays
//! until the last of them is deleted.

use crds::{SandboxSnapshot, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::owned_objects::{delete, with_uid};

/// Attempts of a write that another one may overtake.
const MAX_ATTEMPTS: u32 = 4;

/// Makes a snapshot an owner of the PVC. `false` if the PVC is gone.
pub(super) async fn share(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
    snapshot: &SandboxSnapshot,
) -> Result<bool, CallError> {
    let Some(uid) = snapshot.uid() else {
        return Ok(false);
    };
    change_owners(api, name, |owners| {
        let is_owner = owners.iter().any(|owner| owner.uid == uid);
        (!is_owner).then(|| {
            owners.push(OwnerReference {
                api_version: SandboxSnapshot::api_version(&()).into_owned(),
                kind: SandboxSnapshot::kind(&()).into_owned(),
                name: snapshot.name_any(),
                uid: uid.clone(),
                controller: None,
                block_owner_deletion: None,
            });
        })
    })
    .await
}

/// Gives up the PVC for an owner, the sandbox or a snapshot: it is deleted if there is no other one.
pub(crate) async fn release(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
    owner_uid: &str,
) -> Result<(), CallError> {
    let Some(claim) = with_timeout(api.get_opt(name)).await? else {
        return Ok(());
    };
    let owners = claim.owner_references();
    if !owners.iter().any(|owner| owner.uid == owner_uid) {
        return Ok(());
    }
    if owners.iter().all(|owner| owner.uid == owner_uid) {
        let uid = claim.uid();
        return delete(api, name, uid.as_deref().map(with_uid), None)
            .await
            .map(drop);
    }
    change_owners(api, name, |owners| {
        let before = owners.len();
        owners.retain(|owner| owner.uid != owner_uid);
        (owners.len() < before).then_some(())
    })
    .await
    .map(drop)
}

/// Writes other owners of a PVC, unless `change` returns `None`. `false` if the PVC is gone.
async fn change_owners(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
    mut change: impl FnMut(&mut Vec<OwnerReference>) -> Option<()>,
) -> Result<bool, CallError> {
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    let mut attempt = 1;
    loop {
        let Some(claim) = with_timeout(api.get_opt(name)).await? else {
            return Ok(false);
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let mut owners = claim.owner_references().to_vec();
        if change(&mut owners).is_none() {
            return Ok(true);
        }
        let metadata = json!({
            "ownerReferences": owners,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        });
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match with_timeout(api.patch_metadata(name, &params, &patch)).await {
            Ok(_) => return Ok(true),
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
