//! kubectl against standalone, with the sample of the README.

use serde_json::{Value, json};
use tests::binaries::binary;

use crate::fixture::standalone;

const TIMEOUT: &str = "--timeout=60s";

#[test]
fn kubectl_applies_waits_pauses_and_deletes_the_sample() {
    let Some(fixture) = standalone() else { return };
    let kubectl = |words: &str| fixture.kubectl(words);
    let wait = |condition: &str| {
        kubectl(&format!(
            "wait --for=condition={condition} sandbox/demo {TIMEOUT}"
        ));
    };
    kubectl("apply -f manifests/samples/sandbox.yaml");
    wait("Ready");
    let again = kubectl("apply -f manifests/samples/sandbox.yaml");
    assert!(again.contains("unchanged"), "{again}");

    let table = kubectl("get sbx -o wide");
    let (header, row) = table.split_once('\n').unwrap();
    let columns: Vec<_> = header.split_whitespace().collect();
    assert_eq!(
        columns.join(" "),
        "NAME PHASE READY POOL AGE URL REASON NODE KEPT RESTORED INCARNATION"
    );
    assert!(row.starts_with("demo   Running   True"), "{table}");
    assert!(row.contains("http://"), "{table}");
    let pods = kubectl("get pods");
    assert!(pods.contains("1/1"), "{pods}");
    let described = until(
        || kubectl("describe sbx demo"),
        |text| text.contains("the sandbox is ready"),
    );
    assert!(described.contains("Phase:"), "{described}");
    let ready = described.matches("  Normal  Ready ").count();
    assert_eq!(ready, 1, "{described}");

    // The log is that of the command, which prints nothing.
    let pod = kubectl("get pods -o name");
    assert_eq!(kubectl(&format!("logs {}", pod.trim())), "");
    kubectl(r#"patch sbx demo --type merge -p {"spec":{"state":"Paused"}}"#);
    wait("Paused");
    let pods: Value = serde_json::from_str(&kubectl("get pods -o json")).unwrap();
    assert_eq!(pods["items"], json!([]));

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
fn kubectl_applies_lists_and_follows_logs() {
    let Some(fixture) = standalone() else { return };
    let kubectl = |words: &str| fixture.kubectl(words);
    let container = json!({
        "name": "main", "image": "debian:12",
        "command": ["sh", "-c", "echo one; sleep 1; echo two"],
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"restartPolicy": "Never", "containers": [container]}},
    ]});
    let file = fixture.state.path().join("list.json");
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
    let later = kubectl("logs p -c main --since-time=2999-01-01T00:00:00Z");
    assert_eq!(later, "");
    until(|| kubectl("logs p -c main --since=1s"), str::is_empty);

    let operator = binary("sandbox-operator");
    let keys = fixture
        .standalone
        .run(operator.to_str().unwrap(), &["keys", "list"]);
    assert!(keys.lines().any(|line| line.contains("default")), "{keys}");
}

#[tokio::test]
async fn missing_runtime_class_and_metrics_are_shown() {
    let Some(fixture) = standalone() else { return };
    let command = json!(["sleep", "infinity"]);
    let class = json!({"image": "debian:12", "command": command, "runtimeClassName": "gvisor"});
    fixture.apply("class", &class);
    let phase = "--for=jsonpath={.status.phase}=Running";
    fixture.kubectl(&format!("wait {phase} sandbox/class {TIMEOUT}"));
    let message = fixture.kubectl("get sandbox class -o jsonpath={.status.message}");
    let class = "the runtime class gvisor is not installed; the default is used";
    assert!(message.contains(class), "{message}");

    let metrics = fixture.wire().get(&fixture.url("/metrics")).await.body;
    let metrics = metrics.to_string();
    for role in ["reconciles", "gateway_"] {
        assert!(metrics.contains(role), "{role}: {metrics}");
    }
}
