//! CRDs on a real API server: it accepts them, and the cost of their rules is within its limits.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::json;

use crate::manifests::pipe;
use crate::test_namespace::TestNamespace;
use tests::cli_tools::{kubectl, kubectl_fails};

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn api_server_accepts_the_schemas() {
    let ns = TestNamespace::of_gateway().await;
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    for plural in ["sandboxes", "sandboxpools"] {
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
    assert_eq!(again.lines().count(), 2, "{again}");
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
    let manifest = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
        "metadata": {"name": "large", "namespace": ns.namespace}, "spec": spec,
    });
    let apply = ["apply", "--server-side", "-f", "-"];
    let (applied, said) = pipe(&apply, &manifest);
    assert!(applied, "{said}");
    let mut changed = manifest;
    changed["spec"]["command"][255] = "changed".into();
    let (applied, said) = pipe(&apply, &changed);
    assert!(applied, "{said}");
    let session = r#"{"spec":{"session":{"tenant":"a","id":"b"}}}"#;
    let patch = ["patch", "sbx", "large", "--type=merge", "-p", session];
    let reason = kubectl_fails(&[&patch[..], &["-n", &ns.namespace]].concat());
    assert!(reason.contains("session is immutable"), "{reason}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn unknown_fields_and_wrong_values_are_refused() {
    let ns = TestNamespace::new("strict").await;
    let apply = |spec: &serde_json::Value| {
        let manifest = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"name": "a", "namespace": ns.namespace}, "spec": spec,
        });
        let strict = ["apply", "--validate=strict", "--dry-run=server", "-f", "-"];
        pipe(&strict, &manifest)
    };
    let limits = json!({"cpu": "much", "memory": "2Gi", "ephemeral-storage": -1});
    let amounts =
        json!({"image": "a", "workspace": {"size": "10GB"}, "resources": {"limits": limits}});
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
        (
            amounts.clone(),
            "spec.resources.limits.cpu: Invalid value: \"much\"",
        ),
        (
            amounts.clone(),
            "spec.resources.limits.ephemeral-storage: Invalid value: -1",
        ),
        (amounts, "must be a quantity such as 10Gi"),
    ] {
        let (applied, said) = apply(&spec);
        assert!(!applied && said.contains(complaint), "{spec}: {said}");
    }
    let limits = json!({"cpu": "1500m", "memory": 4_294_967_296_u64, "ephemeral-storage": "+1e9"});
    let good =
        json!({"image": "a", "workspace": {"size": "1.5Gi"}, "resources": {"limits": limits}});
    let (applied, said) = apply(&good);
    assert!(
        applied && said.contains("created (server dry run)"),
        "{said}"
    );
}
