//! An upgrade and a rollback replace controllers and gateways. What runs in a sandbox does not notice,
//! and neither does the client that waits for it.

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use tests::json_client::JsonClient;

use crate::release::{IMAGE, NAME, NAMESPACE, Release, SANDBOXES, client, names};
use tests::cli_tools::{get, helm, kubectl};

static SANDBOX: OnceLock<String> = OnceLock::new();

/// The sandbox that lives through it all.
pub(crate) fn sandbox() -> &'static str {
    SANDBOX.get().unwrap()
}

pub(crate) async fn a_command_survives(release: &Release) {
    let info = start(release).await;
    let id = info["runtime_id"].as_str().unwrap().to_owned();
    let sandbox = SANDBOX.get_or_init(|| id);
    let before = get(&["pod", sandbox, "-n", SANDBOXES]);
    let gateways = names(NAMESPACE, "pods");

    // It goes on until it is told to end, which is after the upgrade.
    let command = "echo begun > began; until [ -e go ]; do sleep 0.1; done; echo survived";
    let waiting = tokio::spawn(act(info.clone(), command));
    wait_for(sandbox, "began");
    release.helm(
        "upgrade",
        &[
            "--set=gateway.podAnnotations.round=second",
            "--set=controller.podAnnotations.round=second",
        ],
    );
    assert!(!waiting.is_finished());
    kubectl(&[
        "exec",
        "-n",
        SANDBOXES,
        sandbox,
        "-c",
        "sandbox",
        "--",
        "touch",
        "/workspace/go",
    ]);
    let output = waiting.await.unwrap();
    assert!(output.contains("survived"), "{output}");
    let upgraded = names(NAMESPACE, "pods");
    let fresh = upgraded.iter().filter(|name| !gateways.contains(name));
    assert_eq!(fresh.count(), 4, "{gateways:?} {upgraded:?}");

    helm(&[
        "rollback",
        NAME,
        "1",
        "--namespace",
        NAMESPACE,
        "--wait",
        "--timeout=60s",
    ]);
    let annotations = get(&["deployment", "sandbox-operator-gateway", "-n", NAMESPACE]);
    assert!(annotations["spec"]["template"]["metadata"]["annotations"].is_null());
    let after = get(&["pod", sandbox, "-n", SANDBOXES]);
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert!(act(info, "cat began").await.contains("begun"));
}

pub(crate) async fn start(release: &Release) -> Value {
    let client = client();
    let body = json!({
        "session_id": "upgrade", "image": IMAGE, "working_dir": "/workspace",
        "command": ["python", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--username", "openhands", "--user-id", "1000", "--no-enable-browser"],
    });
    let started = client.post(&format!("{}/start", release.url), &body).await;
    let id = started.body["runtime_id"].as_str().unwrap().to_owned();
    for _ in 0..240 {
        let info = client.get(&format!("{}/runtime/{id}", release.url)).await;
        if info.body["pod_status"] == "Ready" {
            return info.body;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("{id} is not ready")
}

/// Runs a command in the sandbox, through the gateway; what it prints.
pub(crate) async fn act(info: Value, command: &str) -> String {
    let text = |name: &str| info[name].as_str().unwrap().to_owned();
    let client = JsonClient::with_header("X-Session-API-Key", &text("session_api_key"));
    let action = json!({"action": {"action": "run", "args": {"command": command, "blocking": true}, "timeout": 300}});
    let url = format!("{}/execute_action", text("url"));
    let answer = client.post(&url, &action).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body["content"].as_str().unwrap().to_owned()
}

/// Waits until the command has made its file.
fn wait_for(sandbox: &str, file: &str) {
    let path = format!("/workspace/{file}");
    tests::cli_tools::until("the command runs", || {
        let exec = [
            "exec", "-n", SANDBOXES, sandbox, "-c", "sandbox", "--", "test", "-e", &path,
        ];
        tests::cli_tools::run("kubectl", &exec).status.success()
    });
}
