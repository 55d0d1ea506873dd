//! CEL rules of the CRDs, evaluated locally.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use crds::Sandbox;
use serde_json::{Value, json};

/// A sandbox with an image and these fields.
fn sandbox(fields: &Value) -> Sandbox {
    let mut spec = json!({"image": "debian:12"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    Sandbox::new("a", serde_json::from_value(spec).unwrap())
}

/// Asserts that a rule rejects with this message, or that no rule does.
#[track_caller]
fn assert_rejection(
    result: Result<(), impl std::fmt::Display>,
    expected: Option<&str>,
    case: &str,
) {
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
    ] {
        let result = sandbox(&fields).validate_cel();
        assert_rejection(result, rejection, &fields.to_string());
    }
    for (name, rejection) in [
        ("a".repeat(52), None),
        ("a".repeat(53), Some("at most 52")),
        ("a.b".into(), Some("DNS label")),
    ] {
        let named = Sandbox::new(&name, sandbox(&json!({})).spec);
        assert_rejection(named.validate_cel(), rejection, &name);
    }
}

#[test]
fn change_of_sandbox_is_checked() {
    let running = json!({});
    let paused = json!({"state": "Paused"});
    let stopped = json!({"state": "Stopped"});
    let sized = |state: &str, workspace: Value| json!({"state": state, "workspace": workspace});
    let rotated = |rotation: Value| json!({ "keyRotation": rotation });
    let lowered = Some("keyRotation can only rise");
    let small = sized("Paused", json!({"size": "1Gi"}));
    for (old, new, rejection) in [
        (
            &running,
            json!({"image": "other"}),
            Some("image cannot change"),
        ),
        (
            &running,
            json!({"command": ["sh"]}),
            Some("command cannot change"),
        ),
        (
            &running,
            sized("Running", json!({"size": "1Gi"})),
            Some("workspace cannot change"),
        ),
        (&running, paused.clone(), None),
        (&paused, json!({"state": "Paused", "image": "other"}), None),
        (&paused, small.clone(), None),
        (
            &small,
            sized("Paused", json!({"size": "2Gi"})),
            Some("immutable"),
        ),
        (
            &small,
            sized("Paused", json!({"size": "1Gi", "mountPath": "/data"})),
            None,
        ),
        (
            &stopped,
            json!({"state": "Running"}),
            Some("cannot be started again"),
        ),
        (
            &running,
            json!({"session": {"tenant": "default", "id": "s"}}),
            Some("session is immutable"),
        ),
        (&running, rotated(json!(1)), None),
        (&rotated(json!(2)), rotated(json!(3)), None),
        (&rotated(json!(2)), rotated(json!(1)), lowered),
        (&rotated(json!(2)), rotated(json!(null)), lowered),
    ] {
        let result = sandbox(&new).validate_cel_update(&sandbox(old));
        assert_rejection(result, rejection, &format!("{old} to {new}"));
    }
}
