//! Volumes with snapshots: a PVC has its snapshots as owners besides the sandbox, so that it stays
//! until the last of them is deleted.

use crds::{SandboxSnapshot, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use shared::kubernetes::client::{CallError, with_timeout};

/// Attempts of a write that another one may overtake.
const MAX_ATTEMPTS: u32 = 4;

/// Makes a snapshot an owner of the PVC. Returns the uids of the other snapshots on it; `None` if the
/// PVC is gone.
pub(super) async fn share(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
    snapshot: &SandboxSnapshot,
) -> Result<Option<Vec<String>>, CallError> {
    let uid = snapshot.uid().unwrap_or_default();
    let kind = SandboxSnapshot::kind(&());
    let mut attempt = 1;
    loop {
        let claim = with_timeout(api.get_opt(name)).await?;
        let claim = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none());
        let Some(claim) = claim else {
            return Ok(None);
        };
        let mut owners = claim.owner_references().to_vec();
        let snapshots = owners.iter().filter(|owner| owner.kind == kind);
        let uids: Vec<_> = snapshots.map(|owner| owner.uid.clone()).collect();
        if uids.contains(&uid) {
            let others = uids.into_iter().filter(|other| *other != uid);
            return Ok(Some(others.collect()));
        }
        owners.push(OwnerReference {
            api_version: SandboxSnapshot::api_version(&()).into_owned(),
            kind: kind.to_string(),
            name: snapshot.name_any(),
            uid: uid.clone(),
            controller: None,
            block_owner_deletion: None,
        });
        match set_owners(api, &claim, owners).await {
            Ok(()) => return Ok(Some(uids)),
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether only snapshots keep a PVC: its sandbox is gone.
pub(crate) async fn is_kept(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
) -> Result<bool, CallError> {
    let claim = with_timeout(api.get_opt(name)).await?.unwrap_or_default();
    let owners = claim.owner_references();
    let kind = SandboxSnapshot::kind(&());
    Ok(!owners.is_empty() && owners.iter().all(|owner| owner.kind == kind))
}

/// Gives up the PVC for an owner, the sandbox or a snapshot: it is deleted if there is no other one.
pub(crate) async fn release(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
    owner_uid: &str,
) -> Result<(), CallError> {
    let mut attempt = 1;
    loop {
        let Some(claim) = with_timeout(api.get_opt(name)).await? else {
            return Ok(());
        };
        let (mine, others): (Vec<_>, Vec<_>) = claim
            .owner_references()
            .iter()
            .cloned()
            .partition(|owner| owner.uid == owner_uid);
        if mine.is_empty() {
            return Ok(());
        }
        let released = if others.is_empty() {
            // Not if it is being shared.
            let params = DeleteParams::background().preconditions(Preconditions {
                uid: claim.uid(),
                resource_version: claim.resource_version(),
            });
            with_timeout(api.delete(name, &params)).await.map(drop)
        } else {
            set_owners(api, &claim, others).await
        };
        match released {
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) if error.is_not_found() => return Ok(()),
            released => return released,
        }
    }
}

/// Replaces the owners of a PVC as it was read.
async fn set_owners(
    api: &Api<PersistentVolumeClaim>,
    claim: &PersistentVolumeClaim,
    owners: Vec<OwnerReference>,
) -> Result<(), CallError> {
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    let metadata = json!({
        "ownerReferences": owners,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    });
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let name = claim.name_any();
    let written = api.patch_metadata(&name, &params, &patch);
    with_timeout(written).await.map(drop)
}
