//! Output of kubectl for Sandboxes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::installation::IMAGE;
use crate::manifests::{apply, pipe};
use crate::test_namespace::TestNamespace;
use tests::cli_tools::{kubectl, kubectl_fails};

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn columns_show_what_matters() {
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
    assert_eq!(
        words(&table, 1)[5..],
        [&status.url.unwrap(), "Ready", "node"]
    );
    let table = kubectl(&["get", "sbxp", "-n", namespace, "-o", "wide"]);
    assert_eq!(words(&table, 0), ["NAME", "IMAGE", "WARM", "AGE"]);
    let both = kubectl(&["get", "openhands", "-n", namespace, "-o", "name"]);
    assert_eq!(
        both,
        "sandbox.openhands.dev/a\nsandboxpool.openhands.dev/p\n"
    );
}

fn words(table: &str, line: usize) -> Vec<&str> {
    table
        .lines()
        .nth(line)
        .unwrap()
        .split_whitespace()
        .collect()
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
    ns.apply(
        "d",
        &json!({"command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}}),
    );
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
    let phase = ["--for=jsonpath={.status.phase}=Failed", "sandbox/f"];
    kubectl(&[&["wait", "-n", namespace], &phase[..]].concat());
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pools_scale() {
    let ns = TestNamespace::new("scale").await;
    let namespace = ns.namespace.as_str();
    pool(namespace, 0);
    kubectl(&[
        "scale",
        "sbxp/p",
        "--replicas=0",
        "--current-replicas=0",
        "-n",
        namespace,
    ]);
    let refused = kubectl_fails(&["scale", "sbxp/p", "--replicas=10001", "-n", namespace]);
    assert!(
        refused.contains("should be less than or equal to 10000"),
        "{refused}"
    );
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
    assert!(
        described.contains("replicas and rollout have no effect"),
        "{described}"
    );
    let table = kubectl(&["get", "sbxp", "-n", namespace]);
    assert_eq!(words(&table, 1)[..3], ["p", IMAGE, "False"], "{table}");
    let path = "jsonpath={.status.conditions}";
    kubectl(&["scale", "sbxp/p", "--replicas=0", "-n", namespace]);
    let gone = "--for=jsonpath={.status.observedGeneration}=3";
    kubectl(&["wait", gone, "sbxp/p", "-n", namespace]);
    let left = kubectl(&["get", "sbxp/p", "-n", namespace, "-o", path]);
    assert_eq!(left, "[]");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn every_field_is_explained() {
    let _scene = TestNamespace::of_gateway().await;
    for kind in ["sandbox", "sandboxpool"] {
        let tree = kubectl(&["explain", kind, "--recursive"]);
        assert!(tree.contains("status"), "{tree}");
        for path in objects(&tree) {
            let text = kubectl(&["explain", &format!("{kind}.{path}")]);
            assert!(!text.contains("<no description>"), "{path}: {text}");
            assert!(!text.contains("<empty>"), "{path}: {text}");
        }
    }
}

/// Paths of spec and status and of all objects in them, whose fields `kubectl explain` lists.
fn objects(tree: &str) -> BTreeSet<String> {
    let (_, fields) = tree.split_once("FIELDS:").unwrap();
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut objects = BTreeSet::new();
    for line in fields.lines().filter(|line| line.contains('\t')) {
        let name = line.split_whitespace().next().unwrap();
        let depth = line.len() - line.trim_start().len();
        open.retain(|(above, _)| *above < depth);
        let parent: Vec<_> = open.iter().map(|(_, name)| *name).collect();
        if matches!(parent.first(), Some(&("spec" | "status"))) {
            objects.insert(parent.join("."));
        }
        open.push((depth, name));
    }
    assert!(objects.len() > 3, "{tree}");
    objects
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn unknown_and_wrong_fields_are_refused() {
    let ns = TestNamespace::new("strict").await;
    let manifest = |spec: Value| {
        json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"name": "x", "namespace": ns.namespace}, "spec": spec,
        })
    };
    let create = ["create", "--validate=strict", "-f", "-"];
    let dry = ["apply", "--dry-run=server", "-f", "-"];
    for (spec, complaint) in [
        (
            json!({"image": "a", "imagee": "b"}),
            r#"unknown field "spec.imagee""#,
        ),
        (
            json!({"command": ["true"]}),
            "image is required unless pool is set",
        ),
        (
            json!({"image": "a", "state": "Asleep"}),
            r#"supported values: "Running", "Paused", "Stopped""#,
        ),
        (
            json!({"image": "a", "resourceFactor": 0}),
            "resourceFactor must be greater than 0",
        ),
        (
            json!({"image": "a", "workingDir": "here"}),
            "spec.workingDir",
        ),
        (
            json!({"image": "a", "ports": [{"name": "a", "port": 0}]}),
            "spec.ports[0].port",
        ),
        (
            json!({"image": "a", "lifecycle": {"idleTimeout": "soon"}}),
            "spec.lifecycle.idleTimeout",
        ),
    ] {
        let (created, said) = pipe(&create, &manifest(spec.clone()));
        assert!(!created && said.contains(complaint), "{spec}: {said}");
        let (_, said) = pipe(&dry, &manifest(spec.clone()));
        assert!(said.contains(complaint), "{spec}: {said}");
    }
    let (valid, said) = pipe(&dry, &manifest(json!({"image": "a"})));
    assert!(valid && said.contains("created (server dry run)"), "{said}");
    let left = kubectl(&["get", "sbx", "-n", &ns.namespace, "-o", "name"]);
    assert_eq!(left, "");
}
