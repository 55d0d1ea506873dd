//! Output of kubectl for Sandboxes.

use crds::Sandbox;
use crds::conditions::Reason;
use serde_json::{Value, json};

use crate::installation::IMAGE;
use crate::test_namespace::TestNamespace;
use tests::cli_tools::{apply, manifest, try_kubectl, wait};

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn columns_show_phase_pool_and_url() {
    let ns = TestNamespace::new("columns").await;
    pool(&ns);
    ns.apply("a", &json!({"pool": "p", "command": ["sleep", "infinity"]}));
    let status = ns.ready("a").await;
    let table = ns.kubectl("get sbx");
    assert_eq!(words(&table, 0), ["NAME", "PHASE", "READY", "POOL", "AGE"]);
    assert_eq!(words(&table, 1)[..4], ["a", "Running", "True", "p"]);
    let table = ns.kubectl("get sandboxes -o wide");
    assert_eq!(
        words(&table, 0)[5..],
        ["URL", "REASON", "NODE", "KEPT", "RESTORED", "INCARNATION"]
    );
    // Nothing is kept or restored yet.
    let last = [&*status.url.unwrap(), "Ready", "node", "1"];
    assert_eq!(words(&table, 1)[5..], last);
    let table = ns.kubectl("get sbxp -o wide");
    let columns = ["NAME", "IMAGE", "REPLICAS", "READY", "CLAIMED", "AGE"];
    assert_eq!(words(&table, 0), columns);
    let both = ns.kubectl("get openhands -o name");
    assert_eq!(
        both,
        "sandbox.openhands.dev/a\nsandboxpool.openhands.dev/p\n"
    );
}

fn words(table: &str, line: usize) -> Vec<&str> {
    let line = table.lines().nth(line).unwrap();
    line.split_whitespace().collect()
}

fn pool(ns: &TestNamespace) {
    let spec = json!({"replicas": 0, "template": {"image": IMAGE}});
    let object = manifest("SandboxPool", "p", &spec).to_string();
    apply(&object, &["-n", &ns.namespace]);
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn invalid_image_name_fails_at_once() {
    let ns = TestNamespace::new("wait").await;
    ns.apply("f", &json!({"image": "Bad:::Name", "command": ["true"]}));
    wait(&ns.namespace, "condition=Failed", "f");
    wait(&ns.namespace, "jsonpath={.status.phase}=Failed", "f");
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
    pool(&ns);
    ns.kubectl("scale sbxp/p --replicas=0 --current-replicas=0");
    let too_many = ["scale", "sbxp/p", "--replicas=10001", "-n", namespace];
    let refused = try_kubectl(&too_many, "").unwrap_err();
    let limit = "should be less than or equal to 10000";
    assert!(refused.contains(limit), "{refused}");
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/{namespace}/sandboxpools/p/scale");
    let scale = ns.kubectl(&format!("get --raw {path}"));
    let scale: Value = serde_json::from_str(&scale).unwrap();
    assert_eq!(scale["kind"], "Scale");

    // A template is not written to.
    let status = |field: &str| ns.kubectl(&format!("get sbxp/p -o jsonpath={{.status{field}}}"));
    assert_eq!(status(""), "");
    ns.kubectl("scale sbxp/p --replicas=2");
    ns.kubectl("wait --for=condition=Ready sbxp/p --timeout=2m");
    let table = ns.kubectl("get sbxp");
    assert_eq!(
        words(&table, 1)[..5],
        ["p", IMAGE, "2", "2", "0"],
        "{table}"
    );

    let script = "echo $GREETING >/tmp/greeting; exec sleep infinity";
    let spec = json!({"pool": "p", "command": ["sh", "-c", script],
        "env": [{"name": "GREETING", "value": "hello"}]});
    let sandbox = manifest("Sandbox", "claims", &spec).to_string();
    apply(&sandbox, &["-n", namespace]);
    let claimed = ns.ready("claims").await;
    let pod = claimed.pod_name.clone().unwrap();
    assert!(claimed.warm && pod.starts_with("p-"), "{claimed:?}");
    assert_eq!(ns.exec(&pod, "cat /tmp/greeting"), "hello");
    ns.kubectl("wait --for=jsonpath={.status.claimed}=1 sbxp/p");
    ns.kubectl("wait --for=jsonpath={.status.ready}=2 sbxp/p --timeout=2m");

    ns.kubectl("scale sbxp/p --replicas=0");
    ns.kubectl("wait --for=jsonpath={.status.ready}=0 sbxp/p");
    assert_eq!(status(".conditions"), "[]");
    ns.kubectl("delete sbxp/p");
    assert_eq!(ns.exec(&pod, "cat /tmp/greeting"), "hello");
}
