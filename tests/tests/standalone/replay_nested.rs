//! V0's nested conversation manager (runtime API spec 3.6), in both routing modes.

use tests::clients::Wire;
use tests::clients::v0::{NestedManager, Routing};
use tests::double;

use crate::stage::{LIMIT, Stage, text};

/// The nested server, played by the double.
const COMMAND: [&str; 5] = [
    "/usr/local/bin/openhands-agent-server",
    "-u",
    "-m",
    "openhands.server",
    "60000",
];

fn manager(stage: &Stage, routing: Routing) -> NestedManager {
    let host = stage.api().strip_prefix("http://").unwrap();
    let pattern = match routing {
        Routing::Subdomain => format!("http://{{runtime_id}}.{host}"),
        Routing::Path => format!("http://{host}/{{runtime_id}}"),
    };
    NestedManager::new(stage.api(), stage.key(), &pattern, routing)
}

async fn whole_life(routing: Routing) {
    let Some(stage) = Stage::set("nested manager replay") else {
        return;
    };
    let manager = manager(&stage, routing);
    let sid = "3f2b9d0c1e4a4f6f8a7b6c5d4e3f2a1b";
    assert_eq!(manager.status(sid).await.unwrap(), "STOPPED");
    assert!(manager.running().await.unwrap().is_empty());
    let runtime = manager.start(sid, double::IMAGE, &COMMAND).await.unwrap();
    assert_eq!(manager.running().await.unwrap(), [sid]);
    assert_eq!(manager.status(sid).await.unwrap(), "RUNNING");
    assert!(manager.is_nested(sid).await.unwrap());

    // The key that the nested server signs its web hooks with is the one that the API told.
    let told = text(&stage.session(sid).await, "session_api_key");
    let nested = Wire::of_session(&told);
    let url = manager.conversation(runtime.id(), sid);
    let url = url.replace(&format!("/api/conversations/{sid}"), "/api/environment");
    let environment = nested.get(&url, LIMIT).await.unwrap().success().unwrap();
    assert_eq!(environment["SESSION_API_KEY"], told);
    assert_eq!(environment["ALLOW_SET_CONVERSATION_ID"], "1");
    assert_eq!(environment["WORK_PORT_1"], "12000");

    assert_eq!(manager.close(sid).await.unwrap().status, 200);
    assert_eq!(manager.status(sid).await.unwrap(), "STOPPED");
    assert!(manager.running().await.unwrap().is_empty());
    let again = manager.start(sid, double::IMAGE, &COMMAND).await.unwrap();
    assert_eq!(again.id(), runtime.id());

    let id = serde_json::json!({"runtime_id": runtime.id()});
    stage.post("stop", &id).await;
    assert_eq!(manager.status(sid).await.unwrap(), "ARCHIVED");
}

#[tokio::test]
async fn a_conversation_by_subdomain() {
    whole_life(Routing::Subdomain).await;
}

#[tokio::test]
async fn a_conversation_by_path() {
    whole_life(Routing::Path).await;
}

#[tokio::test]
async fn its_web_hooks_are_told_by_the_command_of_the_session() {
    let Some(stage) = Stage::set("nested manager replay") else {
        return;
    };
    let manager = manager(&stage, Routing::Subdomain);
    let line = "/usr/local/bin/openhands-agent-server -m openhands.server";
    stage
        .start("line", &serde_json::json!({"command": line}))
        .await;
    assert!(manager.is_nested("line").await.unwrap());
    assert_eq!(stage.session("line").await["command"], line);
    stage.start("plain", &serde_json::json!({})).await;
    assert!(!manager.is_nested("plain").await.unwrap());
}
