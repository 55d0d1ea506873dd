//! In-memory API, in-process node, and waits for Pods without sleeping.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use standalone::api::{ApiOptions, EmbeddedApi};
use standalone::node::{LogOptions, NodeConfig, NodeError, logs, run};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Generous, because the machine may be loaded.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Program with the `exec-as` subcommand.
pub(crate) fn self_exe() -> PathBuf {
    env!("CARGO_BIN_EXE_sandbox-standalone").into()
}

/// API and state directory of a test.
pub(crate) struct Machine {
    pub(crate) api: EmbeddedApi,
    pub(crate) state: TempDir,
}

/// Node that runs on a machine.
pub(crate) struct RunningNode {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), NodeError>>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        Self {
            api: EmbeddedApi::in_memory(ApiOptions::new(Vec::new())),
            state,
        }
    }

    pub(crate) fn config(&self) -> NodeConfig {
        NodeConfig::new(self.state.path(), self_exe(), self_exe())
    }

    pub(crate) fn node(&self) -> RunningNode {
        self.node_with(|_| {})
    }

    pub(crate) fn node_with(&self, change: impl FnOnce(&mut NodeConfig)) -> RunningNode {
        let mut config = self.config();
        change(&mut config);
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(run(self.client(), config, shutdown.clone()));
        RunningNode { shutdown, task }
    }

    pub(crate) fn client(&self) -> Client {
        self.api.client()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client(), "default")
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client(), "default")
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Pod {
        let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        let pod = serde_json::from_value(pod).unwrap();
        self.pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap()
    }

    /// Runs `script` once in a shell.
    pub(crate) async fn once(&self, name: &str, script: &str) -> Pod {
        let container = json!({"name": "main", "image": "any", "command": ["bash", "-c", script]});
        let spec = json!({"restartPolicy": "Never", "containers": [container]});
        self.create(name, spec).await;
        self.wait(name, ended).await
    }

    pub(crate) async fn wait(&self, name: &str, condition: impl Condition<Pod>) -> Pod {
        let wait = await_condition(self.pods(), name, condition);
        let Ok(pod) = tokio::time::timeout(WAIT_TIMEOUT, wait).await else {
            let pod = self.pods().get(name).await.unwrap();
            let log = self.log(name, "main");
            panic!(
                "waiting for {name}: {:#?}
{log}",
                pod.status
            );
        };
        pod.unwrap().expect("the Pod exists")
    }

    pub(crate) async fn delete(&self, name: &str) {
        let uid = self.pods().get(name).await.unwrap().uid().unwrap();
        self.pods()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        let gone = await_condition(self.pods(), name, conditions::is_deleted(&uid));
        tokio::time::timeout(WAIT_TIMEOUT, gone)
            .await
            .expect("deleted in time")
            .unwrap();
    }

    pub(crate) fn log(&self, pod: &str, container: &str) -> String {
        let log = logs(
            self.state.path(),
            "default",
            pod,
            container,
            &LogOptions::default(),
        );
        String::from_utf8(log.unwrap_or_default()).unwrap()
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.state.path().join(below)
    }
}

impl RunningNode {
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(WAIT_TIMEOUT, self.task).await;
        ended.expect("the node stops in time").unwrap().unwrap();
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub(crate) fn ended(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| matches!(phase(pod), "Succeeded" | "Failed"))
}

pub(crate) fn running(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| {
        let conditions = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|held| held.type_ == "Ready" && held.status == "True")
    })
}

pub(crate) fn container(pod: &Pod) -> ContainerStatus {
    pod.status
        .clone()
        .unwrap()
        .container_statuses
        .unwrap()
        .remove(0)
}

pub(crate) fn exit_code(pod: &Pod) -> i32 {
    container(pod).state.unwrap().terminated.unwrap().exit_code
}

pub(crate) fn waits_for(reason: &'static str) -> impl Condition<Pod> {
    move |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let mut waiting = statuses
            .into_iter()
            .flatten()
            .filter_map(|container| container.state.as_ref()?.waiting.as_ref());
        waiting.any(|waiting| waiting.reason.as_deref() == Some(reason))
    }
}
