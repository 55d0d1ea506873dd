//! The tools of an administrator, and the app server that lives by what they store (`docs/specs/runtime-api.md`, section
//! 1.11, 3.8).

use http::Method;
use serde_json::{Value, json};
use tests::clients::{Admin, ClientException, Enterprise, SandboxStatus, admin};
use tests::fake_agent_server;

use crate::fixture::{CALL_TIMEOUT, Fixture, fixture, fixture_with, start};

const PASSWORD: &str = "open sesame";

const NESTED: [&str; 3] = ["--url-form", "nested", "--admin-password"];

/// A standalone that has an administrator.
fn administered() -> Option<Fixture> {
    fixture_with(&[&NESTED[..], &[PASSWORD]].concat())
}

fn status(outcome: Result<impl std::fmt::Debug, ClientException>) -> u16 {
    match outcome {
        Err(ClientException::Http {
            status,
            detail: Some(_),
        }) => status,
        other => panic!("no answer of HTTP with a detail: {other:?}"),
    }
}

#[tokio::test]
async fn app_starts_stored_warm_config() {
    let Some(fixture) = administered() else {
        return;
    };
    let mut tool = Admin::new(fixture.api());
    tool.log_in(PASSWORD).await.unwrap();
    let mut app = Enterprise::new(fixture.api(), fixture.key(), fake_agent_server::IMAGE);
    assert_eq!(app.specs().await.unwrap(), Vec::<Value>::new());

    let config = json!({
        "image": fake_agent_server::IMAGE, "working_dir": "/workspace/project", "count": 0,
        "command": ["/usr/local/bin/openhands-agent-server", "--port", "60000"],
        "environment": {"LOG_JSON": "1"}, "run_as_user": 10001, "fs_group": 10001,
    });
    let stored = tool.put("v1_current", &config).await.unwrap();
    for (field, value) in config.as_object().unwrap() {
        assert_eq!(stored[field], *value, "{field}");
    }
    let specs = app.specs().await.unwrap();
    assert_eq!(specs, [stored]);
    app.start("a", &specs[0]).await.unwrap();
    app.wait("a", CALL_TIMEOUT).await.unwrap();
    assert_eq!(app.status("a").await, SandboxStatus::Running);

    // A second PUT replaces it, and a DELETE is visible to every client.
    let mut other = config.clone();
    other["environment"] = json!({"LOG_JSON": "0"});
    let changed = tool.put("v1_current", &other).await.unwrap();
    for (field, value) in [
        ("run_as_user", json!(-1)),
        ("run_as_group", json!(-1)),
        ("fs_group", json!(-1)),
        ("image", json!("")),
        ("image", json!("x".repeat(5000))),
        ("working_dir", json!("not/absolute")),
        ("count", json!(1_000_000_000)),
    ] {
        let mut refused = config.clone();
        refused[field] = value;
        let code = status(tool.put("v1_current", &refused).await);
        assert_eq!(code, 400, "{field}, by a rule of the CRD");
    }
    assert_eq!(app.specs().await.unwrap(), [changed]);

    tool.delete("v1_current").await.unwrap();
    assert_eq!(status(tool.delete("v1_current").await), 404);
    assert_eq!(app.specs().await.unwrap(), Vec::<Value>::new());
    assert_eq!(app.status("a").await, SandboxStatus::Running);

    let key = tool.default_key().await.unwrap();
    assert_eq!(key["key_value"], "");
}

#[tokio::test]
async fn login_fails_with_wrong_password() {
    let Some(fixture) = administered() else {
        return;
    };
    let mut tool = Admin::new(fixture.api());
    assert_eq!(status(tool.log_in("guess").await), 401);
    assert_eq!(status(tool.default_key().await), 401);
    // A challenge is good for one attempt, a right one too.
    let challenge = tool.call(Method::GET, "challenge", None).await.unwrap();
    let answer = admin::solve(&challenge, PASSWORD).unwrap();
    tool.answer(&answer).await.unwrap();
    assert_eq!(status(tool.answer(&answer).await), 400);
    tool.default_key().await.unwrap();
    // A token survives a restart, and a new password ends it.
    let Fixture { standalone, state } = fixture;
    standalone.stop();
    let again = |password| start(state.path(), &[&NESTED[..], &[password]].concat());
    let same = again(PASSWORD);
    tool.default_key().await.unwrap();
    same.stop();
    let other = again("another");
    assert_eq!(status(tool.default_key().await), 401);
    other.stop();
}

#[tokio::test]
async fn admin_login_is_rejected_without_password() {
    let Some(fixture) = fixture() else { return };
    let mut tool = Admin::new(fixture.api());
    let refused = tool.log_in(PASSWORD).await;
    assert_eq!(status(refused.clone()), 403);
    assert!(format!("{refused:?}").contains("admin"), "{refused:?}");
}
