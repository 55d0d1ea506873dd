//! Phases and statuses from Pending to termination.

use kube::ResourceExt as _;
use serde_json::json;

use super::harness::{ended, exit_code, phase, started, termination};

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
