//! Idle pause after the controller has queried every gateway of the headless Service, and resume by
//! the next request.

use serde_json::json;

use crate::rbac::sandbox;
use crate::release::{IMAGE, Release, SANDBOXES};
use tests::cli_tools::{get, kubectl, wait};
use tests::clients::HttpClient;

pub(crate) async fn pauses_and_wakes(release: &Release) {
    let spec = json!({
        "image": IMAGE, "lifecycle": {"idleTimeout": "2s"},
        "command": ["python", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--no-enable-browser"],
        "securityContext": {"runAsUser": 0},
    });
    sandbox("idle", &spec);
    wait(SANDBOXES, "jsonpath={.status.phase}=Paused", "idle");
    let status = get(&["sandbox", "idle", "-n", SANDBOXES])["status"].clone();
    assert_eq!(status["reason"], "Idle", "{status}");
    let id = status["runtimeID"].as_str().unwrap();
    let url = format!("{}/{id}/runtime/list_files", release.url);
    let woken = HttpClient::anonymous().get(&url).await;
    // Any answer of the sandbox server will do; the gateway itself would say 502 or 503.
    assert!(woken.status < 500, "{woken:?}");
    kubectl(&["delete", "sandbox", "idle", "-n", SANDBOXES]);
}
