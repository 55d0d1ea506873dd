//! Items 11 and 12: what goes through the gateway, and what does not. Item 11 in a short form: hours of
//! silence are the proxy's own tests.

use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tests::clients::Wire;

use crate::stage::{LIMIT, Stage, text};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn item_11_a_silent_action_survives() {
    let Some(stage) = Stage::set("black-box item 11") else {
        return;
    };
    let mut client = stage.connected("s").await;
    // Unless it is told to block, the server itself ends an action that is silent for 10 s.
    let args = json!({"command": "sleep 12; echo done", "blocking": true});
    let action = json!({"action": "run", "args": args, "timeout": 60});
    let observation = client.act(&action).await.unwrap();
    assert_eq!(observation["content"], "done", "{observation}");
}

#[tokio::test]
async fn item_11_large_files_go_both_ways() {
    let Some(stage) = Stage::set("black-box item 11") else {
        return;
    };
    stage.start("s", &json!({})).await;
    let info = stage.ready("s").await;
    let sandbox = Wire::of_session(&text(&info, "session_api_key"));
    let file = |verb: &str| {
        format!(
            "{}/api/file/{verb}?path=/workspace/large",
            text(&info, "url")
        )
    };
    let content: Vec<u8> = (0..=250).cycle().take(64 * MIB).collect();
    let body = Bytes::from(content.clone());
    let sent = sandbox
        .send(http::Method::POST, &file("upload"), body, LIMIT)
        .await;
    assert_eq!(sent.unwrap().status, 200);
    let back = sandbox.get(&file("download"), LIMIT).await.unwrap();
    assert_eq!(back.body, content);

    let mut client = stage.connected("v0").await;
    let content = vec![7; 64 * MIB];
    client
        .upload("large", &content, "/workspace")
        .await
        .unwrap();
    assert_eq!(
        client.run("stat -c %s /workspace/large").await.unwrap(),
        (64 * MIB).to_string()
    );
    client
        .run("head -c 67108864 /dev/urandom > /workspace/large")
        .await
        .unwrap();
    let zip = client.download("/workspace").await.unwrap();
    assert!(zip.len() > 64 * MIB, "{}", zip.len());
}

#[tokio::test]
async fn item_11_events_arrive_one_by_one() {
    let Some(stage) = Stage::set("black-box item 11") else {
        return;
    };
    stage.start("s", &json!({})).await;
    let info = stage.ready("s").await;
    let client = Client::builder(TokioExecutor::new()).build(
        hyper_util::client::legacy::connect::HttpConnector::new_with_resolver(
            tests::clients::wire::Here,
        ),
    );
    let request = http::Request::get(format!("{}/api/events/sse", text(&info, "url")))
        .header("X-Session-API-Key", text(&info, "session_api_key"))
        .body(http_body_util::Empty::<Bytes>::new())
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut events = response.into_body().into_data_stream();
    for number in 0..50 {
        let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
        let event = event.unwrap().unwrap().unwrap();
        assert_eq!(event, format!("data: {number}\n\n"));
    }
}

#[tokio::test]
async fn item_12_the_api_key_never_reaches_the_sandbox() {
    let Some(stage) = Stage::set("black-box item 12") else {
        return;
    };
    stage.start("s", &json!({})).await;
    let info = stage.ready("s").await;
    let key = text(&info, "session_api_key");
    let both = Wire::with_headers(&[
        ("X-API-Key", stage.key()),
        ("x-api-key", stage.key()),
        ("X-Session-API-Key", &key),
    ]);
    let path_form = format!("{}/{}/runtime", stage.api(), text(&info, "runtime_id"));
    for url in [text(&info, "url"), path_form] {
        let echo = both
            .get(&format!("{url}/api/echo?a=b"), LIMIT)
            .await
            .unwrap();
        let echo = echo.success().unwrap();
        assert_eq!(echo["headers"]["x-session-api-key"], json!([key]));
        assert_eq!(echo["uri"], "/api/echo?a=b");
        assert!(!echo.to_string().contains(stage.key()), "{echo}");
    }
}

#[tokio::test]
async fn item_12_a_wrong_session_key_is_refused_by_the_sandbox_itself() {
    let Some(stage) = Stage::set("black-box item 12") else {
        return;
    };
    stage.start("s", &json!({})).await;
    let info = stage.ready("s").await;
    let stranger = Wire::of_session("wrong");
    let v1 = stranger
        .get(&format!("{}/api/echo", text(&info, "url")), LIMIT)
        .await
        .unwrap();
    assert_eq!(
        (v1.status, v1.json().unwrap()),
        (401, json!({"detail": "Unauthorized"}))
    );
    let client = stage.connected("v0").await;
    let action = json!({"action": {"action": "run", "args": {"command": "true"}}});
    let v0 = stranger
        .post(&format!("{}/execute_action", client.url), &action, LIMIT)
        .await
        .unwrap();
    assert_eq!(v0.status, 403);
}
