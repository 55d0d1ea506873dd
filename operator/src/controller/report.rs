//! Writes a status: only if it differs, and only what differs, so that nothing changing costs
//! nothing.

use crds::conditions::Reason;
use crds::sandbox::SandboxStatus;
use crds::{Sandbox, names};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::reconcile::Context;
use crate::index::Entry;
use crate::kubernetes::client::{CallError, bounded};

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("the status has no JSON form")]
    Encode(#[from] serde_json::Error),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Writes the status if it differs from the one in the entry.
pub(crate) async fn report(
    context: &Context,
    entry: &Entry,
    status: &SandboxStatus,
) -> Result<(), ReportError> {
    let old = serde_json::to_value(&entry.status)?;
    let Some(changes) = difference(&old, &serde_json::to_value(status)?) else {
        return Ok(());
    };
    let api = Api::<Sandbox>::namespaced(context.client.clone(), &entry.key.namespace);
    // The uid keeps the status from an object that took the name meanwhile.
    let mut metadata = json!({"uid": entry.uid});
    if status.reason == Some(Reason::Expired) && entry.status.reason != Some(Reason::Expired) {
        // This is final: it must not overtake a resume that is not known here yet.
        metadata["resourceVersion"] = entry.resource_version.clone().into();
    }
    let patch = Patch::Merge(json!({"metadata": metadata, "status": changes}));
    let params = PatchParams {
        field_manager: Some(names::CONTROLLER.into()),
        ..PatchParams::default()
    };
    match bounded(api.patch_status(&entry.key.name, &params, &patch)).await {
        Ok(written) => {
            context.index.apply(&written);
            Ok(())
        }
        // Deleted meanwhile: there is nobody to tell, and nothing to reconcile any more.
        Err(error) if error.is_not_found() => {
            context.index.remove(&entry.key, &entry.uid);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The merge patch that turns `old` into `new`; `None` if they are equal.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return (old != new).then(|| new.clone());
    };
    let gone = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .map(|name| (name.clone(), Value::Null));
    let changed = after.iter().filter_map(|(name, value)| {
        let known = before.get(name).unwrap_or(&Value::Null);
        Some((name.clone(), difference(known, value)?))
    });
    let patch: Map<_, _> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_written() {
        let old =
            json!({"phase": "Starting", "podIP": "1", "restarts": {"count": 1, "reasons": ["a"]}});
        assert_eq!(difference(&old, &old), None);
        let new = json!({"phase": "Running", "restarts": {"count": 1}, "url": "u"});
        assert_eq!(
            difference(&old, &new),
            Some(json!({
                "phase": "Running", "podIP": null, "restarts": {"reasons": null}, "url": "u"
            }))
        );
    }
}
