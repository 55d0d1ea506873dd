//! CEL rules of the CRDs, evaluated locally.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::sync::LazyLock;

use crds::{ImageBuild, Sandbox};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube_cel::ValidationErrors;
use serde::Serialize;
use serde_json::{Value, json};

/// A sandbox with an image and these fields.
fn sandbox(fields: &Value) -> Sandbox {
    let mut spec = json!({"image": "debian:12"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    Sandbox::new("a", serde_json::from_value(spec).unwrap())
}

/// Applies the rules of the CRD as it is installed to a new object, or to a change of an old one.
fn check<T: CustomResourceExt + Serialize>(
    object: &T,
    old: Option<&T>,
) -> Result<(), ValidationErrors> {
    let old = old.map(|old| to_json(old));
    kube_cel::validate(&schema_of::<T>(), &to_json(object), old.as_ref())
}

fn schema_of<T: CustomResourceExt>() -> Value {
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crds::schema::all_crds);
    let mut crds = CRDS.iter();
    let crd = crds.find(|crd| crd.metadata.name.as_deref() == Some(T::crd_name()));
    to_json(&crd.unwrap().spec.versions[0].schema)["openAPIV3Schema"].clone()
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

/// Asserts that a rule rejects with this message, or that no rule does.
#[track_caller]
fn assert_rejection(result: Result<(), ValidationErrors>, expected: Option<&str>, case: &str) {
    let said = result.err().map(|e| e.to_string()).unwrap_or_default();
    let is_expected = expected.map_or(said.is_empty(), |text| said.contains(text));
    assert!(is_expected, "{case}: {said:?}, not {expected:?}");
}

#[test]
fn new_sandbox_is_checked() {
    let size = |size: Value| json!({"workspace": {"size": size}});
    let image_missing = Some("image is required unless pool is set");
    let no_quantity = Some("must be a quantity such as 10Gi");
    let no_factor = Some("greater than 0");
    let no_volume = Some("persistence Root and Memory need a workspace");
    for (fields, rejection) in [
        (json!({}), None),
        (json!({"image": null}), image_missing),
        (json!({"image": null, "pool": "default"}), None),
        (json!({"resourceFactor": 0.5}), None),
        (json!({"resourceFactor": 4.0}), None),
        (json!({"resourceFactor": 0.0}), no_factor),
        (json!({"resourceFactor": -1.0}), no_factor),
        (size(json!("10Gi")), None),
        (size(json!("1e9")), None),
        (size(json!("1.5G")), None),
        (size(json!(1_u64 << 40)), None),
        (size(json!("10GB")), no_quantity),
        (size(json!("0")), no_quantity),
        (size(json!("500m")), no_quantity),
        (size(json!("")), no_quantity),
        (size(json!(0)), no_quantity),
        (json!({"persistence": "Workspace"}), None),
        (json!({"persistence": "Memory"}), no_volume),
        (
            json!({"persistence": "Root", "workspace": {"size": "1Gi"}}),
            None,
        ),
        (json!({"persistence": "Root", "pool": "default"}), None),
    ] {
        let result = check(&sandbox(&fields), None);
        assert_rejection(result, rejection, &fields.to_string());
    }
    for (name, rejection) in [
        ("a".repeat(52), None),
        ("a".repeat(53), Some("at most 52")),
        ("a.b".into(), Some("DNS label")),
    ] {
        let named = Sandbox::new(&name, sandbox(&json!({})).spec);
        assert_rejection(check(&named, None), rejection, &name);
    }
}

#[test]
fn change_of_sandbox_is_checked() {
    let small = r#"{"state": "Paused", "workspace": {"size": "1Gi"}}"#;
    let large = small.replace("1Gi", "2Gi");
    let moved = small.replace("\"1Gi\"", r#""1Gi", "mountPath": "/data""#);
    let rooted = |state: &str| {
        format!(r#"{{"state": "{state}", "persistence": "Root", "workspace": {{"size": "1Gi"}}}}"#)
    };
    let [running, paused] = ["{}", r#"{"state": "Paused"}"#];
    for (old, new, rejection) in [
        (running, r#"{"image": "other"}"#, "image cannot change"),
        (running, r#"{"command": ["sh"]}"#, "command cannot change"),
        (
            running,
            &small.replace("Paused", "Running"),
            "workspace cannot change",
        ),
        (running, &rooted("Running"), "persistence cannot change"),
        (&rooted("Running"), running, "persistence cannot change"),
        (small, &rooted("Paused"), ""),
        (running, paused, ""),
        (paused, r#"{"state": "Paused", "image": "other"}"#, ""),
        (paused, small, ""),
        (small, &large, "immutable"),
        (small, &moved, ""),
        (
            r#"{"state": "Stopped"}"#,
            running,
            "cannot be started again",
        ),
        (
            running,
            r#"{"session": {"tenant": "t", "id": "s"}}"#,
            "session is immutable",
        ),
        (running, r#"{"keyRotation": 1}"#, ""),
        (r#"{"keyRotation": 2}"#, r#"{"keyRotation": 3}"#, ""),
        (
            r#"{"keyRotation": 2}"#,
            r#"{"keyRotation": 1}"#,
            "can only rise",
        ),
        (
            r#"{"keyRotation": 2}"#,
            r#"{"keyRotation": null}"#,
            "can only rise",
        ),
    ] {
        let [before, after] = [old, new].map(|spec| sandbox(&serde_json::from_str(spec).unwrap()));
        let rejection = Some(rejection).filter(|text| !text.is_empty());
        let result = check(&after, Some(&before));
        assert_rejection(result, rejection, &format!("{old} to {new}"));
    }
}

#[test]
fn spec_of_image_build_is_immutable() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let spec = json!({"tenant": "t", "target": "r/runtime:1", "tags": ["r/runtime:2"],
        "base": "debian:12", "contextDigest": digest, "mode": "Alias"});
    let build = |spec: &Value| ImageBuild::new("a", serde_json::from_value(spec.clone()).unwrap());
    let before = build(&spec);
    let mut finished = before.clone();
    finished.status = Some(serde_json::from_value(json!({"phase": "Succeeded"})).unwrap());
    let same = check(&finished, Some(&before));
    assert_rejection(same, None, "a status");
    for (field, value) in [
        ("tenant", json!("u")),
        ("target", json!("r/runtime:3")),
        ("tags", json!([])),
        ("base", Value::Null),
    ] {
        let mut changed = spec.clone();
        changed[field] = value;
        let result = check(&build(&changed), Some(&before));
        assert_rejection(result, Some("spec is immutable"), field);
    }
}
