//! kubectl against standalone, with the sample of the README.

use serde_json::Value;
use tests::binaries::is_root_or_skips;
use tests::standalone::Standalone;

const TIMEOUT: &str = "--timeout=60s";

#[test]
fn the_sample_can_be_applied_watched_paused_and_deleted() {
    if !is_root_or_skips("kubectl against standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let kubectl = |args: &str| standalone.run("kubectl", &args.split(' ').collect::<Vec<_>>());

    kubectl("apply -f manifests/samples/sandbox.yaml");
    kubectl(&format!(
        "wait --for=condition=Ready sandbox/demo {TIMEOUT}"
    ));
    let again = kubectl("apply -f manifests/samples/sandbox.yaml");
    assert!(again.contains("unchanged"), "{again}");

    let table = kubectl("get sbx -o wide");
    let (header, row) = table.split_once('\n').unwrap();
    let columns: Vec<_> = header.split_whitespace().collect();
    assert_eq!(
        columns,
        [
            "NAME", "PHASE", "READY", "POOL", "AGE", "URL", "REASON", "NODE"
        ]
    );
    assert!(row.starts_with("demo   Running   True"), "{table}");
    assert!(row.contains("http://"), "{table}");
    assert!(
        kubectl("get pods").contains("1/1"),
        "{}",
        kubectl("get pods")
    );
    let described = until(
        || kubectl("describe sbx demo"),
        |text| text.contains("the sandbox is ready"),
    );
    assert!(described.contains("Phase:"), "{described}");
    assert_eq!(
        described.matches("  Normal  Ready ").count(),
        1,
        "{described}"
    );

    // The log is that of the command, which prints nothing.
    let pod = kubectl("get pods -o name");
    assert_eq!(kubectl(&format!("logs {}", pod.trim())), "");
    kubectl(r#"patch sbx demo --type merge -p {"spec":{"state":"Paused"}}"#);
    kubectl(&format!(
        "wait --for=condition=Paused sandbox/demo {TIMEOUT}"
    ));
    let pods: Value = serde_json::from_str(&kubectl("get pods -o json")).unwrap();
    assert_eq!(pods["items"], serde_json::json!([]));

    kubectl(&format!("delete sbx demo {TIMEOUT}"));
    assert_eq!(kubectl("get sbx -o name"), "");
}

/// Asks until the answer is as wanted: events are written by the side, a moment later.
fn until(ask: impl Fn() -> String, wanted: impl Fn(&str) -> bool) -> String {
    let mut answer = ask();
    for _ in 0..100 {
        if wanted(&answer) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        answer = ask();
    }
    assert!(wanted(&answer), "{answer}");
    answer
}

#[test]
fn a_malformed_sandbox_is_refused_by_the_schema() {
    if !is_root_or_skips("kubectl against standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    for (spec, complaint) in [
        (
            r#"{"command":["true"]}"#,
            "image is required unless pool is set",
        ),
        (r#"{"image":"a","resourceFactor":0}"#, "greater than 0"),
        (r#"{"image":"a","state":"Sleeping"}"#, "spec.state"),
        (r#"{"image":7}"#, "spec.image"),
        (r#"{"image":"a","imagee":"b"}"#, "unknown field"),
    ] {
        let manifest = format!(
            r#"{{"apiVersion":"openhands.dev/v1alpha1","kind":"Sandbox","metadata":{{"name":"bad"}},"spec":{spec}}}"#
        );
        let file = state.path().join("bad.json");
        std::fs::write(&file, manifest).unwrap();
        let output = standalone
            .command("kubectl")
            .args(["create", "-f", file.to_str().unwrap()])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{spec} was accepted");
        assert!(stderr.contains(complaint), "{spec}: {stderr}");
    }
}

#[test]
fn list_is_applied_logs_are_followed_and_the_key_is_listed() {
    if !is_root_or_skips("kubectl against standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let kubectl = |args: &str| standalone.run("kubectl", &args.split(' ').collect::<Vec<_>>());
    let container = serde_json::json!({
        "name": "main", "image": "debian:12",
        "command": ["sh", "-c", "echo one; sleep 1; echo two"],
    });
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"restartPolicy": "Never", "containers": [container]}},
    ]});
    let file = state.path().join("list.json");
    std::fs::write(&file, list.to_string()).unwrap();
    let applied = kubectl(&format!("apply -f {}", file.display()));
    assert_eq!(applied, "configmap/a created\npod/p created\n");
    let phase = || kubectl("get pod p -o jsonpath={.status.phase}");
    until(phase, |phase| phase != "Pending");
    assert_eq!(kubectl("logs -f p -c main"), "one\ntwo\n");
    assert_eq!(kubectl("logs p -c main --tail=1"), "two\n");
    let stamped = kubectl("logs p -c main --tail=1 --timestamps");
    let (time, line) = stamped.split_once(' ').unwrap();
    assert!(time.ends_with('Z') && line == "two\n", "{stamped}");
    assert_eq!(
        kubectl("logs p -c main --since-time=2999-01-01T00:00:00Z"),
        ""
    );

    let operator = tests::binaries::binary("sandbox-operator");
    let keys = standalone.run(operator.to_str().unwrap(), &["keys", "list"]);
    assert!(keys.lines().any(|line| line.contains("default")), "{keys}");
}
