//! Shared fixture of the group: resources, unschedulable sandboxes, and counts of writes.

use crds::conditions::Reason;
use crds::sandbox::SandboxStatus;
use crds::{Sandbox, SandboxPool};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use tests::audit::{Writes, writes_to};
use tests::cli_tools::{helm, kubectl};
use tokio::time::{Duration, timeout};

use crate::controller::NAME;

/// The longest that anything may take.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(3);

/// Removes the resources with all stored objects.
pub(crate) fn forget_resources() {
    helm(&["uninstall", "crds", "--ignore-not-found", "--wait"]);
    kubectl(&["delete", "crd", "--all", "--wait"]);
}

/// A client with connections of its own: those of an earlier one end with the server.
pub(crate) async fn client() -> Client {
    Client::try_default().await.unwrap()
}

pub(crate) async fn sandboxes() -> Api<Sandbox> {
    Api::namespaced(client().await, "default")
}

pub(crate) async fn pools() -> Api<SandboxPool> {
    Api::namespaced(client().await, "default")
}

pub(crate) async fn pods() -> Api<Pod> {
    Api::namespaced(client().await, "default")
}

pub(crate) async fn create(name: &str) {
    let spec = json!({"image": "debian:12", "command": ["sleep", "infinity"]});
    let sandbox = json!({"metadata": {"name": name}, "spec": spec});
    let sandbox = serde_json::from_value(sandbox).unwrap();
    let (api, params) = (sandboxes().await, PostParams::default());
    api.create(&params, &sandbox).await.unwrap();
}

/// Waits until the controller has said all that there is to say of one that no node takes.
pub(crate) async fn settled(name: &str) {
    until(name, |status| status.reason == Some(Reason::Unschedulable)).await;
}

pub(crate) async fn until(name: &str, holds: impl Fn(&SandboxStatus) -> bool) {
    let reached =
        |sandbox: Option<&Sandbox>| sandbox.and_then(|s| s.status.as_ref()).is_some_and(&holds);
    let reached = await_condition(sandboxes().await, name, reached);
    let found = timeout(WAIT_TIMEOUT, reached).await;
    found
        .unwrap_or_else(|_| panic!("{name} waits in vain"))
        .unwrap();
}

/// Returns the controller's writes to objects of this name, without Events.
pub(crate) fn deeds(name: &str) -> Writes {
    let mut writes = writes_to(NAME, name);
    writes.retain(|deed, _| !deed.contains(" events "));
    writes
}
