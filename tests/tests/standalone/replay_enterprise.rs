//! The newest app server (`docs/specs/runtime-api.md`, section 3.8): strict models, batches, quota, and keys that have to
//! be the ones that the API told last.

use serde_json::{Value, json};
use tests::clients::{Enterprise, HttpClient, SandboxStatus};
use tests::fake_agent_server;

use crate::fixture::{CALL_TIMEOUT, Fixture, fixture, text};

fn enterprise(fixture: &Fixture) -> Enterprise {
    Enterprise::new(fixture.api(), fixture.key(), fake_agent_server::IMAGE)
}

fn spec() -> Value {
    json!({
        "image": fake_agent_server::IMAGE, "working_dir": "/workspace/project",
        "command": ["/usr/local/bin/openhands-agent-server", "--port", "60000"],
        "environment": {"LOG_JSON": "1", "LMNR_BASE_URL": "", "OH_VSCODE_PORT": "60001"},
    })
}

/// The key that the sandbox signs its web hooks with.
async fn hook_key(runtime: &Value) -> String {
    let sandbox = HttpClient::of_session(&text(runtime, "session_api_key"));
    let url = format!("{}/api/environment", text(runtime, "url"));
    let environment = sandbox.get(&url).await.success();
    text(&environment, "OH_SESSION_API_KEYS_0")
}

#[tokio::test]
async fn web_hook_keys_are_accepted_through_pause_and_resume() {
    let Some(fixture) = fixture() else { return };
    let mut client = enterprise(&fixture);
    let runtime = client.start("a", &spec()).await.unwrap();
    assert_eq!(runtime["session_id"], "a");
    let running = client.wait("a", CALL_TIMEOUT).await.unwrap();
    assert!(client.lets_in("a", &hook_key(&running).await));

    assert!(client.pause("a").await.unwrap());
    assert_eq!(client.status("a").await, SandboxStatus::Paused);
    assert!(!client.lets_in("a", &text(&running, "session_api_key")));
    assert!(client.resume("a").await.unwrap());
    let resumed = client.wait("a", CALL_TIMEOUT).await.unwrap();
    assert!(client.lets_in("a", &hook_key(&resumed).await));

    assert!(client.delete("a").await.unwrap());
    assert_eq!(client.status("a").await, SandboxStatus::Missing);
    // The tombstone can be deleted once more; what never was is not there.
    assert!(client.delete("a").await.unwrap());
    assert!(!client.delete("never").await.unwrap());
}

#[tokio::test]
async fn null_command_runs_the_entrypoint_of_the_image() {
    let Some(fixture) = fixture() else { return };
    let mut client = enterprise(&fixture);
    let mut spec = spec();
    spec["command"] = Value::Null;
    client.start("a", &spec).await.unwrap();
    // This image has no entrypoint, so it ends, and says so in the strict types.
    let seen = client.status("a").await;
    let starting = seen == SandboxStatus::Starting;
    assert!(starting || seen == SandboxStatus::Error, "{seen:?}");
    assert_eq!(client.list().await.unwrap().len(), usize::from(starting));
}

#[tokio::test]
async fn batches_are_positional() {
    let Some(fixture) = fixture() else { return };
    let mut client = enterprise(&fixture);
    for id in ["a", "b", "c"] {
        client.start(id, &spec()).await.unwrap();
    }
    for id in ["a", "b", "c"] {
        client.wait(id, CALL_TIMEOUT).await.unwrap();
    }
    client.pause("b").await.unwrap();
    client.delete("c").await.unwrap();
    let long = "x".repeat(64);
    let mut ids: Vec<_> = (0..200).map(|n| format!("unknown-{n}-{long}")).collect();
    for (at, id) in [(3, "a"), (77, "b"), (150, "c"), (199, "a")] {
        ids[at] = id.into();
    }
    let statuses = client.batch(&ids).await.unwrap();
    for (at, status) in statuses.iter().enumerate() {
        let expected = match at {
            3 | 199 => SandboxStatus::Running,
            77 => SandboxStatus::Paused,
            _ => SandboxStatus::Missing,
        };
        assert_eq!(*status, expected, "entry {at}");
    }
    assert!(client.batch(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn quota_counts_listed_sandboxes_and_pauses_the_oldest() {
    let Some(fixture) = fixture() else { return };
    let mut client = enterprise(&fixture);
    client.quota = 2;
    for id in ["a", "b", "c", "d"] {
        client.start(id, &spec()).await.unwrap();
        client.wait(id, CALL_TIMEOUT).await.unwrap();
    }
    let listed = client.list().await.unwrap();
    let mut listed: Vec<_> = listed.iter().map(|r| text(r, "session_id")).collect();
    listed.sort_unstable();
    assert_eq!(listed, ["c", "d"]);
    assert_eq!(client.status("a").await, SandboxStatus::Paused);
}
