//! In-memory API, in-process node, and waits for Pods without sleeping.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use standalone::api::{Clock, EmbeddedApi, LogQuery};
use standalone::node::{NodeConfig, NodeError, log_stream, run};
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

/// Process that is killed at the end of the test.
pub(crate) struct KilledOnDrop(pub(crate) Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine and its node.
pub(crate) fn started() -> (Machine, RunningNode) {
    let machine = Machine::new();
    let node = machine.node_with(|_| {});
    (machine, node)
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
            api: EmbeddedApi::in_memory(&[], Clock::wall()),
            state,
        }
    }

    pub(crate) fn node_with(&self, change: impl FnOnce(&mut NodeConfig)) -> RunningNode {
        let mut config = NodeConfig::new(self.state.path(), self_exe(), self_exe());
        config.images.host_fallback = true;
        change(&mut config);
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(run(self.api.client(), config, shutdown.clone()));
        RunningNode { shutdown, task }
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.api.client(), "default")
    }

    /// Creates a namespaced object.
    pub(crate) async fn make<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + serde::Serialize,
    {
        let object = serde_json::from_value(object).unwrap();
        let created = self.all().create(&PostParams::default(), &object).await;
        created.unwrap()
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Pod {
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        self.make(pod).await
    }

    /// Creates a Pod with one container that runs once, with the fields of `container`.
    pub(crate) async fn create_once(&self, name: &str, container: Value) -> Pod {
        let mut main = json!({"name": "main", "image": "any"});
        let fields = container.as_object().unwrap().clone();
        main.as_object_mut().unwrap().extend(fields);
        let spec = json!({"restartPolicy": "Never", "containers": [main]});
        self.create(name, spec).await
    }

    /// Runs `script` once in a shell.
    pub(crate) async fn once(&self, name: &str, script: &str) -> Pod {
        let container = json!({"command": ["bash", "-c", script]});
        self.create_once(name, container).await;
        self.wait(name, ended).await
    }

    pub(crate) async fn wait(&self, name: &str, condition: impl Condition<Pod>) -> Pod {
        let wait = await_condition(self.all::<Pod>(), name, condition);
        let Ok(pod) = tokio::time::timeout(WAIT_TIMEOUT, wait).await else {
            let pod = self.all::<Pod>().get(name).await.unwrap();
            panic!("waiting for {name}: {:#?}\n{}", pod.status, self.log(name));
        };
        pod.unwrap().expect("the Pod exists")
    }

    /// Deletes a Pod or another object and waits until it is gone.
    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let uid = self.all::<K>().get(name).await.unwrap().uid().unwrap();
        let deleted = self.all::<K>().delete(name, &DeleteParams::default()).await;
        deleted.unwrap();
        let gone = await_condition(self.all::<K>(), name, conditions::is_deleted(&uid));
        let gone = tokio::time::timeout(WAIT_TIMEOUT, gone).await;
        gone.expect("deleted in time").unwrap();
    }

    /// Log of the container `main`.
    pub(crate) fn log(&self, pod: &str) -> String {
        let container = ["default", pod, "main"].map(str::to_owned);
        let query = LogQuery::default();
        let Ok(mut stream) = log_stream(self.state.path(), &container, &query) else {
            return String::new();
        };
        let log = stream.next().now_or_never().flatten().unwrap().unwrap();
        String::from_utf8(log.into()).unwrap()
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.state.path().join(below)
    }
}

/// Waits until `condition` is true.
pub(crate) async fn eventually(condition_text: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(WAIT_TIMEOUT, wait).await;
    assert!(waited.is_ok(), "not in time: {condition_text}");
}

impl RunningNode {
    /// Waits for an end without a call of [`Self::stop`].
    pub(crate) async fn ended(&mut self) -> Result<(), NodeError> {
        let ended = tokio::time::timeout(WAIT_TIMEOUT, &mut self.task).await;
        ended.expect("the node ends in time").unwrap()
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(WAIT_TIMEOUT, self.task).await;
        ended.expect("the node stops in time").unwrap().unwrap();
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

pub(crate) fn ended(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| matches!(phase(pod), "Succeeded" | "Failed"))
}

pub(crate) fn running(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|held| held.type_ == "Ready" && held.status == "True")
}

pub(crate) fn container(pod: &Pod) -> ContainerStatus {
    let status = pod.status.clone().unwrap();
    status.container_statuses.unwrap().remove(0)
}

pub(crate) fn termination(pod: &Pod) -> ContainerStateTerminated {
    container(pod).state.unwrap().terminated.unwrap()
}

pub(crate) fn exit_code(pod: &Pod) -> i32 {
    termination(pod).exit_code
}

pub(crate) fn waits_for(reason: &'static str) -> impl Condition<Pod> {
    move |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let waits = |status: &ContainerStatus| {
            let waiting = status.state.as_ref()?.waiting.as_ref()?;
            Some(waiting.reason.as_deref() == Some(reason))
        };
        statuses.is_some_and(|all| all.iter().any(|status| waits(status) == Some(true)))
    }
}
