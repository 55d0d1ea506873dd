//! Clean-up of the namespace of builds: Pods of earlier leaders, and old logs.

use crds::names::{BUILD_LABEL, BUILD_NAMESPACE_LABEL, CONTROLLER_FIELD_MANAGER, MANAGED_BY_LABEL};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource, ResourceExt as _};
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};

use crate::context::Context;

/// Time for which logs are kept.
const MAX_LOG_AGE: SignedDuration = SignedDuration::from_hours(24);
/// Objects of a list; what is left out goes at the next time.
const MAX_LISTED: u32 = 500;

/// Deletes Pods without an unfinished build.
pub(super) async fn delete_leftovers(context: &Context) {
    if let Err(error) = delete_pods(context).await {
        tracing::warn!(%error, "cannot delete Pods of earlier image builds");
    }
}

/// Deletes logs that are a day old.
pub(super) async fn delete_logs(context: &Context) -> Result<(), CallError> {
    let api = api::<ConfigMap>(context);
    for log in with_timeout(api.list(&list_params())).await? {
        let age = log
            .creation_timestamp()
            .map(|at| context.clock.now().duration_since(at.0));
        if age.is_some_and(|age| age > MAX_LOG_AGE) {
            delete(&api, &log.name_any()).await?;
        }
    }
    Ok(())
}

async fn delete_pods(context: &Context) -> Result<(), CallError> {
    let api = api::<Pod>(context);
    for pod in with_timeout(api.list(&list_params())).await? {
        let label = |name: &str| pod.labels().get(name).cloned().unwrap_or_default();
        let key = Key {
            namespace: label(BUILD_NAMESPACE_LABEL),
            name: label(BUILD_LABEL),
        };
        if !context.builds.has(&key) {
            delete(&api, &pod.name_any()).await?;
        }
    }
    Ok(())
}

fn api<K>(context: &Context) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(context.client.clone(), &context.config.builder.namespace)
}

fn list_params() -> ListParams {
    let labels = format!("{MANAGED_BY_LABEL}={CONTROLLER_FIELD_MANAGER}-builds");
    ListParams::default().labels(&labels).limit(MAX_LISTED)
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), CallError>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match with_timeout(api.delete(name, &DeleteParams::default())).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
