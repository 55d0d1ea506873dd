//! Faults, and the check that each of them fails.

use serde_json::{Value, json};

use crate::installation::{NAMESPACE as OWN, SANDBOXES, feed, kubectl, must, pair};

/// Change of an object: kind, name, namespace of sandboxes or not, and a patch: of JSON if it
/// is a list; the name of a certificate; empty deletes.
pub(crate) type Fault = (&'static str, &'static str, &'static str, &'static str);

const CLUSTER: &str = "";

pub(crate) const FAULTS: [(&str, Fault); 27] = [
    ("crds", ("crd", "imagebuilds.openhands.dev", CLUSTER, "")),
    (
        "crds",
        (
            "crd",
            "sandboxpools.openhands.dev",
            CLUSTER,
            r#"[{"op":"replace","path":"/spec/versions/0/served","value":false}]"#,
        ),
    ),
    (
        "controller",
        (
            "deployment",
            "sandbox-operator-controller",
            OWN,
            r#"{"spec":{"replicas":0}}"#,
        ),
    ),
    (
        "gateway",
        (
            "deployment",
            "sandbox-operator-gateway",
            OWN,
            r#"{"spec":{"replicas":0}}"#,
        ),
    ),
    ("lease", ("lease", "sandbox-operator-controller", OWN, "")),
    (
        "lease",
        (
            "lease",
            "sandbox-operator-controller",
            OWN,
            r#"{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}"#,
        ),
    ),
    (
        "rbac",
        (
            "rolebinding",
            "sandbox-operator-controller-sandboxes",
            SANDBOXES,
            "",
        ),
    ),
    ("rbac", ("rolebinding", "sandbox-operator-gateway", OWN, "")),
    ("root-key", ("secret", "sandbox-operator-root-key", OWN, "")),
    (
        "root-key",
        (
            "secret",
            "sandbox-operator-root-key",
            OWN,
            r#"{"data":{"key":"c2hvcnQ="}}"#,
        ),
    ),
    (
        "api-keys",
        (
            "secret",
            "sandbox-api-keys",
            OWN,
            r#"{"data":{"keys.json":"e30="}}"#,
        ),
    ),
    (
        "namespace",
        (
            "deployment",
            "sandbox-operator-gateway",
            OWN,
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"gateway","env":[{"name":"SANDBOX_NAMESPACE","value":"none"}]}]}}}}"#,
        ),
    ),
    (
        "quota",
        (
            "resourcequota",
            "limits",
            SANDBOXES,
            r#"{"spec":{"hard":{"pods":"0"}}}"#,
        ),
    ),
    (
        "quota",
        (
            "resourcequota",
            "limits",
            SANDBOXES,
            r#"{"spec":{"hard":{"limits.cpu":"1500m"}}}"#,
        ),
    ),
    (
        "limit-ranges",
        (
            "limitrange",
            "limits",
            SANDBOXES,
            r#"{"spec":{"limits":[{"type":"Container","max":{"cpu":"1"}}]}}"#,
        ),
    ),
    (
        "probes",
        (
            "configmap",
            "sandbox-operator-cluster-probes",
            OWN,
            r#"{"data":{"user_namespaces.doctor":"none"}}"#,
        ),
    ),
    (
        "http-route",
        (
            "httproute",
            "sandbox-operator",
            OWN,
            r#"[{"op":"replace","path":"/status/parents/0/conditions/0/status","value":"False"}]"#,
        ),
    ),
    ("storage", ("storageclass", "doctor", CLUSTER, "")),
    (
        "network-policies",
        ("networkpolicy", "sandbox-operator-sandboxes", SANDBOXES, ""),
    ),
    (
        "service",
        ("endpointslice", "sandbox-operator-gateway-1", OWN, ""),
    ),
    ("runtime-class", ("runtimeclass", "doctor", CLUSTER, "")),
    (
        "certificates",
        (
            "secret",
            "doctor-tls",
            OWN,
            r#"{"data":{"tls.key":"bm9uZQ=="}}"#,
        ),
    ),
    ("certificates", ("secret", "doctor-tls", OWN, "expired")),
    ("certificates", ("secret", "doctor-tls", OWN, "other")),
    ("certificates", ("secret", "doctor-tls", OWN, "")),
    (
        "ingress",
        (
            "ingress",
            "sandbox-operator",
            OWN,
            r#"[{"op":"replace","path":"/spec/rules/0/http/paths/0/backend/service/name","value":"none"}]"#,
        ),
    ),
    (
        "nodes",
        (
            "node",
            "fake-1",
            CLUSTER,
            r#"{"spec":{"unschedulable":true}}"#,
        ),
    ),
];

/// Makes a fault. Returns the object as it was, to restore it.
pub(crate) fn break_it((kind, name, namespace, patch): Fault) -> Value {
    let at = |verb: &str, more: &[&str]| {
        let mut args = vec![verb, kind, name];
        if !namespace.is_empty() {
            args.extend(["-n", namespace]);
        }
        args.extend(more);
        kubectl(&args)
    };
    let before: Value = serde_json::from_str(&at("get", &["-o", "json"])).unwrap();
    match patch {
        "" => at("delete", &["--wait=true"]),
        list if list.starts_with('[') => at("patch", &["--type=json", "-p", list]),
        "expired" | "other" => {
            let patch = json!({"data": pair(patch)}).to_string();
            at("patch", &["--type=strategic", "-p", &patch])
        }
        merge => at("patch", &["--type=strategic", "-p", merge]),
    };
    before
}

pub(crate) fn restore(object: &Value) {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in [
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        metadata.remove(field);
    }
    // No controller writes that of an HTTPRoute again.
    if object["kind"] != "HTTPRoute" {
        object.as_object_mut().unwrap().remove("status");
    }
    let text = object.to_string();
    // An apply would keep added fields; a replacement removes them.
    let replaced = feed("kubectl", &["replace", "-f", "-"], &text);
    if !replaced.status.success() {
        must(&feed("kubectl", &["create", "-f", "-"], &text));
    }
}
