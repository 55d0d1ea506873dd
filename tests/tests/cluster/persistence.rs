//! Pauses that keep changed files on a real node, by the mechanism that the cluster allows.

use crds::contract::persistence::RootMechanism;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tests::persistence_session::{
    Workload, body_with_processes, changed_files_survive_pauses, processes_survive_pauses,
    start_body,
};
use tests::session::Session;

use crate::installation::{API_KEY, IMAGE, api};
use crate::test_namespace::TestNamespace;

/// Ten pauses, each with a new Pod.
const ROUNDS: u32 = 10;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn changed_files_survive_pauses_on_a_node() {
    let body = start_body("kept", IMAGE);
    let session = Session::start(&api(), API_KEY, &body).await;
    changed_files_survive_pauses(&session, ROUNDS).await;
    session.change_state("stop").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn processes_survive_pauses_on_a_node() {
    let body = body_with_processes("processes", IMAGE, "root");
    let session = Session::start(&api(), API_KEY, &body).await;
    // An archive gives files new inode numbers, and SQLite refuses to write then.
    let directory = match best_mechanism(&TestNamespace::of_gateway().await).await {
        RootMechanism::Overlay => "/var/lib",
        RootMechanism::Archive | RootMechanism::Node => "/workspace",
    };
    let workload = Workload {
        rounds: ROUNDS,
        directory,
        kernel_mib: 200,
    };
    processes_survive_pauses(&session, workload).await;
    session.change_state("stop").await;
}

/// Mechanism that the controller has found out to work.
pub(crate) async fn best_mechanism(ns: &TestNamespace) -> RootMechanism {
    let records = ns.api::<ConfigMap>();
    let records = records.get_opt("sandbox-operator-cluster-probes").await;
    let records = records
        .unwrap()
        .and_then(|map| map.data)
        .unwrap_or_default();
    let record = records.get("root_overlays").map(String::as_str);
    let record: Value = serde_json::from_str(record.unwrap_or("{}")).unwrap();
    if record["works"] == true {
        RootMechanism::Overlay
    } else {
        RootMechanism::Archive
    }
}

/// The supervisor has capabilities, and withholds them from the command.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn command_has_no_capability_of_its_supervisor() {
    let ns = TestNamespace::of_gateway().await;
    let name = "withheld";
    ns.apply(
        name,
        &json!({
            "command": ["sh", "-c", "grep Cap /proc/self/status >/workspace/own; sleep infinity"],
            "workspace": {"size": "1Gi"}, "persistence": "Root",
        }),
    );
    let status = ns.ready(name).await;
    assert_eq!(status.root_mechanism, Some(best_mechanism(&ns).await));
    let own = ns.exec(name, "cat /workspace/own");
    for line in own.lines() {
        assert!(line.ends_with("\t0000000000000000"), "{own}");
    }
    // The store is not in the workspace.
    let listed = ns.exec(name, "ls /workspace");
    assert_eq!(listed.trim(), "own");
    ns.delete::<crds::Sandbox>(name).await;
}
