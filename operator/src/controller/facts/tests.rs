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
