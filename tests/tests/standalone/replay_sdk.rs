//! `APIRemoteWorkspace` of the SDK (`docs/specs/runtime-api.md`, section 3.9), with its default class on a machine that
//! has none.

use http::Method;
use hyper::body::Bytes;
use serde_json::json;
use tests::clients::{ClientException, HttpClient, Sdk};
use tests::fake_agent_server::{EMPTY_IMAGE, IMAGE, empty_image};
use tokio_tungstenite::tungstenite::Message;

use crate::blackbox::streams::{echoes, listen, next};
use crate::fixture::{Fixture, fixture, fixture_with};

fn workspace(fixture: &Fixture, session: &str) -> Sdk {
    Sdk::new(fixture.api(), fixture.key(), session, IMAGE)
}

/// The calls without those of the polls.
fn story(workspace: &Sdk) -> Vec<String> {
    let mut calls = workspace.api.wire.calls();
    calls.dedup();
    calls
}

async fn put(workspace: &Sdk, content: &'static str) {
    let path = "/api/file/upload?path=/workspace/file";
    let reply = workspace.call(Method::POST, path, content.into()).await;
    reply.unwrap().success().unwrap();
}

async fn got(workspace: &Sdk) -> Bytes {
    let path = "/api/file/download?path=/workspace/file";
    let reply = workspace.call(Method::GET, path, Bytes::new()).await;
    let reply = reply.unwrap();
    assert_eq!(reply.status, 200);
    reply.body
}

#[tokio::test]
async fn workspace_is_created_used_and_cleaned_up() {
    let Some(fixture) = fixture() else { return };
    let session = "agent-server-5d0c6f0e-6c2b-4a86-9d6e-0f5f6c1b2a3d";
    let mut workspace = workspace(&fixture, session);
    workspace.environment = json!({"A": "1"});
    workspace.construct().await.unwrap();
    put(&workspace, "kept").await;
    assert_eq!(got(&workspace).await, "kept");
    let info = fixture.session(session).await;
    let line = "/usr/local/bin/openhands-agent-server --port 60000";
    assert_eq!(
        (&info["command"], &info["working_dir"]),
        (&json!(line), &json!("/"))
    );
    assert!(info["runtime_class"].is_null(), "{info}");
    workspace.cleanup().await;
    let expected = [
        format!("GET /sessions/{session} 404"),
        "POST /start 201".into(),
        format!("GET /sessions/{session} 200"),
        "POST /stop 200".into(),
    ];
    assert_eq!(story(&workspace), expected);
    assert_eq!(fixture.session(session).await["status"], "stopped");
}

#[tokio::test]
async fn workspace_is_paused_resumed_and_attached() {
    let Some(fixture) = fixture() else { return };
    let mut first = workspace(&fixture, "s");
    first.keep_alive = true;
    first.construct().await.unwrap();
    put(&first, "kept").await;
    first.pause().await.unwrap();
    first.resume().await.unwrap();
    assert_eq!(got(&first).await, "kept");
    first.pause().await.unwrap();
    first.cleanup().await;

    let mut second = workspace(&fixture, "s");
    second.pause_on_close = true;
    second.construct().await.unwrap();
    assert_eq!((&second.host, &second.key), (&first.host, &first.key));
    assert_eq!(got(&second).await, "kept");
    second.cleanup().await;
    let expected = [
        "GET /sessions/s 200",
        "POST /resume 200",
        "GET /sessions/s 200",
        "POST /pause 200",
    ];
    assert_eq!(story(&second), expected);
}

#[tokio::test]
async fn session_id_none_is_not_special() {
    let Some(fixture) = fixture() else { return };
    let mut workspace = workspace(&fixture, "None");
    workspace.construct().await.unwrap();
    workspace.cleanup().await;
}

#[tokio::test]
async fn crash_loop_is_raised_and_sandbox_is_stopped() {
    let root = tempfile::tempdir().unwrap();
    let args = ["--url-form", "nested", &empty_image(root.path())];
    let Some(fixture) = fixture_with(&args) else {
        return;
    };
    let mut workspace = workspace(&fixture, "s");
    workspace.server_image = EMPTY_IMAGE.into();
    workspace.runtime_class = None;
    let raised = workspace.construct().await.unwrap_err();
    let fatal = ["failed", "crashloopbackoff"].map(|f| ClientException::Value(f.into()));
    assert!(fatal.contains(&raised), "{raised:?}");
    assert_eq!(story(&workspace).last().unwrap(), "POST /stop 200");
}

#[tokio::test]
async fn path_url_fails_the_workspace_and_stops_the_runtime() {
    let Some(fixture) = fixture_with(&["--url-form", "path"]) else {
        return;
    };
    let mut workspace = workspace(&fixture, "s");
    let raised = workspace.construct().await;
    let path = matches!(raised, Err(ClientException::Assertion(_)));
    assert!(path, "{raised:?}");
    assert_eq!(story(&workspace).last().unwrap(), "POST /stop 200");
}

#[tokio::test]
async fn websocket_events_follow_authentication_frame() {
    let Some(fixture) = fixture() else { return };
    let mut workspace = workspace(&fixture, "s");
    workspace.construct().await.unwrap();
    let mut socket = listen(&workspace.host, &workspace.key).await;
    let ready = Message::text(r#"{"kind":"ready"}"#);
    assert_eq!(next(&mut socket).await, ready);
    echoes(&mut socket, Message::text("a")).await;
    echoes(&mut socket, Message::binary(vec![7_u8; 1 << 20])).await;
    socket.close(None).await.unwrap();

    let mut stranger = listen(&workspace.host, "wrong").await;
    let Message::Close(Some(end)) = next(&mut stranger).await else {
        panic!("let in");
    };
    assert_eq!(u16::from(end.code), 4001);
    // Older releases say it in the query instead of the key header of the call.
    let anonymous = HttpClient::anonymous();
    let url = format!("{}/api/echo?session_api_key=wrong", workspace.host);
    assert_eq!(anonymous.get(&url).await.status, 401);
}
