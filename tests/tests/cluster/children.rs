//! An image's own entrypoint on a real cluster: its environment comes through a Secret, its directory
//! is its user's, a runtime class that is not there does not stop it, and a rotated key is the one
//! that is told.

use std::process::Command;

use serde_json::{Value, json};
use tests::binaries::binary;

use crate::first_session::IMAGE;
use crate::installation::kubectl;

const NAME: &str = "entrypoint";

pub(crate) fn entrypoint_with_environment() {
    apply();
    let first = ready();
    assert_eq!(first["SESSION_API_KEY"], token());
    assert_eq!(first["owner"], "10001");
    assert_eq!(first["RUNTIME_ID"], told("runtimeID"));
    let note = told("message");
    assert!(
        note.contains("runtime class kata is not installed"),
        "{note}"
    );
    assert_eq!(secrets(), 1);

    patch(&json!({"state": "Paused", "keyRotation": 1}));
    wait("Paused");
    assert_eq!(secrets(), 0);
    assert_eq!(first["SESSION_API_KEY"], token());

    patch(&json!({"state": "Running"}));
    let second = ready();
    assert_ne!(second["SESSION_API_KEY"], first["SESSION_API_KEY"]);
    assert_eq!(second["SESSION_API_KEY"], token());
    assert_eq!(second["OH_SESSION_API_KEYS_1"], first["SESSION_API_KEY"]);
    assert_eq!(second["OH_SECRET_KEY"], first["OH_SECRET_KEY"]);
    kubectl(&["delete", "sbx", NAME, "--timeout=60s"]);
}

fn apply() {
    let script = "touch here && owner=$(stat -c %u here) && export owner && env && \
                  echo written && exec sleep infinity";
    let sandbox = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "metadata": {"name": NAME},
        "spec": {
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "workingDir": "/workspace/project",
            "runtimeClassName": "kata",
            "securityContext": {"runAsUser": 10001},
            "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "sandbox", "args": ["-c", script]}]}},
        },
    });
    let name = format!("sandbox-{NAME}-{}.json", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, sandbox.to_string()).unwrap();
    kubectl(&["apply", "-f", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
}

/// The environment that the sandbox says it has, once it is ready.
fn ready() -> Value {
    wait("Ready");
    let log = (0..100).find_map(|_| {
        let log = kubectl(&["logs", NAME, "--container=sandbox"]);
        log.contains("written").then_some(log).or_else(|| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            None
        })
    });
    let log = log.expect("the sandbox says what it has");
    let pairs = log.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name, Value::from(value)))
        .collect()
}

fn wait(condition: &str) {
    let sandbox = format!("sandbox/{NAME}");
    let condition = format!("--for=condition={condition}");
    kubectl(&["wait", &condition, &sandbox, "--timeout=60s"]);
}

fn patch(spec: &Value) {
    let patch = json!({"spec": spec}).to_string();
    kubectl(&["patch", "sbx", NAME, "--type=merge", "-p", &patch]);
}

fn told(field: &str) -> String {
    let path = format!("jsonpath={{.status.{field}}}");
    kubectl(&["get", "sbx", NAME, "-o", &path])
}

/// How many Secrets the sandbox has.
fn secrets() -> usize {
    let label = format!("openhands.dev/sandbox={NAME}");
    kubectl(&["get", "secrets", "-l", &label, "-o", "name"])
        .lines()
        .count()
}

fn token() -> String {
    let output = Command::new(binary("sandbox-operator"))
        .args(["token", NAME])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
