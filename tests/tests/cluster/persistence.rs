//! Pauses that keep changed files on a real node, by the mechanism that the cluster allows.

use crds::conditions::Reason;
use crds::contract::persistence::RootMechanism;
use crds::sandbox::SandboxStatus;
use crds::{Sandbox, SandboxSnapshot};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use serde_json::{Value, json};
use tests::cli_tools::{apply, manifest};
use tests::fork_session::forks_go_on;
use tests::persistence_session::interpreter::interpreter_survives_pauses;
use tests::persistence_session::{
    Workload, body_with_processes, changed_files_survive_pauses, pause, processes_survive_pauses,
    start_body,
};
use tests::session::Session;
use tests::size::full_or;

use crate::installation::{API_KEY, IMAGE, api};
use crate::node_control::kill_container;
use crate::node_leftovers::{leftovers, stop_without_leftovers};
use crate::test_namespace::TestNamespace;

/// Image with Node.js, which uses `io_uring` where it can: the supervisor hides it in user namespaces.
pub(crate) const NODE_IMAGE: &str = "localhost/sandbox-node:1";

/// Pauses of each sandbox, each with a new Pod: in the long form, a thousand of all four.
fn rounds() -> u32 {
    full_or(250, 10)
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn changed_files_survive_pauses_on_a_node() {
    let ns = TestNamespace::of_gateway().await;
    let before = leftovers(&ns).await;
    let body = start_body("kept", IMAGE);
    let session = Session::start(&api(), API_KEY, &body).await;
    changed_files_survive_pauses(&session, rounds()).await;
    stop_without_leftovers(&ns, &session, &before).await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn processes_survive_pauses_on_a_node() {
    let ns = TestNamespace::of_gateway().await;
    let is_overlay = best_mechanism(&ns).await == RootMechanism::Overlay;
    let before = leftovers(&ns).await;
    let survive = async |user: &str, own: &'static str, kernel_mib| {
        let image = if is_overlay { NODE_IMAGE } else { IMAGE };
        let mut body = body_with_processes(&format!("processes-{user}"), image, user);
        // Room for the array.
        body["resource_factor"] = Value::from(4);
        let session = Session::start(&api(), API_KEY, &body).await;
        let has_node = session.run("command -v node").await.contains("node");
        assert_eq!(has_node, is_overlay);
        let workload = Workload {
            rounds: rounds(),
            // An archive gives files new inode numbers, and SQLite rejects writes then.
            directory: if is_overlay { own } else { "/workspace" },
            keeps_connections: true,
            kernel_mib,
            has_root_process: user != "root",
        };
        processes_survive_pauses(&session, workload).await;
        stop_without_leftovers(&ns, &session, &before).await;
    };
    tokio::join!(
        survive("root", "/var/lib", 200),
        survive("openhands", "/home/openhands", 32),
    );
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn interpreter_survives_pauses_on_a_node() {
    let ns = TestNamespace::of_gateway().await;
    let before = leftovers(&ns).await;
    let body = body_with_processes("interpreter", IMAGE, "openhands");
    let session = Session::start(&api(), API_KEY, &body).await;
    interpreter_survives_pauses(&session, rounds()).await;
    stop_without_leftovers(&ns, &session, &before).await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn forks_go_on_for_themselves_on_a_node() {
    let body = body_with_processes("forked", IMAGE, "root");
    let session = Session::start(&api(), API_KEY, &body).await;
    let (forks, stood_still) = forks_go_on(&session, full_or(8, 3), 64).await;
    println!("the sandbox stood still for {stood_still} ms");
    // Other tests have snapshots as well.
    let taken = session.client.snapshots(Some(&session.id)).await.unwrap();
    session.stop().await;
    let paused = pause(&forks[0]).await;
    assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
    forks[0].resume().await;
    forks[0].ready().await;
    assert_eq!(forks[0].run("echo $mine").await, "fork-0");
    for fork in &forks {
        fork.stop().await;
    }
    for snapshot in taken {
        let id = &snapshot.snapshot_id;
        session.client.delete_snapshot(id).await.unwrap();
    }
}

/// The volume of a deleted sandbox stays until its snapshots are gone.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn sandbox_begins_with_the_snapshot_of_a_deleted_one() {
    let ns = TestNamespace::new("snapshot").await;
    let spec = json!({
        "command": ["sleep", "infinity"], "workspace": {"size": "20Mi"},
        "persistence": "Root", "securityContext": {"runAsUser": 0},
    });
    ns.apply("parent", &spec);
    ns.ready("parent").await;
    ns.exec(
        "parent",
        "echo root >/etc/of-parent; echo work >/workspace/of-parent",
    );
    let mut child = spec.clone();
    child["source"] = json!({"snapshot": "kept"});
    ns.apply("child", &child);
    let waits = |status: &SandboxStatus| status.reason == Some(Reason::SnapshotNotFound);
    ns.until("child", "waiting for the snapshot", waits).await;
    let snapshot = manifest("SandboxSnapshot", "kept", &json!({"sandbox": "parent"}));
    apply(&snapshot.to_string(), &["-n", &ns.namespace]);
    ns.ready("child").await;
    let claims = ns.api::<PersistentVolumeClaim>();
    ns.delete::<Sandbox>("parent").await;
    ns.apply("late", &child);
    ns.ready("late").await;
    for name in ["child", "late"] {
        let files = ns.exec(name, "cat /etc/of-parent /workspace/of-parent");
        assert_eq!(files, "root\nwork", "{name}");
    }
    assert!(claims.get_opt("parent-workspace").await.unwrap().is_some());
    ns.delete::<SandboxSnapshot>("kept").await;
    // Kubernetes keeps a volume that Pods use.
    for name in ["child", "late"] {
        ns.patch(name, json!({"state": "Paused"})).await;
        ns.paused(name).await;
    }
    ns.patch("child", json!({"state": "Running"})).await;
    ns.ready("child").await;
    assert_eq!(ns.exec("child", "cat /etc/of-parent"), "root");
    while claims.get_opt("parent-workspace").await.unwrap().is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// As a port-forward would, a process of `kubectl exec` has a connection to one of the sandbox.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn connection_of_another_process_in_the_pod_ends_with_a_pause() {
    let ns = TestNamespace::of_gateway().await;
    let body = body_with_processes("connected", IMAGE, "root");
    let session = Session::start(&api(), API_KEY, &body).await;
    let server = "import socket; far = socket.create_server(('127.0.0.1', 7072)).accept()[0]; \
        open('/workspace/begun', 'w'); far.recv(1); open('/workspace/ended', 'w')";
    session
        .run(&format!("python3 -c \"{server}\" & disown"))
        .await;
    let client = "import socket, time; \
        near = socket.create_connection(('127.0.0.1', 7072)); time.sleep(1000)";
    let until =
        |name: &str| format!("until [ -e /workspace/{name} ]; do sleep 0.1; done; echo {name}");
    let wait = until("begun");
    let script = format!("python3 -c \"{client}\" >/dev/null 2>&1 & {wait}");
    assert_eq!(ns.exec(&session.id, &script).trim(), "begun");
    assert_eq!(
        session.run("ls /workspace/ended 2>&1").await,
        "ls: cannot access '/workspace/ended': No such file or directory"
    );
    let paused = pause(&session).await;
    assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
    session.resume().await;
    session.ready().await;
    assert_eq!(session.run(&until("ended")).await, "ended");
    session.stop().await;
}

/// The first process is killed without a warning after a pause that kept processes.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn crash_keeps_files_of_the_last_pause_and_runs_no_process_twice() {
    let ns = TestNamespace::of_gateway().await;
    let body = body_with_processes("crashed", IMAGE, "root");
    let session = Session::start(&api(), API_KEY, &body).await;
    session
        .run("echo saved >/etc/saved; sleep 100000 & disown")
        .await;
    let paused = pause(&session).await;
    assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
    session.resume().await;
    session.ready().await;
    let count = "grep -lsx sleep /proc/[0-9]*/comm | wc -l";
    assert_eq!(session.run(count).await, "1");
    session
        .run("echo later >/etc/later; echo later >/workspace/later; sync")
        .await;
    let before = ns.ready(&session.id).await;
    ns.reported(&session.id).await;
    kill_container(&ns.get(&session.id).await);
    let after = ns.ready_again(&session.id, 1).await;
    assert_eq!(after.incarnation, before.incarnation + 1);
    assert_eq!(session.run(count).await, "0");
    let files = session
        .run("cat /etc/saved /workspace/later; cat /etc/later 2>/dev/null || echo none")
        .await;
    let expected = match best_mechanism(&ns).await {
        RootMechanism::Overlay => "saved\nlater\nlater",
        RootMechanism::Archive | RootMechanism::Node => "saved\nlater\nnone",
    };
    assert_eq!(files, expected);
    session.stop().await;
}

/// Mechanism that the controller has found out to work.
pub(crate) async fn best_mechanism(ns: &TestNamespace) -> RootMechanism {
    if probe_record(ns, "root_overlays").await["works"] == true {
        RootMechanism::Overlay
    } else {
        RootMechanism::Archive
    }
}

/// Stored answer of a probe of the controller, or null.
pub(crate) async fn probe_record(ns: &TestNamespace, probe: &str) -> Value {
    let records = ns.api::<ConfigMap>();
    let records = records.get_opt("sandbox-operator-cluster-probes").await;
    let records = records.unwrap().and_then(|map| map.data);
    let record = records.and_then(|mut records| records.remove(probe));
    record.map_or(Value::Null, |record| serde_json::from_str(&record).unwrap())
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
