//! Status writer: writes the node name, the status and the final deletion of one Pod.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use operator::kubernetes::backoff::ExponentialBackoff;
use operator::kubernetes::error_text;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::NODE_NAME;
use super::status::PodState;

const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct StatusWriter<'a> {
    state: &'a PodState,
    api: Api<Pod>,
    name: String,
    uid: String,
    /// Pod as first seen, with the last written status.
    pod: Pod,
}

impl<'a> StatusWriter<'a> {
    pub(crate) fn new(client: &Client, pod: &Pod, state: &'a PodState) -> Self {
        let metadata = pod.metadata.clone();
        let namespace = metadata.namespace.unwrap_or_default();
        Self {
            state,
            api: Api::namespaced(client.clone(), &namespace),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            pod: pod.clone(),
        }
    }

    /// Writes the status until `done`, and then once more.
    pub(crate) async fn run(&mut self, done: &CancellationToken) {
        let spec = self.pod.spec.as_ref();
        let mut is_bound = spec.is_some_and(|spec| spec.node_name.is_some());
        loop {
            let last = done.is_cancelled();
            if !is_bound && self.state.facts().unschedulable.is_none() {
                self.persist(PendingWrite::Node).await;
                is_bound = true;
            }
            self.persist(PendingWrite::Status).await;
            if last {
                return;
            }
            tokio::select! {
                () = self.state.changed.notified() => {}
                () = done.cancelled() => {}
            }
        }
    }

    /// Deletes the object after its containers have terminated.
    pub(crate) async fn delete(&mut self) {
        self.persist(PendingWrite::Deletion).await;
    }

    /// Repeats a write until it succeeds or the Pod is gone, with the then current status.
    async fn persist(&mut self, write: PendingWrite) {
        let mut delays = ExponentialBackoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        loop {
            let written = match write {
                PendingWrite::Node => self.write_node().await,
                PendingWrite::Status => self.write_status().await,
                PendingWrite::Deletion => self.write_deletion().await,
            };
            match written {
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
            tokio::time::sleep(delays.next().unwrap_or(MAX_BACKOFF)).await;
        }
    }

    async fn write_node(&self) -> kube::Result<()> {
        let body = json!({"metadata": {"uid": self.uid}, "spec": {"nodeName": NODE_NAME}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&body));
        let patched = self.api.patch(&self.name, &parameters, &patch);
        patched.await.map(drop)
    }

    async fn write_status(&mut self) -> kube::Result<()> {
        let status = self.state.facts().to_status(&self.pod, Timestamp::now());
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
        let this_pod = Preconditions {
            uid: Some(self.uid.clone()),
            resource_version: None,
        };
        let parameters = DeleteParams::default()
            .grace_period(0)
            .preconditions(this_pod);
        self.api.delete(&self.name, &parameters).await.map(drop)
    }
}

#[derive(Debug, Clone, Copy)]
enum PendingWrite {
    Node,
    Status,
    Deletion,
}

/// True for errors that a retry cannot fix: Pod gone, replaced or rejected.
fn is_final(code: u16) -> bool {
    matches!(code, 400 | 404 | 409 | 410 | 422)
}
