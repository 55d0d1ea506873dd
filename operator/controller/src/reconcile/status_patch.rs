//! Writes the status as a merge patch of the differences; without a difference there is no write.

use crds::conditions::Reason;
use crds::sandbox::SandboxStatus;
use crds::{Sandbox, names};
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::context::Context;
use shared::index::Entry;
use shared::kubernetes::client::{CallError, with_timeout};

/// Error of a status write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusPatchError {
    #[error("cannot serialize the status as JSON")]
    Encode(#[from] serde_json::Error),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Writes the status if it differs from that of the entry.
pub(crate) async fn patch_status(
    context: &Context,
    entry: &Entry,
    status: &SandboxStatus,
) -> Result<(), StatusPatchError> {
    let old = serde_json::to_value(&entry.status)?;
    let Some(mut changes) = merge_patch(&old, &serde_json::to_value(status)?) else {
        return Ok(());
    };
    let api = context.api::<Sandbox>(&entry.key);
    // The uid protects another object of the same name.
    let mut metadata = json!({"uid": entry.uid});
    if status.reason == Some(Reason::Expired) && entry.status.reason != Some(Reason::Expired) {
        // Expiry is final, so it must not overtake a resume that is not indexed yet.
        metadata["resourceVersion"] = entry.resource_version.clone().into();
    }
    if let (None, Some(own)) = (&entry.status.installation, &context.installation) {
        // Of two installations, one gets a conflict and then sees the other one's name.
        metadata["resourceVersion"] = entry.resource_version.clone().into();
        changes["installation"] = own.clone().into();
    }
    let patch = Patch::Merge(json!({"metadata": metadata, "status": changes}));
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    match with_timeout(api.patch_status(&entry.key.name, &params, &patch)).await {
        Ok(written) => {
            context.index.apply(&written);
            Ok(())
        }
        // Deleted meanwhile: there is nothing left to reconcile.
        Err(error) if error.is_not_found() => {
            context.index.remove(&entry.key, &entry.uid);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the merge patch from `old` to `new`; `None` if they are equal.
fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return (old != new).then(|| new.clone());
    };
    let gone = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .map(|name| (name.clone(), Value::Null));
    let changed = after.iter().filter_map(|(name, value)| {
        let known = before.get(name).unwrap_or(&Value::Null);
        Some((name.clone(), merge_patch(known, value)?))
    });
    let patch: Map<_, _> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patch_contains_only_differences() {
        let old =
            json!({"phase": "Starting", "podIP": "1", "restarts": {"count": 1, "reasons": ["a"]}});
        assert_eq!(merge_patch(&old, &old), None);
        let new = json!({"phase": "Running", "restarts": {"count": 1}, "url": "u"});
        assert_eq!(
            merge_patch(&old, &new),
            Some(json!({
                "phase": "Running", "podIP": null, "restarts": {"reasons": null}, "url": "u"
            }))
        );
    }
}
