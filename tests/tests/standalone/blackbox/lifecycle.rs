//! Items 1 to 5: a sandbox from its start to its end.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tests::clients::{ClientException, HttpClient};
use tokio::time::Instant;

use crate::fixture::{CALL_TIMEOUT, fixture, text};

#[tokio::test]
async fn item_1_start_is_answered_at_once_and_visible() {
    let Some(fixture) = fixture() else { return };
    let (wire, limit) = (fixture.wire(), Duration::from_secs(2));
    let body = json!({"session_id": "s", "image": "debian:12", "command": ["sleep", "60"]});
    let started = wire.try_post(&fixture.url("/start"), &body, limit).await;
    let started = started.unwrap();
    assert_eq!(started.status, 201);
    let id = text(&started.json().unwrap(), "runtime_id");
    for path in [format!("/runtime/{id}"), "/sessions/s".into()] {
        let info = wire.try_get(&fixture.url(&path), limit).await.unwrap();
        let info = info.success().unwrap();
        assert!(info["pod_status"].is_string(), "{info}");
        assert!(info["restart_count"].is_u64(), "{info}");
        assert_eq!(info["runtime_id"], id.as_str());
    }
}

#[tokio::test]
async fn item_3_concurrent_starts_of_one_session_make_one_runtime() {
    let Some(fixture) = fixture() else { return };
    let nothing = json!({});
    let started = join_all((0..16).map(|_| fixture.start("s", &nothing))).await;
    for (status, info) in &started {
        assert_eq!(*status, 201, "{info}");
        for field in ["runtime_id", "url", "session_api_key"] {
            assert_eq!(info[field], started[0].1[field]);
        }
    }
    assert_eq!(fixture.kubectl("get sbx -o name").lines().count(), 1);
}

#[tokio::test]
async fn item_4_pause_is_visible_at_once_and_resume_restores_the_sandbox() {
    let Some(fixture) = fixture() else { return };
    let mut client = fixture.connected("s").await;
    client.run("echo kept > /workspace/file").await.unwrap();
    let before = fixture.session("s").await;
    let id = json!({"runtime_id": client.id()});
    assert_eq!(fixture.post("pause", &id).await.0, 200);
    let paused = fixture.session("s").await;
    assert_eq!(
        (&paused["status"], &paused["pod_status"]),
        (&json!("paused"), &json!("Not Found"))
    );

    let within = Instant::now() + Duration::from_secs(5);
    let anonymous = HttpClient::anonymous();
    let alive = format!("{}/alive", client.url);
    loop {
        let reply = anonymous.try_get(&alive, CALL_TIMEOUT).await.unwrap();
        if reply.status == 503 {
            assert!(reply.json().unwrap()["detail"].is_string());
            assert!(reply.headers.contains_key("retry-after"));
            break;
        }
        assert!(Instant::now() < within, "still {}", reply.status);
    }

    let (status, resumed) = fixture.post("resume", &id).await;
    assert_eq!(status, 200);
    let kept = "runtime_id url session_api_key session_id work_hosts command image";
    for field in kept.split(' ') {
        assert_eq!(resumed[field], before[field], "{field}");
    }
    for field in ["status", "pod_status"] {
        assert!(resumed[field].is_string());
    }
    assert_ne!(fixture.session("s").await["status"], "paused");
    fixture.ready("s").await;
    assert_eq!(client.run("cat /workspace/file").await.unwrap(), "kept");
}

#[tokio::test]
async fn item_5_stopped_id_is_never_reused() {
    let Some(fixture) = fixture() else { return };
    let mut client = fixture.connected("s").await;
    let id = json!({"runtime_id": client.id()});
    assert_eq!(fixture.post("stop", &id).await.0, 200);
    let alive = format!("{}/alive", client.url);
    assert_eq!(HttpClient::anonymous().get(&alive).await.status, 404);
    assert_eq!(fixture.session("s").await["status"], "stopped");
    assert_eq!(client.run("true").await, Err(ClientException::Disconnected));
    let (status, second) = fixture.start("s", &json!({})).await;
    assert_eq!(status, 201);
    assert_ne!(second["runtime_id"], client.id());
    let newest = async || fixture.session("s").await["runtime_id"].clone();
    assert_eq!(newest().await, second["runtime_id"]);
    assert_eq!(fixture.post("resume", &id).await.0, 404);
    assert_eq!(fixture.post("pause", &id).await.0, 200);
    assert_eq!(newest().await, second["runtime_id"]);
}
