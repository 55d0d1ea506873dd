//! Logs of builds, which outlive their Pods for a day.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::ImageBuild;
use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, LogParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use shared::image_builds::{BUILD_CONTAINER, LOG_KEY};
use shared::kubernetes::client::{CallError, with_timeout};
use tokio::time::timeout;

use super::pod::labels;
use crate::context::Context;

/// Time limit of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Lines requested from the kubelet.
const TAIL_LINES: i64 = 2000;
/// Maximum read, in bytes.
const MAX_READ_BYTES: u64 = 4 << 20;
/// Maximum kept, in bytes.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// Reads the end of the log of the builder. A partial log is better than none.
pub(super) async fn read(pods: &Api<Pod>, name: &str) -> String {
    let params = LogParams {
        container: Some(BUILD_CONTAINER.into()),
        tail_lines: Some(TAIL_LINES),
        ..LogParams::default()
    };
    let mut bytes = Vec::new();
    let reading = async {
        let stream = pods.log_stream(name, &params).await?;
        let _ = stream.take(MAX_READ_BYTES).read_to_end(&mut bytes).await;
        Ok::<_, kube::Error>(())
    };
    if !matches!(timeout(READ_TIMEOUT, reading).await, Ok(Ok(()))) {
        tracing::debug!(name, "the log of an image build was not read completely");
    }
    let text = String::from_utf8_lossy(&bytes);
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_KEPT_BYTES));
    text[start..].to_owned()
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
