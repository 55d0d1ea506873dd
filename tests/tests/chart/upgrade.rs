//! An upgrade and a rollback replace controllers and gateways. What runs in a sandbox does not notice,
//! and neither does the client that waits for it.

use std::sync::OnceLock;

use serde_json::json;
use tests::session::Session;

use crate::release::{IMAGE, NAME, NAMESPACE, Release, SANDBOXES, api_key, names};
use tests::cli_tools::{get, helm, run, until};

static SANDBOX: OnceLock<String> = OnceLock::new();

/// The sandbox that lives through it all.
pub(crate) fn sandbox() -> &'static str {
    SANDBOX.get().unwrap()
}

pub(crate) async fn a_command_survives(release: &Release) {
    let session = start(release).await;
    let sandbox = SANDBOX.get_or_init(|| session.id.clone());
    let before = get(&["pod", sandbox, "-n", SANDBOXES]);
    let gateways = names(NAMESPACE, "pods");

    // It goes on until it is told to end, which is after the upgrade.
    let command = "echo begun > began; until [ -e go ]; do sleep 0.1; done; echo survived";
    let waiting = session.clone();
    let waiting = tokio::spawn(async move { waiting.run(command).await });
    until("the command runs", || exec("test -e /workspace/began"));
    let round =
        ["gateway", "controller"].map(|of| format!("--set={of}.podAnnotations.round=second"));
    release.helm("upgrade", &round.each_ref().map(String::as_str));
    assert!(!waiting.is_finished());
    assert!(exec("touch /workspace/go"));
    let output = waiting.await.unwrap();
    assert!(output.contains("survived"), "{output}");
    let upgraded = names(NAMESPACE, "pods");
    let fresh = upgraded.iter().filter(|name| !gateways.contains(name));
    assert_eq!(fresh.count(), 4, "{gateways:?} {upgraded:?}");

    let namespace = format!("--namespace={NAMESPACE}");
    helm(&["rollback", NAME, "1", &namespace, "--wait", "--timeout=60s"]);
    let annotations = get(&["deployment", "sandbox-operator-gateway", "-n", NAMESPACE]);
    assert!(annotations["spec"]["template"]["metadata"]["annotations"].is_null());
    let after = get(&["pod", sandbox, "-n", SANDBOXES]);
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert!(session.run("cat began").await.contains("begun"));
}

/// Starts that sandbox, or finds it, and waits until it is ready.
pub(crate) async fn start(release: &Release) -> Session {
    let body = json!({
        "session_id": "upgrade", "image": IMAGE, "working_dir": "/workspace",
        "command": ["python", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--username", "openhands", "--user-id", "1000", "--no-enable-browser"],
    });
    Session::start(&release.url, &api_key(), &body).await
}

/// Runs a script in that sandbox, past the gateway. Returns whether it succeeded.
pub(crate) fn exec(script: &str) -> bool {
    let exec = ["exec", "-n", SANDBOXES, sandbox(), "-c", "sandbox", "--"];
    let output = run("kubectl", &[&exec[..], &["bash", "-c", script]].concat());
    output.status.success()
}
