//! Facts read from Pods as the kubelet reports them.

use crds::contract::control::{ReadyReport, SupervisorState};
use serde_json::{Value, json};

use super::*;

/// Facts of a Pod with this container and status.
fn facts(container: &Value, status: &Value) -> PodFacts {
    let pod = json!({
        "metadata": {"name": "a", "uid": "u"}, "spec": {"containers": [container]},
        "status": status,
    });
    PodFacts::read(&serde_json::from_value(pod).unwrap()).unwrap()
}

fn silent(conditions: &Value) -> bool {
    let container = json!({"name": "sandbox"});
    facts(&container, &json!({ "conditions": conditions })).node_silent
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

/// A container with these fields whose last run ended so, with this exit code.
fn ended(mut container: Value, message: &str, code: i32) -> Container {
    container["name"] = json!("sandbox");
    let ended = json!({"terminated": {"reason": "Error", "exitCode": code, "message": message}});
    let status = json!({"containerStatuses": [{
        "name": "sandbox", "restartCount": 1, "lastState": ended,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }]});
    facts(&container, &status).container
}

#[test]
fn supervised_termination_message_is_one_short_line() {
    let of =
        |program: &str, message: &str, code| ended(json!({"command": [program]}), message, code);
    let executor = crds::contract::path::EXECUTOR;
    for (program, message, code, description) in [
        (executor, "x not found", 127, "exit code 127: x not found"),
        (executor, "no\n\u{1b}shell ", 1, "exit code 1: no shell"),
        (executor, " ", 1, "exit code 1"),
        ("/bin/own", "hunter2", 1, "exit code 1"),
        (
            executor,
            "\u{feff}a\u{200b}b\u{202e}c \u{2066}\u{2060}d\u{200f}",
            1,
            "exit code 1: abc d",
        ),
        (executor, "\u{200b} \u{2069}", 1, "exit code 1"),
    ] {
        let described = of(program, message, code);
        assert_eq!(described.describe_termination(), description, "{message:?}");
    }
    let long = of(executor, &"\u{fc}".repeat(4096), 1)
        .termination_message
        .unwrap();
    assert_eq!(long.chars().count(), container::MAX_MESSAGE_CHARS);
}

#[test]
fn log_fallback_is_not_a_termination_message() {
    let executor = json!([crds::contract::path::EXECUTOR]);
    for (policy, expected) in [
        (json!("File"), Some("message")),
        (Value::Null, Some("message")),
        (json!("FallbackToLogsOnError"), None),
        (json!("Unknown"), None),
    ] {
        let container = json!({"command": executor, "terminationMessagePolicy": policy});
        let message = ended(container, "message", 1).termination_message;
        assert_eq!(message.as_deref(), expected, "{policy}");
    }
}

#[test]
fn container_without_command_can_never_start() {
    use StartProblemKind::{ContainerConfig, NoCommand};
    let problem = |reason: &str, message: &str| {
        let waiting = json!({"waiting": {"reason": reason, "message": message}});
        let status = json!({"containerStatuses": [{"name": "sandbox", "state": waiting}]});
        let facts = facts(&json!({"name": "sandbox"}), &status);
        facts.start_problem.unwrap()
    };
    let sentence = "failed to generate spec: no command specified";
    for (reason, message, kind) in [
        ("CreateContainerError", sentence, NoCommand),
        ("RunContainerError", sentence, NoCommand),
        ("CreateContainerError", "name is reserved", ContainerConfig),
    ] {
        let problem = problem(reason, message);
        assert_eq!(problem.kind, kind, "{reason}: {message}");
        assert_eq!(problem.is_permanent(), kind == NoCommand);
    }
    assert_eq!(
        problem("CreateContainerError", sentence).message,
        "the image of container sandbox has no command, and the spec gives none"
    );
}

#[test]
fn pod_counts_as_failed_when_its_node_cannot_mount_the_executor() {
    let facts = |executor: Option<&str>, message: &str| {
        let waiting = json!({"reason": "CreateContainerError", "message": message});
        let pod = json!({
            "metadata": {"name": "a", "uid": "u", "annotations": executor.map(|it| json!({EXECUTOR_ANNOTATION: it}))},
            "status": {"phase": "Pending", "containerStatuses": [
                {"name": "sandbox", "state": {"waiting": waiting}},
            ]},
        });
        PodFacts::read(&serde_json::from_value(pod).unwrap()).unwrap()
    };
    let text = "failed to mkdir \"\": mkdir : no such file or directory";
    let failed = facts(Some(IMAGE_VOLUME), text);
    assert_eq!(failed.phase, PodPhase::Failed);
    assert!(failed.mount_failure().unwrap().ends_with(text));
    for (executor, message) in [
        (None, text),
        (Some(IMAGE_VOLUME), "context deadline exceeded"),
    ] {
        assert_eq!(facts(executor, message).phase, PodPhase::Pending);
    }
}

#[test]
fn report_of_a_start_is_bounded() {
    let start = |id: &str| {
        RunStart::of(&ReadyReport {
            processes_id: Some(id.into()),
            ..SupervisorState::Ready.into()
        })
    };
    assert_eq!(start("aZ0-_").processes_id.as_deref(), Some("aZ0-_"));
    for id in ["", "a b", "a\n", "\u{e4}", &"a".repeat(65)] {
        assert_eq!(start(id).processes_id, None, "{id:?}");
    }
}
