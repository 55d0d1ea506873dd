//! Claims: a warm Pod becomes the Pod of a sandbox by one write, which changes its owner. The write
//! names the resource version of the Pod, so that the API server accepts one claim only. A second
//! write does the same with the PVC of a Pod that has one.

use crds::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::warm_pods::WarmPod;
use crate::context::Context;
use crate::facts::spec_revision::SpecRevision;
use crate::facts::{
    CLAIMED_ANNOTATION, KEY_ROTATION_ANNOTATION, RESTARTS_ANNOTATION, SPEC_ANNOTATION,
    WARM_RESTARTS_ANNOTATION, WarmMatch,
};
use crate::reconcile::build::command::key_rotation;
use crate::reconcile::build::sandbox_owner;
use shared::index::{Entry, Key};
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::slim::SlimPod;

/// Pods that one reconcile tries to claim. Each of the others has been changed or deleted.
const MAX_ATTEMPTS: usize = 8;

/// Claims a warm Pod for a sandbox, and indexes it as its Pod. `None` if there is none any more.
pub(crate) async fn claim(
    context: &Context,
    entry: &Entry,
    warm: &WarmMatch,
    restarts: u32,
) -> Result<Option<SlimPod>, CallError> {
    let pool = entry.key.sibling(&warm.pool);
    for _ in 0..MAX_ATTEMPTS {
        let taken = context.warm_pods.take_ready(&pool, &warm.shape, &entry.uid);
        let Some(pod) = taken else {
            break;
        };
        if let Some(claimed) = try_claim(context, entry, &pool, &pod, restarts).await? {
            context.metrics.record_claim("claimed");
            if let Some(took) = pod.facts.time_to_run() {
                context.demand.record_replacement(&pool, took);
            }
            return Ok(Some(claimed));
        }
        context.metrics.record_claim("conflict");
    }
    context.metrics.record_claim("none_left");
    Ok(None)
}

/// `None` if the Pod was changed or deleted meanwhile. After an error without an answer the Pod stays
/// taken: the claim may have been accepted, so the next attempt is made with the same Pod.
async fn try_claim(
    context: &Context,
    entry: &Entry,
    pool: &Key,
    pod: &WarmPod,
    restarts: u32,
) -> Result<Option<SlimPod>, CallError> {
    let (warm, facts) = (&context.warm_pods, &pod.facts);
    let api = context.api::<SlimPod>(pool);
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    let patch = Patch::Merge(patch(entry, pod, restarts, context.clock.now()));
    match with_timeout(api.patch(&facts.name, &params, &patch)).await {
        Ok(claimed) => {
            context.pods.apply(&claimed);
            Ok(Some(claimed))
        }
        Err(error) if error.is_not_found() => {
            warm.remove(pool.clone(), &facts.name, &facts.uid);
            Ok(None)
        }
        Err(error) if error.is_conflict() => {
            let Some(found) = with_timeout(api.get_opt(&facts.name)).await? else {
                warm.remove(pool.clone(), &facts.name, &facts.uid);
                return Ok(None);
            };
            context.pods.observe(&found);
            // An earlier attempt was accepted, although its answer was lost.
            if found.owner_references().iter().any(|o| o.uid == entry.uid) {
                return Ok(Some(found));
            }
            warm.give_back(pool, &facts.uid);
            Ok(None)
        }
        Err(error) => {
            if error.code().is_some_and(|code| code < 500) {
                warm.give_back(pool, &facts.uid);
            }
            Err(error)
        }
    }
}

/// Makes a sandbox the owner of the PVC of a Pod that was warm. Until then the Pod owns it.
pub(crate) async fn adopt_volume(
    context: &Context,
    entry: &Entry,
    name: &str,
) -> Result<(), CallError> {
    let api = context.api::<PersistentVolumeClaim>(&entry.key);
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    let labels = names::labels(&entry.key.name, &entry.runtime_id);
    let metadata = json!({
        "ownerReferences": [sandbox_owner(entry)], "labels": labels, "managedFields": [{}],
    });
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match with_timeout(api.patch_metadata(name, &params, &patch)).await {
        Ok(_) => context.memory.record_adopted_claim(&entry.key, name),
        // The Pod reports that it is missing, and another one is created.
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn patch(entry: &Entry, pod: &WarmPod, restarts: u32, now: Timestamp) -> Value {
    let revision = SpecRevision::new(entry.generation, &entry.spec);
    let mut annotations = json!({
        SPEC_ANNOTATION: revision.to_string(),
        CLAIMED_ANNOTATION: now.to_string(),
    });
    if restarts > 0 {
        annotations[RESTARTS_ANNOTATION] = restarts.to_string().into();
    }
    let own = pod.facts.container.restarts;
    if own > 0 {
        annotations[WARM_RESTARTS_ANNOTATION] = own.to_string().into();
    }
    let rotation = key_rotation(&entry.spec);
    if rotation > 0 {
        annotations[KEY_ROTATION_ANNOTATION] = rotation.to_string().into();
    }
    json!({"metadata": {
        "uid": pod.facts.uid,
        // Drops the record of field owners, whose maintenance doubles the time of this write.
        "managedFields": [{}],
        "resourceVersion": pod.resource_version,
        "ownerReferences": [sandbox_owner(entry)],
        "labels": {
            names::SANDBOX_LABEL: entry.key.name,
            names::RUNTIME_ID_LABEL: entry.runtime_id,
        },
        "annotations": annotations,
    }})
}
