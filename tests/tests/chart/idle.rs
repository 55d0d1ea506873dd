//! A sandbox that nobody uses pauses by itself, after the controller has found every gateway by the
//! headless Service and asked it; the next request wakes it.

use serde_json::json;

use crate::release::{IMAGE, Release, SANDBOXES, client};
use crate::rights::sandbox;
use tests::tools::{get, kubectl, wait};

pub(crate) async fn pauses_and_wakes(release: &Release) {
    let command = json!([
        "python",
        "-m",
        "openhands.runtime.action_execution_server",
        "60000",
        "--working-dir",
        "/workspace",
        "--no-enable-browser"
    ]);
    let spec = json!({
        "image": IMAGE, "command": command, "lifecycle": {"idleTimeout": "2s"},
        "securityContext": {"runAsUser": 0},
    });
    sandbox("idle", &spec);
    wait(SANDBOXES, "jsonpath={.status.phase}=Paused", "idle");
    let status = get(&["sandbox", "idle", "-n", SANDBOXES])["status"].clone();
    assert_eq!(status["reason"], "Idle", "{status}");
    let id = status["runtimeID"].as_str().unwrap();
    let woken = client()
        .get(&format!("{}/{id}/runtime/alive", release.url))
        .await;
    assert_eq!(woken.status, 200, "{}", woken.body);
    kubectl(&["delete", "sandbox", "idle", "-n", SANDBOXES]);
}
