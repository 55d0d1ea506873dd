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
/// End of a log that is searched for the step. A step that has written more stays the known one.
const STEP_TAIL: LogTail = LogTail {
    lines: 500,
    // The kubelet cuts the newest bytes, so this is above the length of 500 usual lines.
    read_bytes: 1 << 20,
    kept_bytes: 1 << 20,
};
const MAX_STEP_CHARS: usize = 200;

/// Reads the end of the log of the builder; empty if it cannot be read.
pub(super) async fn read(pods: &Api<Pod>, name: &str) -> String {
    read_tail(TAIL, pods, name).await
}

/// Reads the step of a running builder, for example `[2/5] RUN make`. `None` if the end of its log
/// names none.
pub(super) async fn read_step(pods: &Api<Pod>, name: &str) -> Option<String> {
    last_step(&read_tail(STEP_TAIL, pods, name).await)
}

async fn read_tail(tail: LogTail, pods: &Api<Pod>, name: &str) -> String {
    let read = tail.read(pods, name, BUILD_CONTAINER);
    let Ok(Ok(log)) = timeout(READ_TIMEOUT, read).await else {
        tracing::debug!(name, "cannot read the log of an image build");
        return String::new();
    };
    log
}

/// The last heading of a step, after the number that BuildKit puts before each line. The text is
/// untrusted.
fn last_step(log: &str) -> Option<String> {
    log.lines().rev().find_map(|line| {
        let (number, heading) = line.strip_prefix('#')?.split_once(' ')?;
        let is_heading = number.parse::<u32>().is_ok() && heading.starts_with('[');
        let text = heading.chars().filter(|char| !char.is_control());
        is_heading.then(|| text.take(MAX_STEP_CHARS).collect())
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_the_last_heading_without_control_characters() {
        let log = "#1 [internal] load build definition from Dockerfile\n#1 DONE 0.0s\n\n\
            #6 [2/3] RUN make \u{1b}[31mall\r\n\
            #6 0.310 [3/3] RUN not a heading\n[3/3] RUN\n#x [3/3]\n";
        assert_eq!(last_step(log).as_deref(), Some("[2/3] RUN make [31mall"));
        assert_eq!(last_step("#6 0.310 text\n"), None);
        let cut = last_step(&format!("#6 [2/3] RUN {}", "\u{fc}".repeat(9000)));
        assert_eq!(cut.unwrap().chars().count(), MAX_STEP_CHARS);
    }
}
