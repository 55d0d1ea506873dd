//! CRDs on a real API server: it accepts them, and the cost of their rules is within its limits.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::json;

use crate::test_namespace::TestNamespace;
use tests::cli_tools::{apply, kubectl, manifest, try_kubectl};

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn api_server_accepts_the_schemas() {
    let ns = TestNamespace::of_gateway().await;
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let plurals = [
        "sandboxes",
        "sandboxsnapshots",
        "sandboxpools",
        "imagebuilds",
    ];
    for plural in plurals {
        let crd = crds.get(&format!("{plural}.openhands.dev")).await.unwrap();
        let conditions = crd.status.unwrap().conditions.unwrap_or_default();
        let state = |kind: &str| {
            let mut found = conditions.iter().filter(|c| c.type_ == kind);
            found.next().map(|c| c.status.clone())
        };
        for good in ["Established", "NamesAccepted"] {
            assert_eq!(state(good).as_deref(), Some("True"), "{plural} {good}");
        }
        // Neither a schema that is not structural, nor a rule that the server would not accept today.
        for bad in [
            "NonStructuralSchema",
            "KubernetesAPIApprovalPolicyConformant",
            "Terminating",
        ] {
            assert_ne!(state(bad).as_deref(), Some("True"), "{plural} {bad}");
        }
    }
    // Applying them once more is no change: what the server defaults is in the files.
    let apply = ["apply", "--server-side", "--dry-run=server"];
    let again = kubectl(&[&apply[..], &["-f", "manifests/crds"]].concat());
    assert_eq!(again.lines().count(), plurals.len(), "{again}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn largest_sandbox_is_within_the_cost_limits() {
    let ns = TestNamespace::new("large").await;
    let env: Vec<_> = (0..256)
        .map(|n| json!({"name": format!("V{n}"), "value": "x".repeat(1000)}))
        .collect();
    let ports: Vec<_> = (0..32)
        .map(|n| json!({"name": format!("p{n}"), "port": 20000 + n}))
        .collect();
    let long = "y".repeat(1000);
    let command: Vec<_> = (0..256).map(|n| format!("{n}{long}")).collect();
    let spec = json!({
        "env": env, "ports": ports, "command": command, "state": "Paused", "image": "z".repeat(512),
    });
    // As a server-side apply: the other form keeps a copy in an annotation, which has a limit of its own.
    let mut large = manifest("Sandbox", "large", &spec);
    apply(&large.to_string(), &["--server-side", "-n", &ns.namespace]);
    large["spec"]["command"][255] = "changed".into();
    apply(&large.to_string(), &["--server-side", "-n", &ns.namespace]);
    let session = r#"{"spec":{"session":{"tenant":"a","id":"b"}}}"#;
    let patch = ["patch", "sbx", "large", "--type=merge", "-p", session];
    let reason = try_kubectl(&[&patch[..], &["-n", &ns.namespace]].concat(), "").unwrap_err();
    assert!(reason.contains("session is immutable"), "{reason}");
}

/// A spec, and the complaint about it.
const REFUSED: &str = r#"
    {"image": "a", "imagee": "b"} | unknown field "spec.imagee"
    {"command": ["true"]} | image is required unless pool is set
    {"image": "a", "state": "Asleep"} | supported values: "Running", "Paused", "Stopped"
    {"image": "a", "persistence": "Everything"} | supported values: "Workspace", "Root", "Memory"
    {"image": "a", "resourceFactor": 0} | resourceFactor must be greater than 0
    {"image": "a", "workingDir": "here"} | spec.workingDir
    {"image": "a", "ports": [{"name": "a", "port": 0}]} | spec.ports[0].port
    {"image": "a", "lifecycle": {"idleTimeout": "soon"}} | spec.lifecycle.idleTimeout
    {"image": "a", "resources": {"limits": {"cpu": "much"}}} | spec.resources.limits.cpu: Invalid value: "much"
    {"image": "a", "resources": {"limits": {"ephemeral-storage": -1}}} | spec.resources.limits.ephemeral-storage: Invalid value: -1
    {"image": "a", "workspace": {"size": "10GB"}} | must be a quantity such as 10Gi
"#;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn unknown_fields_and_wrong_values_are_refused() {
    let ns = TestNamespace::new("strict").await;
    let apply = |spec: &str| {
        let object = manifest("Sandbox", "a", &serde_json::from_str(spec).unwrap());
        let strict = "apply --validate=strict --dry-run=server -f - -n";
        let args = strict.split(' ').chain([ns.namespace.as_str()]);
        try_kubectl(&args.collect::<Vec<_>>(), &object.to_string())
    };
    for row in REFUSED.trim().lines() {
        let (spec, complaint) = row.trim().split_once(" | ").unwrap();
        let said = apply(spec).unwrap_err();
        assert!(said.contains(complaint), "{spec}: {said}");
    }
    let good = r#"{"image": "a", "workspace": {"size": "1.5Gi"}, "resources": {"limits":
        {"cpu": "1500m", "memory": 4294967296, "ephemeral-storage": "+1e9"}}}"#;
    let said = apply(good).unwrap();
    assert!(said.contains("created (server dry run)"), "{said}");
}
