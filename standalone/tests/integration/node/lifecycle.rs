//! Phases and statuses from Pending to termination.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::harness::{container, ended, exit_code, phase, started, termination, waits_for};

#[tokio::test(flavor = "multi_thread")]
async fn pod_runs_init_containers_and_terminates() {
    let (machine, node) = started();
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
                echo -n no shell > /dev/termination-log; exit 3"]}],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    machine.create("pod", spec).await;
    let pod = machine.wait("pod", ended).await;
    let expected = format!("hello\n/new/place\n{}\npod\n", pod.uid().unwrap());
    assert_eq!(machine.log("pod"), expected);
    assert_eq!((phase(&pod), exit_code(&pod)), ("Failed", 3));
    assert_eq!(termination(&pod).message.as_deref(), Some("no shell"));
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("standalone"));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashing_container_backs_off() {
    let (machine, node) = started();
    let main =
        json!({"name": "main", "image": "any", "command": ["bash", "-c", "echo run; exit 7"]});
    machine.create("pod", json!({"containers": [main]})).await;
    let pod = machine.wait("pod", waits_for("CrashLoopBackOff")).await;
    let status = container(&pod);
    let last = status.last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.message), (7, None));
    assert_eq!(status.restart_count, 1);
    assert_eq!(phase(&pod), "Running");
    assert_eq!(machine.log("pod"), "run\n");
    machine.delete::<Pod>("pod").await;
    node.stop().await;
}
