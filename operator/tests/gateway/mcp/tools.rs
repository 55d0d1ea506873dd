//! The tools: tenancy, changes through the API, and actions through the proxy.

use crds::sandbox::{DesiredState, PauseReason, Phase, PodStatus, SandboxStatus};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use testing::FakeApi;

use crate::support::gateway_fixture::{
    GatewayFixture, KEY, OTHER_KEY, config, failed, read, ready, recorded_tenants,
};
use crate::support::mcp_client::{cancellation, message, outcome, post, tool_request};
use crate::support::socket_fixture::{RawConnection, SocketFixture};

/// A response of the server in a sandbox.
fn observation(kind: &str, content: &str, extras: &Value) -> String {
    let body = json!({"observation": kind, "content": content, "extras": extras}).to_string();
    format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n{body}", body.len())
}

/// The next action that a sandbox is asked for. Checks the session key.
async fn action(sandbox: &mut RawConnection, key: &str) -> Value {
    let request = sandbox.message().await;
    assert!(
        request.contains(&format!("x-session-api-key: {}\n", key.to_lowercase())),
        "{request}"
    );
    assert!(!request.contains(KEY), "{request}");
    let body = &request[request.find('{').unwrap()..];
    serde_json::from_str::<Value>(body).unwrap()["action"].clone()
}

async fn session_key(fixture: &GatewayFixture) -> String {
    let info = fixture.found("/sessions/s1").await;
    info["session_api_key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn list_shows_own_sandboxes_without_keys() {
    let fixture = GatewayFixture::new();
    fixture.add(1, &ready("127.0.0.1"));
    let (is_error, text) = fixture.tool("list", &json!({})).await;
    assert_eq!((is_error, &*text), (false, "\"s1\": running, image"));
    let (_, text) = fixture.tool_as(OTHER_KEY, "list", &json!({})).await;
    assert_eq!(text, "there is no sandbox; create makes one");
    let (_, answer) = fixture
        .mcp("tools/call", &json!({"name": "list", "arguments": {}}))
        .await;
    assert!(!answer.to_string().contains(&session_key(&fixture).await));
    assert_eq!(answer["result"]["structuredContent"]["total"], 1);
}

#[tokio::test]
async fn list_shows_paused_sandboxes_after_live_ones_and_no_ended_ones() {
    let fixture = GatewayFixture::new();
    for session in ["idle", "ended", "broken"] {
        fixture.add_session(session, 1, &ready("127.0.0.1"));
    }
    let requested = fixture.add_session("asleep", 1, &ready("127.0.0.1"));
    fixture.add_session("live", 1, &ready("127.0.0.1"));
    let id = |session: &str| {
        fixture
            .keys
            .session_runtime_id("sandboxes", "default", session, 0)
    };
    assert_eq!(fixture.change("/pause", &requested).await.0, 200);
    assert_eq!(fixture.change("/stop", &id("ended")).await.0, 200);
    fixture.report(&id("idle"), &idle());
    fixture.report(&id("broken"), &failed(PodStatus::CrashLoopBackOff));

    let params = json!({"name": "list", "arguments": {}});
    let (_, answer) = fixture.mcp("tools/call", &params).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.remove(0), "\"live\": running, image");
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["\"asleep\": paused, image", "\"idle\": paused, image"]
    );
    let content = &answer["result"]["structuredContent"];
    assert_eq!(content["total"], 3);
    let paused = content["sandboxes"].as_array().unwrap()[1..].iter();
    for sandbox in paused {
        assert_eq!(
            (&sandbox["status"], &sandbox["ready"]),
            (&json!("paused"), &json!(false)),
            "{sandbox}"
        );
    }
    assert!(!answer.to_string().contains("session_api_key"));
    let (_, others) = fixture.tool_as(OTHER_KEY, "list", &json!({})).await;
    assert_eq!(others, "there is no sandbox; create makes one");
}

/// Status of a sandbox that was paused because it was idle.
fn idle() -> SandboxStatus {
    SandboxStatus {
        phase: Phase::Paused,
        pause_reason: Some(PauseReason::Idle),
        paused_at: Some(Time(Timestamp::UNIX_EPOCH)),
        ..SandboxStatus::default()
    }
}

#[tokio::test]
async fn sandbox_of_another_tenant_is_not_found() {
    let fixture = GatewayFixture::new();
    let id = fixture.add(1, &ready("127.0.0.1"));
    let more = json!({
        "run": {"command": "true"}, "run_python": {"code": "1"}, "read": {"path": "/a"},
        "write": {"path": "/a", "content": ""}, "edit": {"path": "/a", "old": "a", "new": "b"},
        "list_files": {}, "browse": {"url": "http://a"}, "screenshot": {}, "url": {}, "pause": {},
        "resume": {}, "stop": {},
    });
    for (tool, arguments) in more.as_object().unwrap() {
        let mut arguments = arguments.clone();
        arguments["sandbox"] = "s1".into();
        let (is_error, text) = fixture.tool_as(OTHER_KEY, tool, &arguments).await;
        assert!(
            is_error && text.contains("no runtime for this session"),
            "{tool}: {text}"
        );
    }
    assert_eq!(fixture.stored(&id).spec.state, DesiredState::Running);
}

#[tokio::test]
async fn bad_arguments_are_errors_that_name_the_argument() {
    let fixture = GatewayFixture::new();
    for (tool, arguments, said) in [
        ("run", json!({"sandbox": "s1"}), "missing field `command`"),
        (
            "run",
            json!({"sandbox": 7, "command": "a"}),
            "sandbox: invalid type",
        ),
        (
            "run",
            json!({"sandbox": "s1", "command": "a", "x": 1}),
            "unknown field `x`",
        ),
        (
            "run",
            json!({"sandbox": "s1", "command": "a", "timeout": 0}),
            "between 1 and 3600",
        ),
        (
            "run",
            json!({"sandbox": "s1", "command": "a".repeat(70_000)}),
            "command exceeds 65536",
        ),
        (
            "read",
            json!({"sandbox": "s1", "path": "/a", "first_line": 3, "last_line": 2}),
            "precede",
        ),
        (
            "create",
            json!({"image": "i", "persistence": "All"}),
            "persistence: unknown variant",
        ),
        (
            "create",
            json!({"image": "i", "name": "x".repeat(300)}),
            "at most 256 bytes",
        ),
        ("list", json!({"sandbox": "s1"}), "unknown field `sandbox`"),
    ] {
        let (is_error, text) = fixture.tool(tool, &arguments).await;
        assert!(is_error && text.contains(said), "{tool}: {text}");
    }
    let unknown = json!({"name": "no_such_tool", "arguments": {}});
    let (_, answer) = fixture.mcp("tools/call", &unknown).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn create_waits_until_ready_and_reports_progress() {
    let fixture = GatewayFixture::new();
    let arguments = json!({"image": "python:3.13", "name": "a/b", "persistence": "Root"});
    let params = json!({
        "name": "create", "arguments": arguments, "_meta": {"progressToken": "t"},
    });
    let request = post().body(message("tools/call", &params)).unwrap();
    let response = fixture.send(request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let mut events = String::from_utf8(first.to_vec()).unwrap();

    let id = fixture.found("/sessions/a%2Fb").await["runtime_id"].clone();
    let id = id.as_str().unwrap();
    let spec = fixture.stored(id).spec;
    assert_eq!(spec.image.as_deref(), Some("python:3.13"));
    fixture.report(id, &ready("127.0.0.1"));
    let rest = body.collect().await.unwrap().to_bytes();
    events.push_str(std::str::from_utf8(&rest).unwrap());
    let data = |line: &str| serde_json::from_str(line.strip_prefix("data:")?.trim()).ok();
    let events: Vec<Value> = events.lines().filter_map(data).collect();
    let (last, before) = events.split_last().unwrap();
    let is_progress = |event: &Value| {
        event["method"] == "notifications/progress" && event["params"]["progressToken"] == "t"
    };
    assert!(
        !before.is_empty() && before.iter().all(is_progress),
        "{events:?}"
    );
    assert_eq!(
        last["result"]["structuredContent"]["sandbox"], "a/b",
        "{last}"
    );
    assert_eq!(last["result"]["structuredContent"]["ready"], true, "{last}");
}

#[tokio::test]
async fn create_reports_a_sandbox_that_fails() {
    let fixture = GatewayFixture::new();
    let arguments = json!({"image": "i", "name": "s1"});
    let create = fixture.tool("create", &arguments);
    let fail = async {
        let id = loop {
            let (status, info) = fixture.get("/sessions/s1").await;
            if status == 200 {
                break info["runtime_id"].as_str().unwrap().to_owned();
            }
            tokio::task::yield_now().await;
        };
        fixture.report(&id, &failed(PodStatus::CrashLoopBackOff));
    };
    let ((is_error, text), ()) = tokio::join!(create, fail);
    assert!(is_error && text.contains("has not started"), "{text}");
}

#[tokio::test]
async fn states_change_through_the_api() {
    let fixture = GatewayFixture::new();
    let id = fixture.add(1, &ready("127.0.0.1"));
    for (tool, state) in [
        ("pause", DesiredState::Paused),
        ("resume", DesiredState::Running),
        ("stop", DesiredState::Stopped),
    ] {
        let (is_error, text) = fixture.tool(tool, &json!({"sandbox": "s1"})).await;
        assert!(!is_error, "{tool}: {text}");
        assert_eq!(fixture.stored(&id).spec.state, state, "{tool}");
    }
}

#[tokio::test]
async fn url_names_the_ports_that_have_one() {
    let fixture = GatewayFixture::new();
    let id = fixture.add(8011, &ready("127.0.0.1"));
    let (_, text) = fixture.tool("url", &json!({"sandbox": "s1"})).await;
    assert_eq!(
        text,
        format!("port 8011: https://work-1-{id}.rt.example.com")
    );
    let (is_error, text) = fixture
        .tool("url", &json!({"sandbox": "s1", "port": 80}))
        .await;
    assert!(is_error && text.contains("port 8011: "), "{text}");
}

#[tokio::test]
async fn run_sends_the_command_with_the_session_key() {
    let fixture = SocketFixture::new().await;
    let key = session_key(&fixture.base).await;
    let arguments = json!({"sandbox": "s1", "command": "false"});
    let run = fixture.base.tool("run", &arguments);
    let serve = async {
        let mut sandbox = fixture.sandbox().await;
        let asked = action(&mut sandbox, &key).await;
        assert_eq!(
            (&asked["action"], &asked["timeout"]),
            (&json!("run"), &json!(10))
        );
        let args = json!({"command": "false", "is_input": false, "blocking": true});
        assert_eq!(asked["args"], args);
        let extras = json!({"metadata": {"exit_code": 1, "working_dir": "/workspace"}});
        sandbox.send(&observation("run", "said", &extras)).await;
    };
    let (done, ()) = tokio::join!(run, serve);
    assert_eq!(done, (false, "said\n[exit code 1]".into()));
}

#[tokio::test]
async fn run_takes_little_from_a_server_that_answers_at_once_and_never_ends() {
    let fixture = SocketFixture::new().await;
    let arguments = json!({"sandbox": "s1", "command": "yes", "timeout": 1});
    let run = fixture.base.tool("run", &arguments);
    let serve = async {
        let extras = json!({"metadata": {"exit_code": -1}});
        let endless = observation("run", &"y".repeat(60_000), &extras);
        for _ in 0..2 {
            let mut sandbox = fixture.sandbox().await;
            sandbox.message().await;
            sandbox.send(&endless).await;
        }
        fixture.sandbox().await;
        panic!("there was a third action within two seconds");
    };
    let (is_error, text) = tokio::select! {
        done = run => done,
        () = serve => unreachable!(),
    };
    assert!(
        !is_error && text.contains("still running after 1 s"),
        "{text}"
    );
    assert!(text.chars().count() < 50_100 && text.contains("characters were cut"));
}

#[tokio::test]
async fn cancelled_run_interrupts_its_command_and_no_other() {
    let fixture = SocketFixture::new().await;
    let key = session_key(&fixture.base).await;
    for (suffix, next) in [
        ("", json!({"command": "C-c", "is_input": true})),
        // Another client's command was running.
        (
            "[Your command is NOT executed.]",
            json!({"path": "/after", "start": 0, "end": -1}),
        ),
    ] {
        let gateway = fixture.base.gateway.clone();
        let arguments = json!({"sandbox": "s1", "command": "sleep 600"});
        let request = tool_request(KEY, "run", &arguments);
        let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 4711));
        let call = tokio::spawn(async move { gateway.respond(request, peer).await });
        let mut first = fixture.sandbox().await;
        let asked = action(&mut first, &key).await;
        assert_eq!(asked["args"]["command"], "sleep 600");
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        let extras = json!({"metadata": {"exit_code": -1, "suffix": suffix}});
        first.send(&observation("run", "", &extras)).await;
        drop(first);
        let after = async {
            if !suffix.is_empty() {
                let arguments = json!({"sandbox": "s1", "path": "/after"});
                fixture.base.tool("read", &arguments).await;
            }
        };
        let serve = async {
            let mut second = fixture.sandbox().await;
            let asked = action(&mut second, &key).await;
            assert_eq!(asked["args"], next, "{suffix}");
            second
                .send(&observation("read", "", &json!({"metadata": {}})))
                .await;
        };
        tokio::join!(after, serve);
    }
}

#[tokio::test]
async fn notification_cancels_the_run_of_its_session_and_no_other() {
    let fixture = SocketFixture::new().await;
    let key = session_key(&fixture.base).await;
    let arguments = json!({"sandbox": "s1", "command": "sleep 600"});
    let mut request = tool_request(KEY, "run", &arguments);
    let session = "first".parse().unwrap();
    request.headers_mut().insert("mcp-session-id", session);
    let running = observation("run", "", &json!({"metadata": {"exit_code": -1}}));
    let serve = async {
        let mut sandbox = fixture.sandbox().await;
        action(&mut sandbox, &key).await;
        for (key, session, id) in [
            (KEY, "second", 1),
            (KEY, "", 1),
            (KEY, "first", 2),
            (OTHER_KEY, "first", 1),
        ] {
            let sent = fixture.base.send(cancellation(key, session, id)).await;
            assert_eq!(sent.status(), 202, "{session} {id}");
        }
        sandbox.send(&running).await;
        drop(sandbox);
        let mut sandbox = fixture.sandbox().await;
        let asked = action(&mut sandbox, &key).await;
        assert_eq!(asked["args"]["command"], "", "the call goes on: {asked}");
        let sent = fixture.base.send(cancellation(KEY, "first", 1)).await;
        assert_eq!(sent.status(), 202);
        sandbox.send(&running).await;
        drop(sandbox);
        let mut sandbox = fixture.sandbox().await;
        let asked = action(&mut sandbox, &key).await;
        let interrupt = json!({"command": "C-c", "is_input": true});
        assert_eq!(asked["args"], interrupt);
        sandbox.send(&running).await;
    };
    let (response, ()) = tokio::join!(fixture.base.send(request), serve);
    let (status, answer) = read(response).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["error"]["message"], "cancelled", "{answer}");
}

#[tokio::test]
async fn run_ends_when_the_key_is_revoked() {
    let tenants = recorded_tenants(&json!({}));
    let base = GatewayFixture::synced(&FakeApi::default(), config(), tenants.clone());
    let fixture = SocketFixture::over(base).await;
    let arguments = json!({"sandbox": "s1", "command": "sleep 600"});
    let run = fixture.base.tool("run", &arguments);
    let serve = async {
        let mut sandbox = fixture.sandbox().await;
        sandbox.message().await;
        tenants.clear();
        let extras = json!({"metadata": {"exit_code": -1}});
        sandbox.send(&observation("run", "", &extras)).await;
    };
    let ((is_error, text), ()) = tokio::join!(run, serve);
    assert!(is_error && text.contains("HTTP status 401"), "{text}");
}

#[tokio::test]
async fn failure_of_the_server_in_a_sandbox_is_an_error_of_the_tool() {
    let fixture = SocketFixture::new().await;
    let arguments = json!({"sandbox": "s1", "path": "/a"});
    for (answer, said) in [
        (
            observation("error", "File not found: /a", &json!({})),
            "File not found: /a",
        ),
        (observation("read", &"x".repeat(60_000), &json!({})), ""),
        (
            "HTTP/1.1 500 Oops\nContent-Length: 17\n\n{\"detail\": \"bad\"}".into(),
            "bad (HTTP status 500)",
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 4\n\nnull".into(),
            "unknown form",
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 99999999\n\nnull".into(),
            "exceeds 16 MiB",
        ),
    ] {
        let read = fixture.base.tool("read", &arguments);
        let serve = async {
            let mut sandbox = fixture.sandbox().await;
            sandbox.message().await;
            sandbox.send(&answer).await;
        };
        let ((is_error, text), ()) = tokio::join!(read, serve);
        if said.is_empty() {
            assert!(!is_error && text.contains("10000 characters were cut here"));
        } else {
            assert!(is_error && text.contains(said), "{text}");
        }
    }
}

#[tokio::test]
async fn paused_sandbox_is_an_error_with_the_next_step() {
    let fixture = GatewayFixture::new();
    let id = fixture.add(1, &ready("127.0.0.1"));
    assert_eq!(fixture.change("/pause", &id).await.0, 200);
    let run = json!({"sandbox": "s1", "command": "true"});
    let response = fixture.send(tool_request(KEY, "run", &run)).await;
    let (is_error, text) = outcome(response).await;
    assert!(is_error && text.contains("call resume first"), "{text}");
}
