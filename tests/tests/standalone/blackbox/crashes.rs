//! Item 9: commands that end when they should not.

use serde_json::json;

use crate::fixture::{fixture, text};

#[tokio::test]
async fn item_9_one_crash_is_not_fatal() {
    let Some(fixture) = fixture() else { return };
    let (info, sandbox) = fixture.started("s").await;
    let crash = format!("{}/api/crash/1", text(&info, "url"));
    assert_eq!(sandbox.post(&crash, &json!({})).await.status, 502);
    let fatal = ["CrashLoopBackOff", "Failed", "Unknown"].map(|s| json!(s));
    let back = fixture.until("s", |info| {
        assert!(!fatal.contains(&info["pod_status"]), "{info}");
        info["restart_count"] == 1 && info["pod_status"] == "Ready"
    });
    let back = back.await;
    assert_eq!(back["restart_reasons"], json!(["exit code 1"]));
    for field in ["runtime_id", "url", "session_api_key"] {
        assert_eq!(back[field], info[field]);
    }
}

#[tokio::test]
async fn item_9_crash_loop_is_reported_with_restart_reasons() {
    let Some(fixture) = fixture() else { return };
    let command = json!(["/usr/local/bin/openhands-agent-server", "--exit", "9"]);
    fixture.start("s", &json!({"command": command})).await;
    let looped = fixture.until("s", |info| info["pod_status"] == "CrashLoopBackOff");
    let looped = looped.await;
    assert_eq!(looped["status"], "error");
    assert!(looped["status_detail"].is_string());
    let reasons = looped["restart_reasons"].as_array().unwrap();
    let same = reasons.iter().all(|r| r == "exit code 9");
    assert!(!reasons.is_empty() && same, "{looped}");
    // A new start of the session is a new runtime.
    let (status, anew) = fixture.start("s", &json!({})).await;
    assert_eq!(status, 201);
    assert_ne!(anew["runtime_id"], looped["runtime_id"]);
    fixture.ready("s").await;
}

#[tokio::test]
async fn item_9_oom_kill_is_reported() {
    let Some(fixture) = fixture() else { return };
    let (info, sandbox) = fixture.started("s").await;
    if !fixture.state.path().join("node/cgroups").exists() {
        eprintln!("SKIPPED, needs memory groups: OOMKilled");
        return;
    }
    let place = fixture.kubectl("get sbx -o jsonpath={.items[0].status.podIP}");
    let memory = format!("{}/api/memory", text(&info, "url"));
    assert_eq!(sandbox.post(&memory, &json!({})).await.status, 502);
    let back = fixture.until("s", |info| info["restart_count"] == 1).await;
    assert_eq!(back["restart_reasons"], json!(["OOMKilled"]));
    for field in ["runtime_id", "url", "session_api_key"] {
        assert_eq!(back[field], info[field]);
    }
    // The container is started again in its Pod.
    let now = fixture.kubectl("get sbx -o jsonpath={.items[0].status.podIP}");
    assert_eq!(now, place);
}
