//! V0 `RemoteRuntime` as it connects, acts, recovers and closes (`docs/specs/runtime-api.md`, sections 3.2 to 3.5).

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::clients::{ClientException, V0, V0Config};
use tests::fake_agent_server;

use crate::fixture::{CALL_TIMEOUT, Fixture, connected, fixture};

/// The calls without those of the wait loop and of the set-up.
fn story(client: &V0) -> Vec<String> {
    let polls = [
        "GET /runtime/",
        "GET //runtime/",
        "GET /alive",
        "POST /execute_action",
    ];
    let mut calls = client.wire.calls();
    calls.retain(|call| !polls.iter().any(|poll| call.starts_with(poll)));
    calls
}

/// A client whose sandbox outlives it.
fn kept(fixture: &Fixture) -> V0Config {
    V0Config {
        keep_runtime_alive: true,
        ..fixture.v0("s")
    }
}

#[tokio::test]
async fn connect_act_close() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.v0("s");
    config.environment.insert("GREETING".into(), json!("hello"));
    let mut client = connected(config).await;
    let said = client.run("echo $GREETING $SET_UP").await.unwrap();
    assert_eq!(said, "hello 1");
    let ports: Vec<_> = client.work_hosts.values().cloned().collect();
    assert_eq!(ports, [json!(12000), json!(12001)]);
    client.upload("a.txt", b"sent", "/workspace").await.unwrap();
    assert_eq!(client.run("cat /workspace/a.txt").await.unwrap(), "sent");
    let zip = client.download("/workspace").await.unwrap();
    assert!(zip.starts_with(b"PK"), "{zip:?}");
    client.close().await.unwrap();
    client.close().await.unwrap();
    let expected = [
        "GET /sessions/s 404",
        "POST /start 201",
        "POST /upload_file",
    ];
    let story = story(&client);
    let mut begin = story.iter().zip(expected);
    assert!(begin.all(|(call, e)| call.starts_with(e)), "{story:?}");
    assert_eq!(story.last().unwrap(), "POST /stop 200");
    let stops = story.iter().filter(|call| call.contains("/stop"));
    assert_eq!(stops.count(), 1);
    assert_eq!(client.run("true").await, Err(ClientException::Disconnected));
}

#[tokio::test]
async fn attach_finds_only_existing_runtime() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.v0("s");
    config.attach_to_existing = true;
    let mut early = V0::new(config.clone());
    assert_eq!(early.connect().await, Err(ClientException::NotFound));
    assert_eq!(story(&early), ["GET /sessions/s 404"]);

    let owner = fixture.connected("s").await;
    let mut attached = connected(config).await;
    assert_eq!(attached.id(), owner.id());
    assert_eq!(attached.run("echo here").await.unwrap(), "here");
    attached.close().await.unwrap();
    assert_eq!(story(&attached), ["GET /sessions/s 200"]);
    assert_eq!(fixture.session("s").await["status"], "running");
}

#[tokio::test]
async fn kept_runtime_is_paused_and_resumed_with_id_key_and_files() {
    let Some(fixture) = fixture() else { return };
    let config = kept(&fixture);
    let mut first = connected(config.clone()).await;
    first.run("echo kept > /workspace/file").await.unwrap();
    first.close().await.unwrap();
    assert_eq!(story(&first).last().unwrap(), "POST /pause 200");
    assert_eq!(fixture.session("s").await["status"], "paused");

    let mut second = connected(config).await;
    assert_eq!(second.runtime_id, first.runtime_id);
    assert_eq!(second.url, first.url);
    assert_eq!(second.session_key, first.session_key);
    assert_eq!(second.run("cat /workspace/file").await.unwrap(), "kept");
    assert_eq!(story(&second), ["GET /sessions/s 200", "POST /resume 200"]);
    // The first key is still valid: clients do not read it again after a resume.
    first.config.attach_to_existing = true;
    assert_eq!(first.run("echo still").await.unwrap(), "still");
}

#[tokio::test]
async fn client_resumes_and_repeats_after_503() {
    let Some(fixture) = fixture() else { return };
    let owner = fixture.connected("s").await;
    let id = json!({"runtime_id": owner.id()});
    let mut config = fixture.v0("s");
    config.attach_to_existing = true;
    let mut deserter = connected(config.clone()).await;
    config.keep_runtime_alive = true;
    let mut keeper = connected(config).await;

    assert_eq!(fixture.post("pause", &id).await.0, 200);
    let disconnected = Err(ClientException::Disconnected);
    assert_eq!(deserter.run("true").await, disconnected);
    assert_eq!(keeper.run("echo back").await.unwrap(), "back");
    assert_eq!(story(&keeper), ["GET /sessions/s 200", "POST /resume 200"]);
}

#[tokio::test]
async fn request_wakes_idle_paused_sandbox_without_503() {
    let Some(fixture) = fixture() else { return };
    let mut client = connected(kept(&fixture)).await;
    client.run("echo kept > /workspace/file").await.unwrap();
    fixture.patch(client.id(), &json!({"lifecycle": {"idleTimeout": "2s"}}));
    fixture.until("s", |info| info["status"] == "paused").await;
    fixture.patch(client.id(), &json!({"lifecycle": {"idleTimeout": "1h"}}));
    assert_eq!(client.run("cat /workspace/file").await.unwrap(), "kept");
    assert_eq!(story(&client), ["GET /sessions/s 404", "POST /start 201"]);
    assert_eq!(fixture.session("s").await["status"], "running");
}

#[tokio::test]
async fn close_succeeds_after_foreign_stop() {
    let Some(fixture) = fixture() else { return };
    let config = kept(&fixture);
    let mut client = connected(config.clone()).await;
    let id = json!({"runtime_id": client.id()});
    assert_eq!(fixture.post("stop", &id).await.0, 200);
    assert_eq!(client.run("true").await, Err(ClientException::Disconnected));
    client.close().await.unwrap();

    let again = connected(config).await;
    assert_ne!(again.id(), client.id());
    assert_eq!(story(&again), ["GET /sessions/s 200", "POST /start 201"]);
}

#[tokio::test]
async fn rejected_start_raises_its_own_error() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.v0("s");
    config.resource_factor = -1.0;
    let mut client = V0::new(config);
    let refused = ClientException::Unavailable("resource_factor must be greater than 0".into());
    assert_eq!(client.connect().await, Err(refused));
    // `runtime_id` was null.
    let expected = ["GET /sessions/s 404", "POST /start 400", "POST /stop 200"];
    assert_eq!(story(&client), expected);
}

#[tokio::test]
async fn base_url_may_end_in_a_slash() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.v0("s");
    config.api_url.push('/');
    let mut client = connected(config).await;
    client.close().await.unwrap();
    let expected = [
        "GET //sessions/s 404",
        "POST //start 201",
        "POST //stop 200",
    ];
    assert_eq!(story(&client), expected);
}

#[tokio::test]
async fn requests_wait_for_a_restarting_server() {
    let Some(fixture) = fixture() else { return };
    let mut config = fixture.v0("s");
    config.image = Some(fake_agent_server::IMAGE.into());
    config.command = vec!["/usr/local/bin/openhands-agent-server".into()];
    config.sets_environment_up = false;
    let mut client = connected(config).await;
    let before = fixture.session("s").await;
    // A server that is killed cannot answer. The second restart takes ten seconds.
    for restarts in [1, 2] {
        let crash = client.sandbox(Method::POST, "/api/crash/7", None, CALL_TIMEOUT);
        assert_eq!(crash.await.unwrap_err(), ClientException::Disconnected);
        let noticed = |info: &Value| {
            assert_ne!(info["status"], "error", "one crash is not fatal");
            info["pod_status"] != "Ready" || info["restart_count"] == restarts
        };
        fixture.until("s", noticed).await;
        let limit = Duration::from_secs(125);
        let next = client.sandbox(Method::GET, "/api/echo", None, limit).await;
        assert_eq!(next.unwrap().status, 200);
    }
    let info = fixture.until("s", |info| info["restart_count"] == 2).await;
    let reasons = json!(["exit code 7", "exit code 7"]);
    assert_eq!(info["restart_reasons"], reasons);
    for field in ["runtime_id", "url", "session_api_key"] {
        assert_eq!(info[field], before[field]);
    }
}

#[tokio::test]
async fn evaluation_retries_crash_loop_with_more_resources() {
    let Some(fixture) = fixture() else { return };
    let mut factor = 1.0;
    for attempt in ["eval-1__a1b2", "eval-1__c3d4"] {
        let mut config = fixture.v0(attempt);
        config.init_timeout = Duration::from_hours(1);
        config.resource_factor = factor;
        config.runtime_class = Some("sysbox-runc".into());
        let crashes = factor < 2.0;
        if crashes {
            config.command = ["sh", "-c", "exit 3"].map(Into::into).into();
        }
        let mut client = V0::new(config);
        let connected = client.connect().await;
        if crashes {
            let raised = ClientException::Unavailable("CrashLoopBackOff".into());
            assert_eq!(connected, Err(raised));
            assert_eq!(story(&client).last().unwrap(), "POST /stop 200");
            factor *= 2.0;
        } else {
            connected.unwrap();
            assert_eq!(fixture.session(attempt).await["resource_factor"], 2.0);
        }
    }
}
