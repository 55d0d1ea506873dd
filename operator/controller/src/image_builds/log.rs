//! Logs of builds, which outlive their Pods for a day.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::ImageBuild;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use shared::image_builds::{BUILD_CONTAINER, LOG_KEY};
use shared::kubernetes::client::{CallError, with_timeout};
use tokio::time::timeout;

use super::pod::labels;
use crate::context::Context;
use crate::log_tail::LogTail;

/// Time limit of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const TAIL: LogTail = LogTail {
    lines: 2000,
    read_bytes: 4 << 20,
    kept_bytes: 64 << 10,
};

/// Reads the end of the log of the builder; empty if it cannot be read.
pub(super) async fn read(pods: &Api<Pod>, name: &str) -> String {
    let read = TAIL.read(pods, name, BUILD_CONTAINER);
    let Ok(Ok(log)) = timeout(READ_TIMEOUT, read).await else {
        tracing::debug!(name, "cannot read the log of an image build");
        return String::new();
    };
    log
}

/// Keeps a log under the name of its build.
pub(super) async fn keep(
    context: &Context,
    build: &ImageBuild,
    log: String,
) -> Result<(), CallError> {
    let namespace = &context.config.builder.namespace;
    let kept = ConfigMap {
        metadata: ObjectMeta {
            name: build.metadata.name.clone(),
            namespace: Some(namespace.clone()),
            labels: Some(labels(build)),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(LOG_KEY.to_owned(), log)])),
        ..ConfigMap::default()
    };
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), namespace);
    // That of an earlier build of the name, whose age is another.
    match with_timeout(api.delete(&build.name_any(), &DeleteParams::default())).await {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    with_timeout(api.create(&PostParams::default(), &kept)).await?;
    Ok(())
}
