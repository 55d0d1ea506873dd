//! Volumes: contents, lifetime and errors.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::harness::{Machine, WAIT_TIMEOUT, container, ended, exit_code, running, waits_for};

async fn claim(machine: &Machine, name: &str) -> PersistentVolumeClaim {
    let claim = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let claim = serde_json::from_value(claim).unwrap();
    machine
        .claims()
        .create(&PostParams::default(), &claim)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_outlives_pods_until_deleted() {
    let machine = Machine::new();
    let node = machine.node();
    let spec = |script: &str| {
        json!({
            "terminationGracePeriodSeconds": 60,
            "securityContext": {"runAsUser": 1000},
            "containers": [{"name": "main", "image": "any", "command": ["bash", "-c", script],
                "volumeMounts": [{"name": "work", "mountPath": "/workspace"}]}],
            "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}],
        })
    };
    // The Pod waits for its claim.
    let first = "trap 'echo asked > /workspace/file; exit 0' TERM; echo > /workspace/ready; \
        while true; do read -t 1 < <(:) ; done";
    machine.create("pod", spec(first)).await;
    let uid = claim(&machine, "work").await.uid().unwrap();
    machine.wait("pod", running).await;
    let directory = machine.path("volumes").join(&uid);
    let trapped = async {
        while !directory.join("ready").exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, trapped).await.unwrap();
    machine.delete("pod").await;
    assert_eq!(
        std::fs::read_to_string(directory.join("file")).unwrap(),
        "asked\n"
    );

    let mut again = spec("cat /workspace/file");
    again["restartPolicy"] = json!("Never");
    machine.create("pod", again).await;
    machine.wait("pod", ended).await;
    assert_eq!(machine.log("pod", "main"), "asked\n");
    let bound = machine.claims().get("work").await.unwrap().status.unwrap();
    assert_eq!(bound.phase.as_deref(), Some("Bound"));
    assert_eq!(bound.capacity.unwrap()["storage"].0, "1Gi");

    machine.delete("pod").await;
    machine
        .claims()
        .delete("work", &DeleteParams::default())
        .await
        .unwrap();
    let gone = await_condition(machine.claims(), "work", conditions::is_deleted(&uid));
    tokio::time::timeout(WAIT_TIMEOUT, gone)
        .await
        .unwrap()
        .unwrap();
    let removed = async {
        while directory.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, removed).await.unwrap();
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configmap_and_secret_become_files_and_variables() {
    let machine = Machine::new();
    let node = machine.node();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "secret"}, "data": {"key": "dmFsdWU="},
    }))
    .unwrap();
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "map"}, "data": {"a": "1", "b": "2"},
    }))
    .unwrap();
    let secrets: Api<Secret> = Api::namespaced(machine.client(), "default");
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(machine.client(), "default");
    maps.create(&PostParams::default(), &map).await.unwrap();
    let script = "cat /secret/key /map/sub/b; echo; echo $KEY $PRE_a; stat -c %a /secret/key; \
        echo x > /secret/key || echo refused";
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "any", "command": ["bash", "-c", script],
            "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "secret",
                "key": "key"}}}],
            "envFrom": [{"prefix": "PRE_", "configMapRef": {"name": "map"}}],
            "volumeMounts": [{"name": "secret", "mountPath": "/secret", "readOnly": true},
                {"name": "map", "mountPath": "/map"}]}],
        "volumes": [{"name": "secret", "secret": {"secretName": "secret", "defaultMode": 256}},
            {"name": "map", "configMap": {"name": "map", "items": [{"key": "b",
                "path": "sub/b"}]}}],
    });
    machine.create("pod", spec).await;
    let pod = machine.wait("pod", ended).await;
    let log = machine.log("pod", "main");
    assert_eq!(exit_code(&pod), 0, "{log}");
    assert!(
        log.starts_with("value2\nvalue 1\n400\n") && log.ends_with("refused\n"),
        "{log}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_start_reports_reason_without_affecting_other_pods() {
    let machine = Machine::new();
    let node = machine.node_with(|config| config.images.host_fallback = false);
    let main = json!({"name": "main", "image": "registry/none:1", "command": ["true"]});
    machine.create("image", json!({"containers": [main]})).await;
    machine.wait("image", waits_for("ErrImagePull")).await;
    let nameless = json!({"name": "main", "image": "No Name", "command": ["true"]});
    machine
        .create("name", json!({"containers": [nameless]}))
        .await;
    machine.wait("name", waits_for("InvalidImageName")).await;
    let lacking = json!({
        "name": "main", "image": "localhost/sandbox-executor:dev",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "a"}}}],
    });
    machine
        .create("lacks", json!({"containers": [lacking]}))
        .await;
    let pod = machine
        .wait("lacks", waits_for("CreateContainerConfigError"))
        .await;
    let waiting = container(&pod).state.unwrap().waiting.unwrap();
    assert_eq!(
        waiting.message.as_deref(),
        Some("secret \"absent\" not found")
    );
    let hosts = json!({
        "containers": [main], "volumes": [{"name": "etc", "hostPath": {"path": "/etc"}}],
    });
    machine.create("host", hosts).await;
    machine.wait("host", waits_for("ContainerCreating")).await;
    let shell = json!({"name": "main", "image": "localhost/sandbox-executor:dev",
        "command": ["/sandbox-executor", "--version"]});
    machine
        .create(
            "good",
            json!({"restartPolicy": "Never", "containers": [shell]}),
        )
        .await;
    machine.wait("good", ended).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_pod_is_skipped() {
    let machine = Machine::new();
    let pods: Api<DynamicObject> =
        Api::namespaced_with(machine.client(), "default", &ApiResource::erase::<Pod>(&()));
    let malformed: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"},
        "spec": {"containers": "nonsense"},
    }))
    .unwrap();
    let created = pods.create(&PostParams::default(), &malformed).await;
    let node = machine.node();
    machine.once("good", "true").await;
    // Either outcome is valid; a malformed stored Pod must not stop the node.
    assert!(created.is_err() || pods.get("bad").await.is_ok());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unpacked_image_is_copied_for_each_pod() {
    let machine = Machine::new();
    let image = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(image.path().join("bin")).unwrap();
    std::fs::create_dir_all(image.path().join("etc")).unwrap();
    std::fs::copy(super::harness::self_exe(), image.path().join("bin/tool")).unwrap();
    let node = machine.node_with(|config| {
        config
            .images
            .directories
            .insert("tool:1".into(), image.path().to_owned());
    });
    let main = json!({
        "name": "main", "image": "tool:1", "workingDir": "/made",
        "command": ["tool", "exec-as", "--cwd", "/made/too", "--", "/bin/tool", "--help"],
    });
    machine
        .create(
            "pod",
            json!({"restartPolicy": "Never", "containers": [main]}),
        )
        .await;
    let pod = machine.wait("pod", ended).await;
    assert_eq!(exit_code(&pod), 0, "{}", machine.log("pod", "main"));
    assert!(!image.path().join("made").exists());
    assert!(!image.path().join("etc/hosts").exists());
    node.stop().await;
}
