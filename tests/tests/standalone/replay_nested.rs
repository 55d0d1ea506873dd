//! V0's nested conversation manager (`docs/specs/runtime-api.md`, section 3.6), in both routing modes.

use serde_json::json;
use tests::clients::HttpClient;
use tests::clients::v0::{NestedManager, Routing};
use tests::fake_agent_server;

use crate::fixture::{Fixture, fixture, text};

/// The nested server, played by the double.
const COMMAND: [&str; 5] = [
    "/usr/local/bin/openhands-agent-server",
    "-u",
    "-m",
    "openhands.server",
    "60000",
];

fn manager(fixture: &Fixture, routing: Routing) -> NestedManager {
    let host = fixture.api().strip_prefix("http://").unwrap();
    let pattern = match routing {
        Routing::Subdomain => format!("http://{{runtime_id}}.{host}"),
        Routing::Path => format!("http://{host}/{{runtime_id}}"),
    };
    NestedManager::new(fixture.api(), fixture.key(), &pattern, routing)
}

async fn whole_life(routing: Routing) {
    let Some(fixture) = fixture() else { return };
    let manager = manager(&fixture, routing);
    let sid = "3f2b9d0c1e4a4f6f8a7b6c5d4e3f2a1b";
    assert_eq!(manager.status(sid).await.unwrap(), "STOPPED");
    assert!(manager.running().await.unwrap().is_empty());
    let start = async || manager.start(sid, fake_agent_server::IMAGE, &COMMAND).await;
    let runtime = start().await.unwrap();
    assert_eq!(manager.running().await.unwrap(), [sid]);
    assert_eq!(manager.status(sid).await.unwrap(), "RUNNING");
    assert!(manager.is_nested(sid).await.unwrap());

    // The key that the nested server signs its web hooks with is the one that the API told.
    let told = text(&fixture.session(sid).await, "session_api_key");
    let nested = HttpClient::of_session(&told);
    let url = manager.conversation(runtime.id(), sid);
    let url = url.replace(&format!("/api/conversations/{sid}"), "/api/environment");
    let environment = nested.get(&url).await.success();
    assert_eq!(environment["SESSION_API_KEY"], told);
    assert_eq!(environment["ALLOW_SET_CONVERSATION_ID"], "1");
    assert_eq!(environment["WORK_PORT_1"], "12000");

    assert_eq!(manager.close(sid).await.unwrap().status, 200);
    assert_eq!(manager.status(sid).await.unwrap(), "STOPPED");
    assert!(manager.running().await.unwrap().is_empty());
    assert_eq!(start().await.unwrap().id(), runtime.id());

    let id = json!({"runtime_id": runtime.id()});
    fixture.post("stop", &id).await;
    assert_eq!(manager.status(sid).await.unwrap(), "ARCHIVED");
}

#[tokio::test]
async fn conversation_lifecycle_by_subdomain() {
    whole_life(Routing::Subdomain).await;
}

#[tokio::test]
async fn conversation_lifecycle_by_path() {
    whole_life(Routing::Path).await;
}

#[tokio::test]
async fn nested_server_is_recognized_by_the_command() {
    let Some(fixture) = fixture() else { return };
    let manager = manager(&fixture, Routing::Subdomain);
    let line = "/usr/local/bin/openhands-agent-server -m openhands.server";
    fixture.start("line", &json!({"command": line})).await;
    assert!(manager.is_nested("line").await.unwrap());
    assert_eq!(fixture.session("line").await["command"], line);
    fixture.start("plain", &json!({})).await;
    assert!(!manager.is_nested("plain").await.unwrap());
}
