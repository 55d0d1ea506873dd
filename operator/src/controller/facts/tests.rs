//! What is read from a Pod as the kubelet reports it.

use serde_json::{Value, json};

use super::*;

fn silent(conditions: &Value) -> bool {
    let pod = json!({"metadata": {"name": "a", "uid": "u"}, "status": {"conditions": conditions}});
    let pod: SlimPod = serde_json::from_value(pod).unwrap();
    PodFacts::read(&pod).unwrap().silent
}

#[test]
fn a_node_is_silent_if_readiness_alone_was_taken_back() {
    let containers = |status: &str| json!({"type": "ContainersReady", "status": status});
    let ready = |status: &str| json!({"type": "Ready", "status": status});
    let gate = json!({"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"});
    assert!(silent(&json!([ready("False"), containers("True")])));
    for heard in [
        json!([]),
        json!([ready("True"), containers("True")]),
        json!([ready("False"), containers("False")]),
        json!([gate, containers("True")]),
    ] {
        assert!(!silent(&heard), "{heard}");
    }
}

#[test]
fn the_last_words_of_a_supervised_container_are_one_short_line() {
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
    assert_eq!(missing.end(), "exit code 127: \"x\" was not found");
    let supervised = |message: &str| container(contract::path::EXECUTOR, message);
    assert_eq!(
        supervised("no\n\u{1b}shell ").end(),
        "exit code 1: no shell"
    );
    assert_eq!(supervised(" ").end(), "exit code 1");
    let long = supervised(&"\u{fc}".repeat(4096)).last_words.unwrap();
    assert_eq!(long.chars().count(), ends::LONGEST_WORDS);
    assert_eq!(container("/bin/own", "hunter2").end(), "exit code 1");
    let turned = supervised("\u{feff}a\u{200b}b\u{202e}c \u{2066}\u{2060}d\u{200f}");
    assert_eq!(turned.end(), "exit code 1: abc d");
    assert_eq!(supervised("\u{200b} \u{2069}").end(), "exit code 1");
}

#[test]
fn the_end_of_a_log_is_nobodys_last_words() {
    let words = |policy: &Value| {
        let ended = json!({"terminated": {"exitCode": 1, "message": "words"}});
        let container = json!({
            "name": "sandbox", "command": [contract::path::EXECUTOR], "terminationMessagePolicy": policy,
        });
        let pod = json!({
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"containers": [container]},
            "status": {"containerStatuses": [{"name": "sandbox", "state": ended}]},
        });
        let pod: SlimPod = serde_json::from_value(pod).unwrap();
        PodFacts::read(&pod).unwrap().container.last_words
    };
    for own in [json!("File"), Value::Null] {
        assert_eq!(words(&own).as_deref(), Some("words"), "{own}");
    }
    for other in ["FallbackToLogsOnError", "Unknown"] {
        assert_eq!(words(&json!(other)), None, "{other}");
    }
}
