//! Pods with user namespaces, as a controller with `--user-namespaces auto` finds out, on the node
//! with containerd 2 of `hack/test-cluster user_namespaces`.

use std::time::Duration;

use crds::Sandbox;
use crds::contract::persistence::RootMechanism;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};

use crate::installation::IMAGE;
use crate::persistence::best_mechanism;
use crate::session;
use crate::test_namespace::{TestNamespace, sleeper};
use tests::cli_tools::{apply, manifest};

/// Prints the first user of the node that a user of the container is mapped to.
const FIRST_UID: &str = "awk '{ print $2 }' /proc/self/uid_map";

/// The recipe for a root directory whose changes are on the volume.
const OVERLAY_ROOT: &str = r"
    set -eux
    awk '{ print $2 }' /proc/self/uid_map >/data/first-uid
    mkdir -p /data/.root/u /data/.root/w /data/.root/m
    mount -t overlay root -o lowerdir=/,upperdir=/data/.root/u,workdir=/data/.root/w,userxattr /data/.root/m
    cd /data/.root/m
    for directory in proc sys dev; do mount --rbind /$directory $directory; done
    mkdir -p old
    pivot_root . old
    umount -l /old
    [ ! -e /etc/added ] || echo again
    [ -e /etc/added ] || rm /etc/issue
    [ ! -e /etc/issue ]
    echo kept >/etc/added
    chown 1000:1000 /etc/added
";

/// Waits until the probe has shown that user namespaces work.
async fn wait_for_probe() {
    wait_for_answer("user_namespaces", "sandbox-user-namespace-probe").await;
}

/// Waits until the Pod of a probe has succeeded. Its record is beside the lease.
async fn wait_for_answer(key: &str, pod: &str) {
    let ns = TestNamespace::of_gateway().await;
    for _ in 0..600 {
        let found = ns.api::<ConfigMap>();
        let found = found
            .get_opt("sandbox-operator-cluster-probes")
            .await
            .unwrap();
        let data = found.and_then(|it| it.data).unwrap_or_default();
        if let Some(record) = data.get(key) {
            let record: Value = serde_json::from_str(record).unwrap();
            assert_eq!(record["works"], true, "{record}");
            let pods = ns.pods();
            let probe = pods.get_opt(pod).await.unwrap();
            assert!(probe.is_none());
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the probe does not end");
}

fn is_mapped(uid: &str) -> bool {
    uid.parse::<u64>().unwrap() >= 65536
}

fn is_set(pod: &Pod) -> bool {
    pod.spec.as_ref().unwrap().host_users == Some(false)
}

#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn both_profiles_have_user_namespaces() {
    wait_for_probe().await;
    let ns = TestNamespace::new("mapped").await;
    let mut spec = sleeper();
    spec["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 2000});
    ns.apply("restricted", &spec);
    ns.ready("restricted").await;
    assert!(is_set(&ns.get::<Pod>("restricted").await));
    assert!(is_mapped(&ns.exec("restricted", FIRST_UID)));
    // The groups of a container are those that it would have without a user namespace.
    let groups = ns.exec("restricted", "id -u; id -G; touch /workspace/file");
    assert!(
        groups.starts_with("1000\n") && groups.contains("2000"),
        "{groups}"
    );

    let _scene = TestNamespace::of_gateway().await;
    let session = session::start("mapped").await;
    let own = session.run(FIRST_UID).await;
    assert!(is_mapped(&own), "{own}");
    assert_ne!(own, ns.exec("restricted", FIRST_UID));
    let script = "sudo sh -c 'touch /etc/mine && stat -c %u /etc/mine'";
    assert_eq!(session.run(script).await, "0");
    session.stop().await;
}

#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn volume_keeps_its_owners_with_and_without_a_user_namespace() {
    wait_for_probe().await;
    let ns = TestNamespace::new("owners").await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "before"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}},
    });
    apply(&claim.to_string(), &["-n", &ns.namespace]);
    let write = "touch /v/0 /v/7; chown 7:8 /v/7; chmod 0600 /v/7; mkdir -m 0777 /v/all";
    assert!(!is_mapped(
        run_pod(&ns, "first", true, write).lines().next().unwrap()
    ));
    let owners = "stat -c '%n %u:%g %a' /v/*";
    let before = run_pod(&ns, "without", true, owners);
    let with = run_pod(&ns, "with", false, owners);
    assert!(is_mapped(with.lines().next().unwrap()), "{with}");
    let listed = |printed: &str| printed.split_once('\n').unwrap().1.to_owned();
    assert_eq!(listed(&before), listed(&with));
    run_pod(
        &ns,
        "writes",
        false,
        "echo more >>/v/7; touch /v/new; chown 9 /v/new",
    );
    let after = run_pod(&ns, "after", true, owners);
    assert!(after.contains("/v/new 9:0"), "{after}");
}

/// Runs a script in a Pod with the volume at `/v`. Returns what it printed after its first uid.
fn run_pod(ns: &TestNamespace, name: &str, host_users: bool, script: &str) -> String {
    let script = format!("{FIRST_UID}; {script}");
    let container = json!({
        "name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-euc", script],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "hostUsers": host_users, "restartPolicy": "Never", "containers": [container],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "before"}}],
        },
    });
    succeeded(ns, name, &pod)
}

/// Creates a Pod, waits until it has ended, and returns its log.
fn succeeded(ns: &TestNamespace, name: &str, pod: &Value) -> String {
    apply(&pod.to_string(), &["-n", &ns.namespace]);
    ns.kubectl(&format!(
        "wait --for=jsonpath={{.status.phase}}=Succeeded pod/{name} --timeout=60s"
    ));
    ns.kubectl(&format!("logs {name}"))
}

#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn overlay_root_is_kept_on_a_volume() {
    let ns = TestNamespace::new("overlay").await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}},
    });
    apply(&claim.to_string(), &["-n", &ns.namespace]);
    for (name, wanted) in [("first", ""), ("second", "again\n")] {
        let container = json!({
            "name": "c", "image": IMAGE, "imagePullPolicy": "Never",
            "command": ["sh", "-c", OVERLAY_ROOT],
            "securityContext": {
                "runAsUser": 0, "seccompProfile": {"type": "Unconfined"},
                "capabilities": {"add": ["SYS_ADMIN", "CHECKPOINT_RESTORE", "SYS_PTRACE"]},
            },
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/mnt"}],
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "hostUsers": false, "restartPolicy": "Never", "automountServiceAccountToken": false,
                "containers": [container],
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        });
        let log = succeeded(&ns, name, &pod);
        let printed: String = log.lines().filter(|line| !line.starts_with('+')).collect();
        assert_eq!(printed.trim_end(), wanted.trim_end(), "{log}");
    }
}

/// Other tests take the mechanism that the probe has found; with user namespaces it is this one.
#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn sandbox_has_its_root_in_an_overlay() {
    wait_for_probe().await;
    let ns = TestNamespace::of_gateway().await;
    assert_eq!(best_mechanism(&ns).await, RootMechanism::Overlay);
    let mut spec = sleeper();
    spec["workspace"] = json!({"size": "1Gi"});
    spec["persistence"] = "Root".into();
    ns.apply("in-an-overlay", &spec);
    let status = ns.ready("in-an-overlay").await;
    assert_eq!(status.root_mechanism, Some(RootMechanism::Overlay));
    let root = ns.exec("in-an-overlay", "awk '$5 == \"/\"' /proc/self/mountinfo");
    assert!(
        root.contains(" overlay ") && root.contains("userxattr"),
        "{root}"
    );
    ns.delete::<Sandbox>("in-an-overlay").await;
}

/// The node runs Pods of both classes alike, but the controller is told of one only.
#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn runtime_class_has_what_its_own_probes_have_shown() {
    for (probe, pod) in [
        ("user_namespaces", "sandbox-user-namespace-probe-listed"),
        ("root_overlays", "sandbox-root-overlay-probe-listed"),
    ] {
        wait_for_answer(&format!("{probe}.listed"), pod).await;
    }
    let ns = TestNamespace::new("of-classes").await;
    for (class, mechanism) in [
        ("listed", RootMechanism::Overlay),
        ("unlisted", RootMechanism::Archive),
    ] {
        let template = json!({
            "image": IMAGE, "runtimeClassName": class, "workspace": {"size": "1Gi"}, "persistence": "Root",
        });
        let pool = json!({"replicas": 1, "template": template});
        let pool = manifest("SandboxPool", class, &pool).to_string();
        apply(&pool, &["-n", &ns.namespace]);
        ns.kubectl(&format!(
            "wait --for=condition=Ready sbxp/{class} --timeout=2m"
        ));
        let mut cold = sleeper();
        for (name, value) in template.as_object().unwrap() {
            cold[name] = value.clone();
        }
        ns.apply(&format!("cold-{class}"), &cold);
        let warm = json!({"pool": class, "command": ["sleep", "infinity"]});
        let warm = manifest("Sandbox", &format!("warm-{class}"), &warm).to_string();
        apply(&warm, &["-n", &ns.namespace]);
        for kind in ["cold", "warm"] {
            let name = format!("{kind}-{class}");
            let status = ns.ready(&name).await;
            assert_eq!(status.warm, kind == "warm", "{name}");
            assert_eq!(status.root_mechanism, Some(mechanism), "{name}");
            let is_overlay = mechanism == RootMechanism::Overlay;
            let pod = status.pod_name.unwrap();
            assert_eq!(is_mapped(&ns.exec(&pod, FIRST_UID)), is_overlay, "{name}");
        }
        ns.kubectl(&format!(
            "delete sbxp/{class} sbx/cold-{class} sbx/warm-{class}"
        ));
    }
}

#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn resumed_sandbox_keeps_its_files() {
    wait_for_probe().await;
    let ns = TestNamespace::new("resumed").await;
    let mut spec = sleeper();
    spec["securityContext"] = json!({"runAsUser": 1000});
    ns.apply("s", &spec);
    ns.ready("s").await;
    ns.exec(
        "s",
        "echo kept >/workspace/file; chmod 0600 /workspace/file",
    );
    let first = ns.exec("s", FIRST_UID);
    ns.patch("s", json!({"state": "Paused"})).await;
    ns.paused("s").await;
    ns.patch("s", json!({"state": "Running"})).await;
    ns.ready("s").await;
    let kept = ns.exec("s", "cat /workspace/file; stat -c %u /workspace/file");
    assert_eq!(kept, "kept\n1000");
    assert!(is_mapped(&first) && is_mapped(&ns.exec("s", FIRST_UID)));
    let restarts = ns.get::<Sandbox>("s").await.status.unwrap().restarts;
    assert_eq!(restarts.count, 0);
}
