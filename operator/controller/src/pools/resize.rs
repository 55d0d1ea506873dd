//! The raise in place of the resources of a claimed Pod to those of its sandbox.

use std::collections::BTreeMap;

use crds::names;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::context::Context;
use crate::facts::{RESIZED, ResizeProblem};
use shared::index::Entry;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::slim::SlimPod;
use shared::resources::{ResourceError, requirements};

/// Subresource of Pods whose resources can change in place.
const SUBRESOURCE: &str = "resize";

type Quantities = BTreeMap<String, Quantity>;

/// Returns whether the cluster changes the resources of Pods in place.
pub(crate) async fn is_supported(context: &Context) -> Result<bool, kube::Error> {
    let name = format!("pods/{SUBRESOURCE}");
    let ask = async || {
        let known = context.client.list_core_api_resources("v1").await?;
        Ok(known.resources.iter().any(|resource| resource.name == name))
    };
    context.resizes.get_or_try_init(ask).await.copied()
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ResizeError {
    #[error(transparent)]
    Build(#[from] ResourceError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Gives a claimed Pod the resources of its sandbox. A rejection as invalid is final for this Pod; a
/// quota may have room later.
pub(crate) async fn resize(
    context: &Context,
    entry: &Entry,
    name: &str,
    uid: &str,
) -> Result<(), ResizeError> {
    let full = requirements(&entry.spec, &context.config.defaults.resources)?;
    let part = |all: Option<Quantities>| -> Quantities {
        let all = all.unwrap_or_default().into_iter();
        all.filter(|(name, _)| RESIZED.contains(&name.as_str()))
            .collect()
    };
    let resources = json!({"requests": part(full.requests), "limits": part(full.limits)});
    let patch = json!({
        "metadata": {"uid": uid},
        "spec": {"containers": [{"name": names::CONTAINER, "resources": resources}]},
    });
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    let api = context.api::<SlimPod>(&entry.key);
    let patch = Patch::Strategic(patch);
    match with_timeout(api.patch_subresource(SUBRESOURCE, name, &params, &patch)).await {
        Ok(resized) => context.pods.apply(&resized),
        Err(error) if error.is_not_found() => {}
        Err(error) if matches!(error.code(), Some(400 | 403 | 422)) => {
            let problem = ResizeProblem {
                is_final: error.code() != Some(403),
                message: error.to_string(),
            };
            let memory = &context.memory;
            memory.record_resize_problem(&entry.key, uid, problem);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
