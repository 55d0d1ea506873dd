//! Phases and statuses from Pending to termination.

use kube::ResourceExt as _;
use serde_json::json;

use super::harness::{Machine, container, exit_code, phase, waits_for};

#[tokio::test(flavor = "multi_thread")]
async fn pod_runs_init_containers_and_terminates() {
    let machine = Machine::new();
    let node = machine.node();
    let mount = json!([{"name": "shared", "mountPath": "/opt/shared"}]);
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "init", "image": "any", "volumeMounts": mount,
            "command": ["sh", "-c", "echo hello > /opt/shared/file"]}],
        "containers": [{"name": "main", "image": "any", "volumeMounts": mount,
            "workingDir": "/new/place",
            "env": [{"name": "UID_OF_POD",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
            "command": ["bash", "-c", "cat /opt/shared/file; pwd; echo $UID_OF_POD; hostname; \
                exit 3"]}],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    machine.create("pod", spec).await;
    let pod = machine.wait("pod", super::harness::ended).await;
    let log = machine.log("pod", "main");
    assert_eq!(
        log,
        format!("hello\n/new/place\n{}\npod\n", pod.uid().unwrap())
    );
    assert_eq!((phase(&pod), exit_code(&pod)), ("Failed", 3));
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("standalone"));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashing_container_backs_off() {
    let machine = Machine::new();
    let node = machine.node();
    let main =
        json!({"name": "main", "image": "any", "command": ["bash", "-c", "echo run; exit 7"]});
    machine.create("pod", json!({"containers": [main]})).await;
    let pod = machine.wait("pod", waits_for("CrashLoopBackOff")).await;
    let status = container(&pod);
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 7);
    assert_eq!(status.restart_count, 1);
    assert_eq!(phase(&pod), "Running");
    assert_eq!(machine.log("pod", "main"), "run\n");
    machine.delete("pod").await;
    node.stop().await;
}

#[tokio::test]
async fn termination_message_is_reported() {
    let machine = Machine::new();
    let node = machine.node();
    let pod = machine
        .once("told", "echo -n no shell > /dev/termination-log; exit 4")
        .await;
    let end = container(&pod).state.unwrap().terminated.unwrap();
    assert_eq!(
        (end.exit_code, end.message.as_deref()),
        (4, Some("no shell"))
    );
    let silent = machine.once("silent", "exit 4").await;
    let end = container(&silent).state.unwrap().terminated.unwrap();
    assert_eq!(end.message, None);
    node.stop().await;
}
