//! Writes about one Pod: its node, its status whenever that differs, its final deletion.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use operator::kubernetes::words;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::status::Facts;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The writer for one Pod.
#[derive(Debug)]
pub(crate) struct Reporter {
    api: Api<Pod>,
    name: String,
    uid: String,
    /// The Pod as first seen, with the status written last.
    pod: Pod,
}

impl Reporter {
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

    /// Reports until `done`, and then once more.
    pub(crate) async fn run(&mut self, board: &Board, node: &str, done: &CancellationToken) {
        if self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_ref())
            .is_none()
        {
            self.persist(Write::Node(node)).await;
        }
        loop {
            let last = done.is_cancelled();
            self.persist(Write::Status(board)).await;
            if last {
                return;
            }
            tokio::select! {
                () = board.changed.notified() => {}
                () = done.cancelled() => {}
            }
        }
    }

    /// Ends the object: its containers are gone.
    pub(crate) async fn delete(&mut self) {
        self.persist(Write::Deletion).await;
    }

    /// Repeats a write until it succeeds or the Pod is gone. A status is always the newest.
    async fn persist(&mut self, write: Write<'_>) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.attempt(write).await {
                Ok(()) => return,
                Err(kube::Error::Api(status)) if is_final(status.code) => {
                    let error = words::of_status(&status);
                    tracing::debug!(pod = self.name, ?write, error, "write refused");
                    return;
                }
                Err(error) => {
                    let error = words::of(&error);
                    tracing::warn!(pod = self.name, ?write, error, "write failed");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&mut self, write: Write<'_>) -> kube::Result<()> {
        match write {
            Write::Node(node) => self.write_node(node).await,
            Write::Status(board) => self.write_status(&board.facts()).await,
            Write::Deletion => self.write_deletion().await,
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

/// The writes of a node about a Pod.
#[derive(Clone, Copy)]
enum Write<'a> {
    Node(&'a str),
    Status(&'a Board),
    Deletion,
}

impl std::fmt::Debug for Write<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Node(_) => "node",
            Self::Status(_) => "status",
            Self::Deletion => "deletion",
        })
    }
}

/// Not found, another Pod of the name, and refused for what it is.
fn is_final(code: u16) -> bool {
    matches!(code, 400 | 404 | 409 | 410 | 422)
}
