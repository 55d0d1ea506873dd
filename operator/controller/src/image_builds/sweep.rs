//! Clean-up of the namespace of builds: Pods and directories without a build, and old logs.

use crds::names::{BUILD_LABEL, BUILD_NAMESPACE_LABEL, CONTROLLER_FIELD_MANAGER, MANAGED_BY_LABEL};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};

use crate::config::BuildSteps;
use crate::context::Context;

/// Time for which logs are kept.
const MAX_LOG_AGE: SignedDuration = SignedDuration::from_hours(24);
const PAGE_SIZE: u32 = 200;

/// Deletes Pods and directories without an unfinished build.
pub(super) async fn delete_leftovers(context: &Context) {
    if let Err(error) = delete_pods(context).await {
        tracing::warn!(%error, "cannot delete Pods of ended image builds");
    }
    if let Err(error) = delete_directories(context).await {
        tracing::warn!(%error, "cannot delete files of ended image builds");
    }
}

/// Deletes logs that are a day old.
pub(super) async fn delete_logs(context: &Context) -> Result<(), CallError> {
    let is_old = |log: &ConfigMap| {
        let created_at = log.creation_timestamp();
        let age = created_at.map(|at| context.clock.now().duration_since(at.0));
        age.is_some_and(|age| age > MAX_LOG_AGE)
    };
    delete_if(context, is_old).await
}

async fn delete_pods(context: &Context) -> Result<(), CallError> {
    let has_ended = |pod: &Pod| {
        let label = |name: &str| pod.labels().get(name).cloned().unwrap_or_default();
        let key = Key {
            namespace: label(BUILD_NAMESPACE_LABEL),
            name: label(BUILD_LABEL),
        };
        !context.builds.has(&key)
    };
    delete_if(context, has_ended).await
}

/// Deletes objects of builds that fulfil a condition, page by page.
async fn delete_if<K>(context: &Context, is_due: impl Fn(&K) -> bool) -> Result<(), CallError>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api = Api::<K>::namespaced(context.client.clone(), &context.config.builder.namespace);
    let labels = format!("{MANAGED_BY_LABEL}={CONTROLLER_FIELD_MANAGER}-builds");
    let mut page = ListParams::default().labels(&labels).limit(PAGE_SIZE);
    loop {
        let found = with_timeout(api.list(&page)).await?;
        for object in found.items.iter().filter(|object| is_due(object)) {
            let (name, params) = (object.name_any(), DeleteParams::default());
            match with_timeout(api.delete(&name, &params)).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Removes directories of this machine, if builds have some.
async fn delete_directories(context: &Context) -> std::io::Result<()> {
    let BuildSteps::Local { directory, .. } = &context.config.builder.steps else {
        return Ok(());
    };
    let (directory, builds) = (directory.clone(), context.builds.clone());
    let removing = tokio::task::spawn_blocking(move || {
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if !name.to_str().is_some_and(|name| builds.has_name(name)) {
                images::remove_tree(&entry.path())?;
            }
        }
        Ok(())
    });
    removing
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
