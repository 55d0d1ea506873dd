//! Status writer: writes the node name, the status and the final deletion of one Pod.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use operator::kubernetes::error_text;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::pod_state::PodState;
use super::status::Facts;

const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Status writer of one Pod.
#[derive(Debug)]
pub(crate) struct StatusWriter {
    api: Api<Pod>,
    name: String,
    uid: String,
    /// Pod as first seen, with the last written status.
    pod: Pod,
}

impl StatusWriter {
    pub(crate) fn new(client: &Client, pod: &Pod) -> Self {
        let metadata = pod.metadata.clone();
        let namespace = metadata.namespace.unwrap_or_default();
        Self {
            api: Api::namespaced(client.clone(), &namespace),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            pod: pod.clone(),
        }
    }

    /// Writes the status until `done`, and then once more.
    pub(crate) async fn run(&mut self, state: &PodState, node: &str, done: &CancellationToken) {
        let spec = self.pod.spec.as_ref();
        let is_bound = spec.is_some_and(|spec| spec.node_name.is_some());
        if !is_bound && state.facts().unschedulable.is_none() {
            self.persist(PendingWrite::Node(node)).await;
        }
        loop {
            let last = done.is_cancelled();
            self.persist(PendingWrite::Status(state)).await;
            if last {
                return;
            }
            tokio::select! {
                () = state.changed.notified() => {}
                () = done.cancelled() => {}
            }
        }
    }

    /// Deletes the object after its containers have terminated.
    pub(crate) async fn delete(&mut self) {
        self.persist(PendingWrite::Deletion).await;
    }

    /// Repeats a write until it succeeds or the Pod is gone. A status is read anew for each
    /// attempt.
    async fn persist(&mut self, write: PendingWrite<'_>) {
        let mut delay = INITIAL_BACKOFF;
        loop {
            match self.attempt(write).await {
                Ok(()) => return,
                Err(kube::Error::Api(status)) if is_final(status.code) => {
                    let error = error_text::status_text(&status);
                    tracing::debug!(pod = self.name, ?write, error, "write rejected");
                    return;
                }
                Err(error) => {
                    let error = error_text::error_text(&error);
                    tracing::warn!(pod = self.name, ?write, error, "write failed");
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_BACKOFF);
        }
    }

    async fn attempt(&mut self, write: PendingWrite<'_>) -> kube::Result<()> {
        match write {
            PendingWrite::Node(node) => self.write_node(node).await,
            PendingWrite::Status(state) => self.write_status(&state.facts()).await,
            PendingWrite::Deletion => self.write_deletion().await,
        }
    }

    async fn write_node(&self, node: &str) -> kube::Result<()> {
        let body = json!({"metadata": {"uid": self.uid}, "spec": {"nodeName": node}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&body));
        self.api
            .patch(&self.name, &parameters, &patch)
            .await
            .map(drop)
    }

    async fn write_status(&mut self, facts: &Facts) -> kube::Result<()> {
        let status = facts.to_status(&self.pod, Timestamp::now());
        if self.pod.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let body = json!({"metadata": {"uid": self.uid}, "status": &status});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&body));
        self.api
            .patch_status(&self.name, &parameters, &patch)
            .await?;
        self.pod.status = Some(status);
        Ok(())
    }

    async fn write_deletion(&self) -> kube::Result<()> {
        let uid = Some(self.uid.clone());
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        self.api.delete(&self.name, &parameters).await.map(drop)
    }
}

/// Write about a Pod.
#[derive(Clone, Copy)]
enum PendingWrite<'a> {
    Node(&'a str),
    Status(&'a PodState),
    Deletion,
}

impl std::fmt::Debug for PendingWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Node(_) => "node",
            Self::Status(_) => "status",
            Self::Deletion => "deletion",
        })
    }
}

/// True for errors that a retry cannot fix: Pod gone, replaced or rejected.
fn is_final(code: u16) -> bool {
    matches!(code, 400 | 404 | 409 | 410 | 422)
}
