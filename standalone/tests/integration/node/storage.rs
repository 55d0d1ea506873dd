//! Volumes: contents, lifetime and errors.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::ResourceExt as _;
use kube::runtime::wait::Condition as _;
use serde_json::json;

use super::harness::{
    Machine, container, ended, eventually, exit_code, running, self_exe, started, waits_for,
};

#[tokio::test(flavor = "multi_thread")]
async fn claim_outlives_pods_until_deleted() {
    let (machine, node) = started();
    let spec = |restart_policy: &str, script: &str| {
        json!({
            "restartPolicy": restart_policy, "terminationGracePeriodSeconds": 60,
            "securityContext": {"runAsUser": 1000},
            "containers": [{"name": "main", "image": "any", "command": ["bash", "-c", script],
                "volumeMounts": [{"name": "work", "mountPath": "/workspace"}]}],
            "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}],
        })
    };
    // The Pod waits for its claim.
    let first = "trap 'echo asked > /workspace/file; exit 0' TERM; echo > /workspace/ready; \
        sleep 1000 & wait";
    machine.create("pod", spec("Always", first)).await;
    let claim = json!({"metadata": {"name": "work"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let claim = machine.make::<PersistentVolumeClaim>(claim).await;
    machine.wait("pod", running).await;
    let directory = machine.path("volumes").join(claim.uid().unwrap());
    eventually("the trap is set", || directory.join("ready").exists()).await;
    machine.delete::<Pod>("pod").await;
    let written = std::fs::read_to_string(directory.join("file")).unwrap();
    assert_eq!(written, "asked\n");

    let second = spec("Never", "cat /workspace/file");
    machine.create("pod", second).await;
    machine.wait("pod", ended).await;
    assert_eq!(machine.log("pod"), "asked\n");
    let claims = machine.all::<PersistentVolumeClaim>();
    let bound = claims.get("work").await.unwrap().status.unwrap();
    assert_eq!(bound.phase.as_deref(), Some("Bound"));
    assert_eq!(bound.capacity.unwrap()["storage"].0, "1Gi");

    machine.delete::<Pod>("pod").await;
    machine.delete::<PersistentVolumeClaim>("work").await;
    eventually("the volume is removed", || !directory.exists()).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configmap_and_secret_become_files_and_variables() {
    let (machine, node) = started();
    let secret = json!({"metadata": {"name": "secret"}, "data": {"key": "dmFsdWU="}});
    machine.make::<Secret>(secret).await;
    let map = json!({"metadata": {"name": "map"}, "data": {"a": "1", "b": "2"}});
    machine.make::<ConfigMap>(map).await;
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
    let log = machine.log("pod");
    assert_eq!(exit_code(&pod), 0, "{log}");
    assert!(log.starts_with("value2\nvalue 1\n400\n"), "{log}");
    assert!(log.ends_with("refused\n"), "{log}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_start_reports_reason_without_affecting_other_pods() {
    let machine = Machine::new();
    let node = machine.node_with(|config| config.images.host_fallback = false);
    let executor = "localhost/sandbox-executor:dev";
    let key = json!({"secretKeyRef": {"name": "absent", "key": "a"}});
    let secret = json!([{"name": "A", "valueFrom": key}]);
    let host = json!([{"name": "etc", "hostPath": {"path": "/etc"}}]);
    let nothing = || json!([]);
    let unreachable = ("ErrImagePull", "127.0.0.1:1/none:1: cannot connect");
    let malformed = ("InvalidImageName", "couldn't parse image name");
    let unconfigured = ("CreateContainerConfigError", "secret \"absent\" not found");
    let unsupported = (
        "ContainerCreating",
        "hostPath \"/etc\" is refused by this node",
    );
    for (image, env, volumes, (reason, message)) in [
        ("127.0.0.1:1/none:1", nothing(), nothing(), unreachable),
        ("No Name", nothing(), nothing(), malformed),
        (executor, secret, nothing(), unconfigured),
        (executor, nothing(), host, unsupported),
    ] {
        let main = json!({"name": "main", "image": image, "env": env, "command": ["true"]});
        let name = reason.to_lowercase();
        let spec = json!({"containers": [main], "volumes": volumes});
        machine.create(&name, spec).await;
        let is_reported = |pod: Option<&Pod>| {
            let state = pod.filter(|pod| waits_for(reason).matches_object(Some(pod)));
            let waiting = state.and_then(|pod| container(pod).state?.waiting?.message);
            waiting.is_some_and(|text| text.contains(message))
        };
        machine.wait(&name, is_reported).await;
    }
    let good = json!({"image": executor, "command": ["/sandbox-executor", "--version"]});
    machine.create_once("good", good).await;
    machine.wait("good", ended).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unpacked_image_is_copied_for_each_pod() {
    let machine = Machine::new();
    let image = tempfile::tempdir().unwrap();
    for directory in ["bin", "etc"] {
        std::fs::create_dir(image.path().join(directory)).unwrap();
    }
    std::fs::copy(self_exe(), image.path().join("bin/tool")).unwrap();
    let node = machine.node_with(|config| {
        let root = image.path().to_owned();
        config.images.directories.insert("tool:1".into(), root);
    });
    let main = json!({
        "image": "tool:1", "workingDir": "/made",
        "command": ["tool", "exec-as", "--cwd", "/made/too", "--", "/bin/tool", "--help"],
    });
    machine.create_once("pod", main).await;
    let pod = machine.wait("pod", ended).await;
    assert_eq!(exit_code(&pod), 0, "{}", machine.log("pod"));
    assert!(!image.path().join("made").exists());
    assert!(!image.path().join("etc/hosts").exists());
    node.stop().await;
}
