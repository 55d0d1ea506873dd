//! Objects that a test installs, and those that the operator and controllers of the cluster write.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "sandbox-operator";
pub(crate) const SANDBOXES: &str = "sandboxes";
const NAME: &str = "sandbox-operator";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

pub(crate) fn install() {
    for namespace in [NAMESPACE, SANDBOXES] {
        kubectl(&["create", "namespace", namespace]);
    }
    let crds = run(
        "helm",
        &[
            "template",
            "crds",
            &format!("{ROOT}/charts/sandbox-operator-crds"),
        ],
    );
    apply(&crds);
    apply(&http_routes().to_string());
    kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd/httproutes.gateway.networking.k8s.io",
    ]);
    let values = json!({
        "baseUrl": "https://localhost", "urlForm": "path",
        "controller": {"replicas": 1}, "gateway": {"replicas": 1},
        "sandboxes": {"namespace": SANDBOXES, "runtimeClass": "doctor", "quota": null},
        "ingress": {"enabled": true, "tlsSecret": "doctor-tls"},
        "httpRoute": {"enabled": true, "parentRefs": [{"name": "public"}]},
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), values.to_string()).unwrap();
    let values = format!("--values={}", file.path().display());
    let chart = format!("{ROOT}/charts/sandbox-operator");
    apply(&run(
        "helm",
        &[
            "template",
            NAME,
            &chart,
            "--no-hooks",
            "-n",
            NAMESPACE,
            &values,
        ],
    ));
    let root_key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let secret = |name: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
    };
    let records = json!([{"name": "default", "sha256": "00".repeat(32)}]);
    let record = json!({"works": true, "probedAt": "2026-01-01T00:00:00Z", "pod": "a"}).to_string();
    let items = [
        secret("sandbox-operator-root-key", json!({"key": root_key})),
        secret(
            "sandbox-api-keys",
            json!({"keys.json": STANDARD.encode(records.to_string())}),
        ),
        secret("doctor-tls", pair("valid")),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "sandbox-operator-gateway-1", "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": "sandbox-operator-gateway"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}]}),
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "doctor"}, "handler": "runc"}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "none",
            "metadata": {"name": "doctor", "annotations":
                {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "limits", "namespace": SANDBOXES},
            "spec": {"hard": {"pods": "10"}}}),
        json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "limits", "namespace": SANDBOXES},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "sandbox-operator-cluster-probes", "namespace": NAMESPACE},
            "data": {"user_namespaces.doctor": record, "root_overlays.doctor": record}}),
    ];
    apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    let parents = json!([{"parentRef": {"name": "public"}, "controllerName": "test/test",
        "conditions": [{"type": "Accepted", "status": "True"},
            {"type": "ResolvedRefs", "status": "True"}]}]);
    let status = json!({"status": {"parents": parents}}).to_string();
    let route = ["patch", "httproute", NAME, "-n", NAMESPACE];
    kubectl(&[&route[..], &["--type=merge", "-p", &status]].concat());
    for component in ["controller", "gateway"] {
        let name = format!("sandbox-operator-{component}");
        let status = r#"{"status":{"replicas":1,"readyReplicas":1,"availableReplicas":1}}"#;
        let object = ["patch", "deployment", &name, "-n", NAMESPACE];
        kubectl(
            &[
                &object[..],
                &["--subresource=status", "--type=merge", "-p", status],
            ]
            .concat(),
        );
    }
    // Other classes of the cluster would remain as a default.
    for class in kubectl(&["get", "storageclass", "-o", "name"]).lines() {
        if !class.ends_with("/doctor") {
            kubectl(&["delete", class]);
        }
    }
}

/// The resource of Gateway API without its schema. No controller serves it: the test writes the status.
fn http_routes() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "httproutes.gateway.networking.k8s.io", "annotations":
            {"api-approved.kubernetes.io": "unapproved, a copy of a test"}},
        "spec": {"group": "gateway.networking.k8s.io", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "HTTPRoute", "plural": "httproutes", "singular": "httproute"}}})
}

/// Certificate and key of a file name, as data of a Secret.
pub(crate) fn pair(name: &str) -> Value {
    let read = |ending: &str| {
        let path = format!("{ROOT}/client/cli/tests/certificates/{name}.{ending}");
        STANDARD.encode(std::fs::read(path).unwrap())
    };
    json!({"tls.crt": read("crt"), "tls.key": read("key")})
}

/// No controller runs: the test renews the lease.
pub(crate) fn write_lease() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "sandbox-operator-controller", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "test", "leaseDurationSeconds": 6,
            "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()}});
    apply(&lease.to_string());
}

fn apply(text: &str) {
    must(&feed(
        "kubectl",
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
        text,
    ));
}

pub(crate) fn kubectl(args: &[&str]) -> String {
    run("kubectl", args)
}

fn run(program: &str, args: &[&str]) -> String {
    must(&feed(program, args, ""))
}

pub(crate) fn must(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn feed(program: &str, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}
