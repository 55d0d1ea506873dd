//! Progress on a terminal, against a scripted gateway that answers when the test lets it.

use serde_json::json;

use super::scripted::Gateway;
use super::terminals::read_until;

#[tokio::test]
async fn command_says_what_it_waits_for_until_it_is_answered() {
    for (args, expected) in [
        (&["list"][..], "waiting for the gateway"),
        (&["describe", "none"], "waiting for the gateway"),
        (&["logs", "none"], "waiting for output"),
        (&["exec", "none", "--", "true"], "waiting for the gateway"),
        (&["top", "none"], "measuring"),
        (&["pause", "none"], "pausing"),
        (&["resume", "none"], "resuming"),
        (&["run", "host"], "starting"),
    ] {
        let gateway = Gateway::start(false).await;
        let (mut pty, mut child) = gateway.run(args);
        read_until(&mut pty, expected).await;
        gateway.gate.add_permits(1);
        read_until(&mut pty, "error: ").await;
        assert_eq!(child.wait().await.unwrap().code(), Some(125), "{args:?}");
    }
}

#[tokio::test]
async fn command_of_a_paused_sandbox_shows_how_it_wakes() {
    for args in [
        &["exec", "demo", "--", "true"][..],
        &["shell", "demo"],
        &["cp", "demo:a", "b"],
    ] {
        let gateway = Gateway::start(true).await;
        let (mut pty, mut child) = gateway.run(args);
        read_until(&mut pty, "STARTING_RUNTIME: pulling it").await;
        gateway.change(json!({"status": "error", "status_detail": "no such image"}));
        read_until(&mut pty, "failed: no such image").await;
        assert_eq!(child.wait().await.unwrap().code(), Some(125), "{args:?}");
    }
}

#[tokio::test]
async fn pause_waits_and_says_what_was_kept() {
    let gateway = Gateway::start(true).await;
    gateway.change(json!({"status": "running", "pod_status": "Ready"}));
    let (mut pty, mut child) = gateway.run(&["pause", "demo"]);
    read_until(&mut pty, "pausing demo").await;
    let kept = json!({"level": "Workspace", "reason": "too large"});
    gateway.change(json!({"pausing": false, "persisted": kept}));
    read_until(&mut pty, "demo paused, kept Workspace (too large)").await;
    assert!(child.wait().await.unwrap().success());

    let (mut pty, mut child) = gateway.run(&["pause", "--no-wait", "demo"]);
    read_until(&mut pty, "demo pausing\r\n").await;
    assert!(child.wait().await.unwrap().success());
}
