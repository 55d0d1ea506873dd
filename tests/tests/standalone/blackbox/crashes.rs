//! Item 9: commands that end when they should not.

use serde_json::json;
use tests::clients::HttpClient;

use crate::fixture::{CALL_TIMEOUT, Fixture, text};

#[tokio::test]
async fn item_9_one_crash_is_not_fatal() {
    let Some(fixture) = Fixture::set("black-box item 9") else {
        return;
    };
    fixture.start("s", &json!({})).await;
    let info = fixture.ready("s").await;
    let sandbox = HttpClient::of_session(&text(&info, "session_api_key"));
    let crash = format!("{}/api/crash/1", text(&info, "url"));
    let answer = sandbox
        .post(&crash, &json!({}), CALL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(answer.status, 502);
    let fatal = ["CrashLoopBackOff", "Failed", "Unknown"].map(|s| json!(s));
    let back = fixture
        .until("s", |info| {
            assert!(!fatal.contains(&info["pod_status"]), "{info}");
            info["restart_count"] == 1 && info["pod_status"] == "Ready"
        })
        .await;
    assert_eq!(back["restart_reasons"], json!(["exit code 1"]));
    for field in ["runtime_id", "url", "session_api_key"] {
        assert_eq!(back[field], info[field]);
    }
}

#[tokio::test]
async fn item_9_a_crash_loop_is_told_with_its_reasons() {
    let Some(fixture) = Fixture::set("black-box item 9") else {
        return;
    };
    let command = json!(["/usr/local/bin/openhands-agent-server", "--exit", "9"]);
    fixture.start("s", &json!({"command": command})).await;
    let looped = fixture
        .until("s", |info| info["pod_status"] == "CrashLoopBackOff")
        .await;
    assert_eq!(looped["status"], "error");
    assert!(looped["status_detail"].is_string());
    let reasons = looped["restart_reasons"].as_array().unwrap();
    assert!(
        !reasons.is_empty() && reasons.iter().all(|r| r == "exit code 9"),
        "{looped}"
    );
    // A new start of the session is a new runtime.
    let (status, anew) = fixture.start("s", &json!({})).await;
    assert_eq!(status, 201);
    assert_ne!(anew["runtime_id"], looped["runtime_id"]);
    fixture.ready("s").await;
}

#[tokio::test]
async fn item_9_a_lack_of_memory_is_told() {
    let Some(fixture) = Fixture::set("black-box item 9") else {
        return;
    };
    let (_, info) = fixture.start("s", &json!({})).await;
    fixture.ready("s").await;
    if !fixture.state.path().join("node/cgroups").exists() {
        eprintln!("SKIPPED, needs memory groups: OOMKilled");
        return;
    }
    let sandbox = HttpClient::of_session(&text(&info, "session_api_key"));
    let memory = format!("{}/api/memory", text(&info, "url"));
    let answer = sandbox
        .post(&memory, &json!({}), 6 * CALL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(answer.status, 502);
    let back = fixture.until("s", |info| info["restart_count"] == 1).await;
    assert_eq!(back["restart_reasons"], json!(["OOMKilled"]));
}
