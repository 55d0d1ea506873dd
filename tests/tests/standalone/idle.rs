//! Idle pause and resume by the first request, with real processes.

use std::time::Duration;

use tests::binaries::is_root_or_skips;
use tests::session::Session;
use tests::standalone::Standalone;

use crate::session;

/// Polls until the API says this of the sandbox.
async fn becomes(session: &Session, status: &str) {
    for _ in 0..1200 {
        if session.info().await["status"] == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never {status}: {}", session.info().await);
}

#[tokio::test]
async fn an_idle_sandbox_sleeps_and_a_request_wakes_it() {
    if !is_root_or_skips("idle sandboxes") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &["--idle-timeout", "2s"]);
    let session = session::start(&standalone, "s").await;
    assert_eq!(session.run("echo kept > file; pwd").await, "/workspace");
    // An open request keeps it awake.
    assert_eq!(session.run("sleep 5; echo awake").await, "awake");
    becomes(&session, "paused").await;
    let sandbox = format!("sandbox/{}", session.id);
    let until = ["wait", "--for=condition=Paused", &sandbox, "--timeout=60s"];
    standalone.run("kubectl", &until);
    let pods = standalone.run("kubectl", &["get", "pods", "-o", "name"]);
    assert_eq!(pods, "");
    // The request is held until the sandbox is back, and reaches it whole.
    assert_eq!(session.run("cat file").await, "kept");
    becomes(&session, "running").await;
    let spec = standalone.run(
        "kubectl",
        &["get", "sbx", &session.id, "-o", "jsonpath={.spec.state}"],
    );
    assert_eq!(spec, "Running");
}
