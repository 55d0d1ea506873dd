//! Output of kubectl for Sandboxes.

use crds::Sandbox;
use crds::conditions::Reason;
use serde_json::{Value, json};

use crate::installation::IMAGE;
use crate::manifests::apply;
use crate::test_namespace::{TestNamespace, sleeper};
use tests::cli_tools::{kubectl, kubectl_fails};

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn columns_show_phase_pool_and_url() {
    let ns = TestNamespace::new("columns").await;
    let namespace = ns.namespace.as_str();
    pool(namespace, 0);
    ns.apply("a", &json!({"pool": "p", "command": ["sleep", "infinity"]}));
    let status = ns.ready("a").await;
    let table = kubectl(&["get", "sbx", "-n", namespace]);
    assert_eq!(words(&table, 0), ["NAME", "PHASE", "READY", "POOL", "AGE"]);
    assert_eq!(words(&table, 1)[..4], ["a", "Running", "True", "p"]);
    let table = kubectl(&["get", "sandboxes", "-n", namespace, "-o", "wide"]);
    assert_eq!(words(&table, 0)[5..], ["URL", "REASON", "NODE"]);
    let last = [&*status.url.unwrap(), "Ready", "node"];
    assert_eq!(words(&table, 1)[5..], last);
    let table = kubectl(&["get", "sbxp", "-n", namespace, "-o", "wide"]);
    assert_eq!(words(&table, 0), ["NAME", "IMAGE", "WARM", "AGE"]);
    let both = kubectl(&["get", "openhands", "-n", namespace, "-o", "name"]);
    assert_eq!(
        both,
        "sandbox.openhands.dev/a\nsandboxpool.openhands.dev/p\n"
    );
}

fn words(table: &str, line: usize) -> Vec<&str> {
    let line = table.lines().nth(line).unwrap();
    line.split_whitespace().collect()
}

fn pool(namespace: &str, replicas: u32) {
    apply(&json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxPool",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"replicas": replicas, "template": {"image": IMAGE}},
    }));
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn describe_tells_the_story() {
    let ns = TestNamespace::new("describe").await;
    let namespace = ns.namespace.as_str();
    ns.apply("d", &sleeper());
    ns.ready("d").await;
    ns.patch("d", json!({"state": "Paused"})).await;
    for reason in ["Ready", "Paused"] {
        ns.wait_for_event("d", reason).await;
    }
    let text = kubectl(&["describe", "sbx", "d", "-n", namespace]);
    let (_, events) = text.split_once("Events:").unwrap();
    for told in [
        "the sandbox is ready on node node",
        "the Pod is deleted, the workspace is kept: as requested",
        "sandbox-operator",
    ] {
        assert!(events.contains(told), "{told}: {text}");
    }
    // One line for each thing that happened, and no warning.
    assert_eq!(events.trim().lines().count(), 4, "{text}");
    assert!(!events.contains("Warning"), "{text}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn wait_knows_the_conditions() {
    let ns = TestNamespace::new("wait").await;
    let namespace = ns.namespace.as_str();
    let wait = |what: &str, name: &str| {
        let condition = format!("--for=condition={what}");
        let object = format!("sandbox/{name}");
        kubectl(&[
            "wait",
            &condition,
            &object,
            "-n",
            namespace,
            "--timeout=90s",
        ]);
    };
    ns.apply("w", &json!({"command": ["sleep", "infinity"]}));
    wait("Ready", "w");
    ns.patch("w", json!({"state": "Paused"})).await;
    wait("Paused", "w");
    wait("Ready=false", "w");
    ns.apply("f", &json!({"image": "Bad:::Name", "command": ["true"]}));
    wait("Failed", "f");
    let phase = "--for=jsonpath={.status.phase}=Failed";
    kubectl(&["wait", "-n", namespace, phase, "sandbox/f"]);
    // A name that is none is given up at once.
    let status = ns.get::<Sandbox>("f").await.status.unwrap();
    assert_eq!(status.reason, Some(Reason::InvalidImageName));
    let message = status.message.unwrap();
    assert!(message.starts_with("InvalidImageName"), "{message}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pools_scale() {
    let ns = TestNamespace::new("scale").await;
    let namespace = ns.namespace.as_str();
    pool(namespace, 0);
    let same = ["--replicas=0", "--current-replicas=0"];
    kubectl(&[&["scale", "sbxp/p", "-n", namespace], &same[..]].concat());
    let refused = kubectl_fails(&["scale", "sbxp/p", "--replicas=10001", "-n", namespace]);
    let limit = "should be less than or equal to 10000";
    assert!(refused.contains(limit), "{refused}");
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/{namespace}/sandboxpools/p/scale");
    let scale: Value = serde_json::from_str(&kubectl(&["get", "--raw", &path])).unwrap();
    assert_eq!(scale["kind"], "Scale");

    // A template is not written to. What asks for Pods is told that there are none.
    let pool = || kubectl(&["get", "sbxp/p", "-n", namespace, "-o", "jsonpath={.status}"]);
    assert_eq!(pool(), "");
    kubectl(&["scale", "sbxp/p", "--replicas=2", "-n", namespace]);
    let condition = "--for=condition=Warm=false";
    kubectl(&["wait", condition, "sbxp/p", "-n", namespace]);
    let described = kubectl(&["describe", "sbxp/p", "-n", namespace]);
    let told = "replicas and rollout have no effect";
    assert!(described.contains(told), "{described}");
    let table = kubectl(&["get", "sbxp", "-n", namespace]);
    assert_eq!(words(&table, 1)[..3], ["p", IMAGE, "False"], "{table}");
    let path = "jsonpath={.status.conditions}";
    kubectl(&["scale", "sbxp/p", "--replicas=0", "-n", namespace]);
    let gone = "--for=jsonpath={.status.observedGeneration}=3";
    kubectl(&["wait", gone, "sbxp/p", "-n", namespace]);
    let left = kubectl(&["get", "sbxp/p", "-n", namespace, "-o", path]);
    assert_eq!(left, "[]");
}
