//! The runtime API against a fake Kubernetes API: what clients see, call by call.

use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase, PodStatus, Restarts, SandboxSpec, SandboxStatus};
use http::Method;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::support::gateway_fixture::{
    GatewayFixture, KEY, config, failed, key, ready, starting, tenants,
};
use testing::FakeApi;

fn start_body() -> Value {
    json!({
        "image": "ghcr.io/openhands/agent-server:1",
        "command": "/usr/local/bin/openhands-agent-server --port 60000",
        "working_dir": "/workspace/project",
        "environment": {"TOKEN": "hunter2", "N": 1, "GONE": null, "SESSION_API_KEY": "mine"},
        "session_id": "s1",
        "resource_factor": 4.0,
        "runtime_class": "sysbox-runc",
        "run_as_user": 10001,
        "fs_group": 10001,
        "image_pull_policy": "IfNotPresent",
        "something": "new",
    })
}

#[tokio::test(start_paused = true)]
async fn start_creates_one_object_and_returns_runtime_info() {
    let fixture = GatewayFixture::new();
    let (code, info) = fixture.post("/start", &start_body()).await;
    assert_eq!(code, 201);
    insta::assert_json_snapshot!("runtime_info_of_start", info);

    let mut made = fixture.stored(info["runtime_id"].as_str().unwrap());
    let sealed = made.spec.sealed_env.replace("[sealed]".into()).unwrap();
    let name = made.metadata.name.as_ref().unwrap();
    let environment = fixture.keys.open("sandboxes", name, &sealed).unwrap();
    assert_eq!(json!(environment), json!({"N": "1", "TOKEN": "hunter2"}));
    insta::assert_json_snapshot!("sandbox_of_start", made);
    let calls = fixture.api.calls();
    assert!(matches!(&calls[..], [(method, _)] if method == Method::POST));
}

#[tokio::test(start_paused = true)]
async fn all_reads_return_the_same_info() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    let status = SandboxStatus {
        restarts: Restarts {
            count: 1,
            reasons: vec!["OOMKilled".into()],
        },
        ..ready("10.0.0.9")
    };
    fixture.report(&id, &status);
    let info = fixture.found("/sessions/s1").await;
    insta::assert_json_snapshot!("runtime_info_running", without_begin(info.clone()));
    assert_eq!(fixture.found(&format!("/runtime/{id}")).await, info);
    let path = "/sessions/batch?ids=s1&ids=none&ids=s1";
    assert_eq!(fixture.found(path).await, json!([info, null, info]));
    let list = json!({"runtimes": [info], "total": 1});
    assert_eq!(fixture.found("/list").await, list);
    assert_eq!(fixture.found("/sessions/batch").await, json!([]));
    let idle = json!({"idle_since": {&id: info["idle_since"]}});
    assert_eq!(fixture.found("/list/idle").await, idle);
}

/// A command may have a MiB, and the target of a batch names a session thousands of times.
#[tokio::test(start_paused = true)]
async fn long_command_is_repeated_in_part_and_batches_are_bounded() {
    let fixture = GatewayFixture::new();
    let word = "a".repeat(1000);
    let words = json!(vec![&word; 100]);
    let line = json!(format!("{word} ").repeat(100));
    for (session, command) in [("words", words), ("line", line)] {
        let fields = json!({"session_id": session, "command": command});
        let (code, info) = fixture.start(fields).await;
        assert_eq!(code, 201, "{info}");
        let repeated = info["command"].to_string();
        assert!((7000..9000).contains(&repeated.len()), "{}", repeated.len());
    }
    let batch = |times: usize| format!("/sessions/batch?{}", "ids=words&".repeat(times));
    let entries = fixture.found(&batch(500)).await;
    assert_eq!(entries.as_array().unwrap().len(), 500);
    let (code, answer) = fixture.get(&batch(5000)).await;
    assert_eq!(code, 400, "{answer}");
    let detail = "the answer exceeds 8 MiB: ask for fewer ids";
    assert_eq!(answer["detail"], detail);
}

/// Replaces the begin of the gateway, before which it knows of no request.
fn without_begin(mut info: Value) -> Value {
    let since = info["idle_since"].take();
    let since: Timestamp = since.as_str().unwrap().parse().unwrap();
    assert_eq!(since.subsec_nanosecond(), 0);
    info["idle_since"] = json!("[begin]");
    info
}

/// The cost is of the present run, and a sandbox that does not run is not idle.
#[tokio::test(start_paused = true)]
async fn run_and_idle_time_are_those_of_the_present_pod() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    let begin: Timestamp = "2126-01-01T00:00:00Z".parse().unwrap();
    let seen = async |phase, ready_at: Timestamp| {
        let status = SandboxStatus {
            phase,
            started_at: Some(Time(begin)),
            ready_at: Some(Time(ready_at)),
            ..ready("10.0.0.9")
        };
        fixture.report(&id, &status);
        let info = fixture.found(&format!("/runtime/{id}")).await;
        ["started_at", "idle_since"].map(|name| info[name].clone())
    };
    let (started, later) = (json!(begin), Timestamp::from_second(begin.as_second() + 60));
    let later = later.unwrap();
    assert_eq!(
        seen(Phase::Starting, later).await,
        [started.clone(), Value::Null]
    );
    assert_eq!(seen(Phase::Running, later).await, [started, json!(later)]);
    for phase in [Phase::Pending, Phase::Paused, Phase::Failed, Phase::Stopped] {
        assert_eq!(seen(phase, later).await, [Value::Null, Value::Null]);
    }
    assert_eq!(fixture.found("/list/idle").await, json!({"idle_since": {}}));
}

#[tokio::test(start_paused = true)]
async fn warm_start_returns_running() {
    let fixture = GatewayFixture::new();
    let body = json!({"image": "i", "session_id": "s1"});
    let start = fixture.post("/start", &body);
    let controller = async {
        let mut changes = fixture.index.changes();
        let key = changes.recv().await.unwrap();
        fixture.report(&key.name, &ready("10.0.0.9"));
    };
    let ((code, info), ()) = tokio::join!(start, controller);
    assert_eq!((code, &info["status"]), (201, &json!("running")));
    assert_eq!(info["command"], Value::Null);
}

fn unresolved(session: &str) -> Value {
    json!({
        "runtime_id": null, "session_id": session, "url": null, "session_api_key": null,
        "status": "unknown", "pod_status": "Not Found",
        "status_detail": "the Kubernetes API is not available for this lookup",
        "work_hosts": {}, "restart_count": 0,
    })
}

#[tokio::test(start_paused = true)]
async fn rule_29_known_sandboxes_are_served_during_api_outage() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    fixture.api.set_unavailable(true);
    let runtime = format!("/runtime/{id}");
    for path in [
        "/list",
        "/sessions/s1",
        "/sessions/batch?ids=s1",
        &runtime,
        "/health",
    ] {
        fixture.found(path).await;
    }
    // A null would end a session that may exist, and a failure of the whole batch would hide the
    // known ones.
    assert_eq!(fixture.get("/sessions/batch?ids=x").await.0, 503);
    let batch = fixture.found("/sessions/batch?ids=x&ids=s1&ids=x").await;
    let known = fixture.found("/sessions/s1").await;
    assert_eq!(batch, json!([unresolved("x"), known, unresolved("x")]));
    // The session exists, so a start needs no write.
    assert_eq!(fixture.started("s1").await, id);
    let (code, answer) = fixture.change("/pause", &id).await;
    assert_eq!(code, 503);
    assert!(answer["detail"].is_string());
}

#[tokio::test(start_paused = true)]
async fn transient_api_failures_are_retried() {
    let fixture = GatewayFixture::new();
    fixture.api.fail([500, 429]);
    let id = fixture.started("s1").await;
    fixture.api.fail([409, 503]);
    assert_eq!(fixture.change("/pause", &id).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn rejections_of_the_cluster_are_reported_without_retry() {
    let fixture = GatewayFixture::new();
    let quota = "sandboxes \"x\" is forbidden: exceeded quota: count";
    let webhook = "admission webhook \"w\" denied the request: no";
    let account = "sandboxes is forbidden: User \"system:serviceaccount:ns:gateway\" cannot create";
    let large = "trying to send message larger than max (2 vs. 1)";
    for (refusal, message, code, said) in [
        (
            413,
            "limit is 3145728",
            400,
            "reduce command or environment",
        ),
        (500, large, 400, "reduce command or environment"),
        (403, quota, 503, "this: exceeded quota: count"),
        (403, webhook, 503, &format!("this: {webhook}")),
        (403, account, 503, "this: the gateway lacks the permission"),
    ] {
        fixture.api.fail_with(refusal, message);
        let calls = fixture.api.calls().len();
        let (answered, answer) = fixture.post("/start", &start_body()).await;
        assert_eq!(answered, code, "{answer}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.ends_with(said), "{detail}");
        assert_eq!(fixture.api.calls().len(), calls + 1, "{message}");
    }
    // Rejected calls left no object behind.
    assert!(fixture.api.objects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn invalid_start_is_400_with_detail() {
    let fixture = GatewayFixture::new();
    let ids = json!(["x", 1.5, -1, [], 4_294_967_296_u64]);
    let long = "x".repeat(128 << 10);
    let path = format!("/{}", "x".repeat(4096));
    for (field, values) in [
        ("image", json!([7, true, [], {}, "", null, "a\0b"])),
        (
            "session_id",
            json!([7, true, [], {}, "", null, "batch", "s".repeat(257)]),
        ),
        (
            "working_dir",
            json!([7, true, [], {}, "not/absolute", "/a\0b", path]),
        ),
        ("runtime_class", json!([7, true, [], {}])),
        ("image_pull_policy", json!([7, true, [], {}, "Sometimes"])),
        ("run_as_user", ids.clone()),
        ("run_as_group", ids.clone()),
        ("fs_group", ids),
        ("resource_factor", json!([0, -1.5, "2", [], -1e300])),
        (
            "command",
            json!([
                7,
                {},
                [1],
                [["a"]],
                "a 'b",
                "a \0",
                ["a", "\0"],
                ["a", long]
            ]),
        ),
        (
            "environment",
            json!([7, "A=1", ["A=1"], {"": "x"}, {"A=B": "x"}, {"A": "\0"}, {"A": long}]),
        ),
    ] {
        for value in values.as_array().unwrap() {
            let mut body = start_body();
            body[field] = value.clone();
            let (code, answer) = fixture.post("/start", &body).await;
            assert_eq!(code, 400, "{field}={value}");
            let detail = answer["detail"].as_str().unwrap();
            assert!(detail.contains(field), "{field}={value}: {detail}");
        }
    }
    let malformed = "{\"image\": hunter2";
    let (code, answer) = fixture.call_as(KEY, "POST", "/start", malformed).await;
    assert_eq!(code, 400);
    assert!(!answer.to_string().contains("hunter2"));
    let large = "x".repeat((2 << 20) + 1);
    assert_eq!(fixture.call_as(KEY, "POST", "/start", &large).await.0, 413);
    assert!(fixture.api.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn start_does_not_touch_foreign_sandbox() {
    let fixture = GatewayFixture::new();
    let keys = &fixture.keys;
    let name = keys.session_runtime_id("sandboxes", "default", "s1", 0);
    fixture.put(&Sandbox::new(&name, SandboxSpec::default()));
    let id = fixture.started("s1").await;
    assert_ne!(id, name);
    assert_eq!(fixture.stored(&name).spec.state, DesiredState::Running);
}

#[tokio::test(start_paused = true)]
async fn unsynced_gateway_returns_503_instead_of_404() {
    let fixture = GatewayFixture::new();
    let first = fixture.started("s1").await;
    fixture.change("/stop", &first).await;
    let second = fixture.started("s1").await;
    assert_ne!(first, second);
    let made = fixture.put(&Sandbox::new("mine", SandboxSpec::default()));
    let uid = made.metadata.uid.as_ref().unwrap();
    let own_id = fixture.keys.object_runtime_id(uid);

    let fresh = GatewayFixture::unsynced(&fixture.api, config(), tenants());
    assert_eq!(fresh.get("/health").await.0, 503);
    fresh.index.apply(&fixture.stored(&first));
    assert_eq!(fresh.get("/sessions/s1").await.0, 503);
    assert_eq!(fresh.get(&format!("/runtime/{second}")).await.0, 200);
    let path = format!("/{own_id}/runtime/alive");
    assert_eq!(fresh.get(&path).await.0, 503);
    fresh.index.apply(&made);
    for name in [&first, &second] {
        fresh.index.apply(&fixture.stored(name));
    }
    let seen = [&first, &second].map(|name| key(name));
    fresh.index.retain(&seen.into());
    let info = fresh.found("/sessions/s1").await;
    assert_eq!(info["runtime_id"], json!(second));
    assert_eq!(fresh.get(&path).await.0, 404);
    assert_eq!(fresh.get("/health").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn pause_of_deleted_sandbox_returns_404_and_updates_index() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    fixture.delete(&id);
    assert_eq!(fixture.change("/pause", &id).await.0, 404);
    assert_eq!(fixture.get("/sessions/s1").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn failed_start_shows_failure_log_to_its_owner() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    let log = "Traceback: no module named hunter2\n";
    let failed = SandboxStatus {
        reason: Some(crds::conditions::Reason::CrashLoop),
        message: Some("the command ended 3 times".into()),
        restarts: Restarts {
            count: 2,
            reasons: vec!["exit code 1".into()],
        },
        sealed_log: fixture.keys.seal_log("sandboxes", &id, log).ok(),
        ..failed(PodStatus::CrashLoopBackOff)
    };
    fixture.report(&id, &failed);
    let stored = serde_json::to_string(&fixture.stored(&id)).unwrap();
    assert!(!stored.contains("hunter2"));
    let info = fixture.found("/sessions/s1").await;
    assert_eq!(info["pod_logs"], log);
    let container = &info["container_statuses"][0];
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoop");
    let end = &container["lastState"]["terminated"];
    assert_eq!(end["reason"], "exit code 1");
    assert_eq!(info["events"][0]["message"], "the command ended 3 times");
    // A log that is copied into another sandbox cannot be opened.
    let other = fixture.started("s2").await;
    fixture.report(&other, &failed);
    assert_eq!(fixture.get("/sessions/s2").await.1["pod_logs"], "");
}

#[tokio::test(start_paused = true)]
async fn id_scan_is_bounded_by_lookup_limit() {
    let fixture = GatewayFixture::new();
    assert_all(&fixture, &unknown_runtimes(1000), 404).await;
    let calls = fixture.api.calls().len();
    assert_eq!(calls, 100);
    for _ in 0..100 {
        assert_eq!(fixture.get("/runtime/zzzzzzzzzzzzzzzz").await.0, 404);
    }
    let asked = fixture.api.calls().len() - calls;
    assert!(asked < 40, "{asked}");
    let path = format!("/runtime/{}", fixture.started("s1").await);
    let other = GatewayFixture::beside(&fixture.api, config());
    other.found(&path).await;
}

/// Paths of runtimes that do not exist.
fn unknown_runtimes(count: u32) -> Vec<String> {
    let letter = |n: u32, shift: u32| char::from(b'a' + u8::try_from(n >> shift & 15).unwrap());
    let end = |n| [12, 8, 4, 0].map(|shift| letter(n, shift));
    let path = |n| format!("/runtime/aaaaaaaaaaaa{}", String::from_iter(end(n)));
    (0..count).map(path).collect()
}

async fn assert_all(fixture: &GatewayFixture, paths: &[String], expected: u16) {
    for (code, answer) in fixture.get_all(paths).await {
        assert_eq!(code, expected, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_ids_return_503_during_api_outage() {
    let fixture = GatewayFixture::new();
    fixture.api.set_unavailable(true);
    let mut paths = unknown_runtimes(200);
    paths.extend((0..700).map(|n| format!("/sessions/x{n}")));
    let batch = |first: &str, many: usize| {
        let ids: Vec<_> = (0..many).map(|n| format!("ids=y{n}")).collect();
        format!("/sessions/batch?{first}{}", ids.join("&"))
    };
    for _ in 0..2 {
        assert_all(&fixture, &paths, 503).await;
    }
    assert_all(&fixture, &[1, 64, 65, 200].map(|many| batch("", many)), 503).await;
    fixture.api.set_unavailable(false);
    fixture.started("s1").await;
    fixture.api.set_unavailable(true);
    for many in [1, 64, 65, 200] {
        let mut found = fixture.found(&batch("ids=s1&", many)).await;
        let entries = found.as_array_mut().unwrap();
        assert_eq!(entries.remove(0)["session_id"], "s1");
        let expected: Vec<_> = (0..many).map(|n| unresolved(&format!("y{n}"))).collect();
        assert_eq!(*entries, expected);
    }
    fixture.api.set_unavailable(false);
    assert_all(&fixture, &paths, 404).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_ids_are_503_while_watch_fails() {
    let vitals = std::sync::Arc::new(operator::diagnostics::Diagnostics::default());
    let health = &vitals.health;
    health.add_watch("sandboxes", "sandboxes.openhands.dev".into());
    let mut config = config();
    config.vitals = vitals.clone();
    let fixture = GatewayFixture::beside(&FakeApi::default(), config);
    let scan = async || {
        let answers = fixture.get_all(&unknown_runtimes(200)).await;
        answers.iter().filter(|(code, _)| *code == 503).count()
    };
    let trouble = operator::kubernetes::health::WatchFailure::Unreachable("gone".into());
    health.watch_failed("sandboxes", trouble);
    // The first hundred were looked up one by one.
    assert_eq!(scan().await, 100);
    health.watch_heard("sandboxes");
    assert_eq!(scan().await, 0);
}

#[tokio::test(start_paused = true)]
async fn newest_sandbox_of_a_session_is_found_by_live_lookup() {
    for end in [Phase::Failed, Phase::Stopped] {
        let first = GatewayFixture::new();
        let old = first.started("s1").await;
        let over = SandboxStatus {
            phase: end,
            ..SandboxStatus::default()
        };
        first.report(&old, &over);
        let known = first.stored(&old);
        let new = first.started("s1").await;
        assert_ne!(old, new);
        for path in ["/sessions/s1", "/sessions/batch?ids=s1"] {
            // The index has neither of them, or not the second start yet.
            for known in [None, Some(&known)] {
                let second = GatewayFixture::beside(&first.api, config());
                if let Some(known) = known {
                    second.index.apply(known);
                }
                let answer = second.found(path).await;
                assert!(answer.to_string().contains(&new), "{path}: {answer}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn polls_of_stopped_sandbox_are_cached_and_survive_api_outage() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    fixture.change("/stop", &id).await;
    let calls = fixture.api.calls().len();
    for away in [false, true] {
        fixture.api.set_unavailable(away);
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..100 {
            for path in ["/sessions/s1", "/sessions/batch?ids=s1"] {
                let answer = fixture.found(path).await;
                assert!(answer.to_string().contains(&id), "{path}: {answer}");
            }
        }
    }
    assert_eq!(fixture.api.calls().len() - calls, 2);
}

#[tokio::test(start_paused = true)]
async fn tombstones_are_small_and_limited_per_tenant() {
    let fixture = GatewayFixture::new();
    let stopped = |second| SandboxStatus {
        phase: Phase::Stopped,
        stopped_at: Some(Time(Timestamp::from_second(second).unwrap())),
        ..SandboxStatus::default()
    };
    let mut body = start_body();
    body["environment"] = json!({"LARGE": "x".repeat(100_000)});
    let mut names = Vec::new();
    for n in 0..210 {
        body["session_id"] = json!(n.to_string());
        let (_, info) = fixture.post("/start", &body).await;
        let name = info["runtime_id"].as_str().unwrap().to_owned();
        fixture.change("/stop", &name).await;
        fixture.report(&name, &stopped(n));
        names.push(name);
    }
    let expired = |name: &String| fixture.stored(name).spec.lifecycle.is_some();
    let count = names.iter().filter(|name| expired(name)).count();
    assert_eq!(count, 10);
    assert!(names[..10].iter().all(expired), "the oldest");
    let stored = |name: &String| serde_json::to_vec(&fixture.stored(name)).unwrap().len();
    assert!(names.iter().map(stored).all(|length| length < 2048));
}

#[tokio::test(start_paused = true)]
async fn batch_entry_is_null_when_a_retried_lookup_finds_nothing() {
    let fixture = GatewayFixture::new();
    fixture.api.fail([500]);
    let batch = fixture.found("/sessions/batch?ids=x").await;
    assert_eq!(batch, json!([null]));
}

#[tokio::test(start_paused = true)]
async fn recent_change_is_confirmed_by_a_live_lookup() {
    let one = GatewayFixture::new();
    let other = GatewayFixture::beside(&one.api, config());
    let id = one.started("s1").await;
    let path = format!("/runtime/{id}");
    let status = async |path: &str| other.get(path).await.1["status"].clone();
    other.index.deliver(&one.stored(&id));
    // The watch of the other replica lags behind this write.
    one.change("/pause", &id).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(status(&path).await, "starting", "no recent change");
    let deliver = |status: SandboxStatus| other.index.deliver(&one.set_status(&id, &status));
    deliver(starting(false));
    assert_eq!(status(&path).await, "paused");

    one.change("/resume", &id).await;
    deliver(ready("10.0.0.1"));
    one.change("/pause", &id).await;
    let calls = one.api.calls().len();
    tokio::time::advance(Duration::from_secs(1)).await;
    status("/sessions/s1").await;
    let asked = one.api.calls().len() - calls;
    assert_eq!(asked, 0, "polls cost nothing afterwards");
}
