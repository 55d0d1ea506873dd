//! V1's app server of 2025-11, and 1.11 (`docs/specs/runtime-api.md`, sections 3.7 and 3.10).

use serde_json::json;
use tests::clients::{HttpClient, SandboxStatus, V1App};
use tests::fake_agent_server;

use crate::fixture::{Fixture, fixture, text};

/// Base62 of 16 random bytes.
const ID: &str = "2xQbT9mWc0LrZkVn7YpA4e";

fn app(fixture: &Fixture) -> V1App {
    V1App::new(fixture.api(), fixture.key(), fake_agent_server::IMAGE)
}

#[tokio::test]
async fn sandbox_lifecycle_of_the_v1_app() {
    let Some(fixture) = fixture() else { return };
    let mut app = app(&fixture);
    assert_eq!(app.status(ID).await, SandboxStatus::Missing);
    assert!(!app.change("pause", ID).await.unwrap());
    let key = app.start(ID).await.unwrap();
    let running = app.wait(ID).await.unwrap();
    assert_eq!(app.status_of_1_11(ID).await, SandboxStatus::Running);

    let url = text(&running, "url");
    let sandbox = HttpClient::of_session(&key);
    let call = |path: &str| format!("{url}{path}");
    let (conversations, agent) = (call("/api/conversations"), json!({"agent": {}}));
    let created = sandbox.post(&conversations, &agent).await.success();
    assert_eq!(created["uri"], "/api/conversations");
    let environment = sandbox.get(&call("/api/environment")).await.success();
    assert_eq!(environment["OH_SESSION_API_KEYS_0"], key);
    assert_eq!(environment["OH_BASH_EVENTS_DIR"], "/workspace/bash_events");
    assert_eq!(environment["LOG_JSON"], "true");
    let hook = format!("https://app.example.com/api/v1/webhooks/{ID}");
    assert_eq!(environment["OH_WEBHOOKS_0_BASE_URL"], hook);
    let put = call("/api/file/upload?path=/workspace/notes");
    sandbox.post(&put, &json!("kept")).await.success();

    let listed = [(ID.into(), url.clone(), key.clone())];
    assert_eq!(app.poll().await.unwrap(), listed);
    assert!(app.change("pause", ID).await.unwrap());
    assert_eq!(app.status(ID).await, SandboxStatus::Paused);
    assert_eq!(app.status_of_1_11(ID).await, SandboxStatus::Paused);
    assert!(app.poll().await.unwrap().is_empty());
    assert!(app.change("resume", ID).await.unwrap());
    assert_eq!(text(&app.wait(ID).await.unwrap(), "url"), url);
    let got = call("/api/file/download?path=/workspace/notes");
    assert_eq!(sandbox.get(&got).await.success(), "kept");

    assert!(app.change("stop", ID).await.unwrap());
    assert_eq!(app.status(ID).await, SandboxStatus::Missing);
    assert_eq!(app.status_of_1_11(ID).await, SandboxStatus::Missing);
    assert!(app.change("stop", ID).await.unwrap());
    assert!(!app.change("resume", ID).await.unwrap());
}

#[tokio::test]
async fn exposed_urls_lead_to_their_ports() {
    let Some(fixture) = fixture() else { return };
    let mut app = app(&fixture);
    app.start(ID).await.unwrap();
    let running = app.wait(ID).await.unwrap();
    let (url, id) = (text(&running, "url"), text(&running, "runtime_id"));
    let path_form = format!("{}/{id}/runtime", fixture.api());
    let anonymous = HttpClient::anonymous();
    for service in ["vscode", "work-1", "work-2"] {
        for exposed in [
            V1App::exposed(&url, service).unwrap(),
            V1App::exposed_by_newer(&url, &id, service),
            V1App::exposed_by_newer(&path_form, &id, service),
        ] {
            let exposed = exposed.trim_end_matches('/');
            let page = format!("{exposed}/?tkn=t&folder=%2Fworkspace");
            let reply = anonymous.get(&page).await.success();
            let expected = json!({"port": service, "path": "/?tkn=t&folder=%2Fworkspace"});
            assert_eq!(reply, expected, "{page}");
        }
    }
    let hosts = running["work_hosts"].as_object().unwrap();
    assert_eq!(hosts.len(), 2);
    for (host, port) in hosts {
        let reply = anonymous.get(host).await.success();
        let service = if *port == 12000 { "work-1" } else { "work-2" };
        assert_eq!(reply["port"], service, "{host}");
    }
}

#[tokio::test]
async fn oldest_sandbox_is_paused_when_limit_is_reached() {
    let Some(fixture) = fixture() else { return };
    let mut app = app(&fixture);
    app.max_num_sandboxes = 2;
    for id in ["first", "second", "third"] {
        app.start(id).await.unwrap();
        app.wait(id).await.unwrap();
    }
    assert_eq!(app.status("first").await, SandboxStatus::Paused);
    assert_eq!(app.status("second").await, SandboxStatus::Running);
    assert_eq!(app.status("third").await, SandboxStatus::Running);
}

#[tokio::test]
async fn sandbox_that_cannot_start_is_an_error_and_is_deletable() {
    let Some(fixture) = fixture() else { return };
    let mut app = app(&fixture);
    app.command = json!(["/usr/local/bin/openhands-agent-server", "--exit", "9"]);
    app.start(ID).await.unwrap();
    assert!(app.wait(ID).await.is_err());
    assert_eq!(app.status(ID).await, SandboxStatus::Error);
    assert_eq!(app.status_of_1_11(ID).await, SandboxStatus::Error);
    assert!(app.change("stop", ID).await.unwrap());
    assert_eq!(app.status(ID).await, SandboxStatus::Missing);
}
