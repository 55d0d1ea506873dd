//! Facts read from Pods as the kubelet reports them.

use serde_json::{Value, json};

use super::*;

fn silent(conditions: &Value) -> bool {
    let pod = json!({"metadata": {"name": "a", "uid": "u"}, "status": {"conditions": conditions}});
    let pod: SlimPod = serde_json::from_value(pod).unwrap();
    PodFacts::read(&pod).unwrap().node_silent
}

#[test]
fn node_is_silent_when_only_ready_condition_is_false() {
    let containers = |status: &str| json!({"type": "ContainersReady", "status": status});
    let ready = |status: &str| json!({"type": "Ready", "status": status});
    let gate = json!({"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"});
    assert!(silent(&json!([ready("False"), containers("True")])));
    for reporting in [
        json!([]),
        json!([ready("True"), containers("True")]),
        json!([ready("False"), containers("False")]),
        json!([gate, containers("True")]),
    ] {
        assert!(!silent(&reporting), "{reporting}");
    }
}

#[test]
fn supervised_termination_message_is_one_short_line() {
    let ending = |program: &str, message: &str, code: i32| {
        let ended =
            json!({"terminated": {"reason": "Error", "exitCode": code, "message": message}});
        let pod = json!({
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"containers": [{"name": "sandbox", "command": [program]}]},
            "status": {"containerStatuses": [{
                "name": "sandbox", "restartCount": 1, "lastState": ended,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }]},
        });
        let pod: SlimPod = serde_json::from_value(pod).unwrap();
        PodFacts::read(&pod).unwrap().container
    };
    let container = |program: &str, message: &str| ending(program, message, 1);
    let missing = ending(contract::path::EXECUTOR, "\"x\" was not found", 127);
    assert_eq!(
        missing.describe_termination(),
        "exit code 127: \"x\" was not found"
    );
    let supervised = |message: &str| container(contract::path::EXECUTOR, message);
    assert_eq!(
        supervised("no\n\u{1b}shell ").describe_termination(),
        "exit code 1: no shell"
    );
    assert_eq!(supervised(" ").describe_termination(), "exit code 1");
    let long = supervised(&"\u{fc}".repeat(4096))
        .termination_message
        .unwrap();
    assert_eq!(long.chars().count(), container::MAX_MESSAGE_CHARS);
    assert_eq!(
        container("/bin/own", "hunter2").describe_termination(),
        "exit code 1"
    );
    let turned = supervised("\u{feff}a\u{200b}b\u{202e}c \u{2066}\u{2060}d\u{200f}");
    assert_eq!(turned.describe_termination(), "exit code 1: abc d");
    assert_eq!(
        supervised("\u{200b} \u{2069}").describe_termination(),
        "exit code 1"
    );
}

#[test]
fn log_fallback_is_not_a_termination_message() {
    let message = |policy: &Value| {
        let ended = json!({"terminated": {"exitCode": 1, "message": "message"}});
        let container = json!({
            "name": "sandbox", "command": [contract::path::EXECUTOR], "terminationMessagePolicy": policy,
        });
        let pod = json!({
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"containers": [container]},
            "status": {"containerStatuses": [{"name": "sandbox", "state": ended}]},
        });
        let pod: SlimPod = serde_json::from_value(pod).unwrap();
        PodFacts::read(&pod).unwrap().container.termination_message
    };
    for own in [json!("File"), Value::Null] {
        assert_eq!(message(&own).as_deref(), Some("message"), "{own}");
    }
    for other in ["FallbackToLogsOnError", "Unknown"] {
        assert_eq!(message(&json!(other)), None, "{other}");
    }
}
