//! The rules of `docs/specs/runtime-api.md`, section 7, where client or controller can observe
//! them. Rule 20, a missing working directory, is tested with the supervisor.

mod controller;

use crate::support::fake_api::FakeApi;
use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase, PodStatus, PullPolicy, SandboxStatus};
use http::Method;
use operator::gateway::{ApiSettings, RuntimeClasses, Tenants};
use operator::urls::UrlForm;
use serde_json::{Value, json};

use crate::support::gateway_fixture::{GatewayFixture, KEY, OTHER_KEY, config, ready, starting};

async fn start(fixture: &GatewayFixture, body: Value) -> (u16, Value) {
    let mut whole = json!({"image": "i", "session_id": "s1", "command": ["a", "b"]});
    for (name, value) in body.as_object().unwrap() {
        whole[name] = value.clone();
    }
    fixture.post("/start", &whole).await
}

async fn started(fixture: &GatewayFixture) -> String {
    let (code, info) = start(fixture, json!({})).await;
    assert_eq!(code, 201, "{info}");
    info["runtime_id"].as_str().unwrap().to_owned()
}

fn failed(pod: PodStatus) -> SandboxStatus {
    SandboxStatus {
        phase: Phase::Failed,
        pod_status: Some(pod),
        ..SandboxStatus::default()
    }
}

async fn status(fixture: &GatewayFixture) -> (Value, Value) {
    let (code, info) = fixture.get("/sessions/s1").await;
    assert_eq!(code, 200);
    (info["status"].clone(), info["pod_status"].clone())
}

#[tokio::test(start_paused = true)]
async fn rule_01_start_returns_live_resumes_paused_replaces_ended() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    for alive in [starting(false), ready("10.0.0.1"), starting(true)] {
        fixture.report(&id, &alive);
        let (_, again) = start(&fixture, json!({"command": "else", "resource_factor": 2})).await;
        assert_eq!(again["runtime_id"], json!(id));
        assert_eq!(again["command"], json!(["a", "b"]));
    }
    fixture.change("/pause", &id).await;
    assert_eq!(started(&fixture).await, id);
    fixture.report(&id, &failed(PodStatus::Failed));
    let second = started(&fixture).await;
    assert_ne!(second, id);
    assert_eq!(fixture.api.get(&id).spec.state, DesiredState::Stopped);
    fixture.change("/stop", &second).await;
    let third = started(&fixture).await;
    assert!(third != second && third != id);
}

#[tokio::test(start_paused = true)]
async fn rule_01_concurrent_starts_create_one_sandbox() {
    let first = GatewayFixture::new();
    let second = GatewayFixture::beside(&first.api, config());
    let starts = (0..16).map(|n| {
        let fixture = if n % 2 == 0 { &first } else { &second };
        started(fixture)
    });
    let ids = futures::future::join_all(starts).await;
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(first.api.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_02_start_with_another_image_keeps_sandbox() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    let (_, info) = start(&fixture, json!({"image": "new"})).await;
    assert_eq!(
        (&info["runtime_id"], &info["image"]),
        (&json!(id), &json!("i"))
    );
    let kept = "the session has a sandbox already, which keeps its image";
    assert_eq!(info["status_detail"], kept);
    fixture.change("/pause", &id).await;
    let (_, info) = start(&fixture, json!({"image": "new"})).await;
    assert_eq!(
        (&info["runtime_id"], &info["image"]),
        (&json!(id), &json!("i"))
    );
}

#[tokio::test(start_paused = true)]
async fn rule_03_start_is_always_201() {
    let fixture = GatewayFixture::new();
    for _ in 0..2 {
        assert_eq!(start(&fixture, json!({})).await.0, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_04_status_is_starting_until_ready() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    let not_yet = SandboxStatus {
        pod_status: Some(PodStatus::Running),
        ..starting(false)
    };
    for (reported, expected) in [
        (not_yet, ("starting", "Running")),
        (starting(false), ("starting", "Pending")),
        (ready("10.0.0.1"), ("running", "Ready")),
    ] {
        fixture.report(&id, &reported);
        let (status, pod) = status(&fixture).await;
        assert_eq!(
            (status.as_str(), pod.as_str()),
            (Some(expected.0), Some(expected.1))
        );
    }
}

#[test]
fn rule_05_pod_status_spelling() {
    for (status, text) in [
        (PodStatus::Ready, "Ready"),
        (PodStatus::Running, "Running"),
        (PodStatus::Pending, "Pending"),
        (PodStatus::NotFound, "Not Found"),
        (PodStatus::CrashLoopBackOff, "CrashLoopBackOff"),
        (PodStatus::Failed, "Failed"),
        (PodStatus::Unknown, "Unknown"),
    ] {
        assert_eq!(serde_json::to_value(status).unwrap(), json!(text));
    }
}

#[tokio::test(start_paused = true)]
async fn rule_06_pod_status_is_not_found_while_paused_or_stopped() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    fixture.report(&id, &ready("10.0.0.1"));
    fixture.change("/pause", &id).await;
    assert_eq!(
        status(&fixture).await,
        (json!("paused"), json!("Not Found"))
    );
    fixture.change("/stop", &id).await;
    assert_eq!(
        status(&fixture).await,
        (json!("stopped"), json!("Not Found"))
    );
}

#[tokio::test(start_paused = true)]
async fn rule_08_runtime_is_found_before_its_pod_exists() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    let (code, info) = fixture.get(&format!("/runtime/{id}")).await;
    assert_eq!((code, &info["pod_status"]), (200, &json!("Not Found")));
}

#[tokio::test(start_paused = true)]
async fn rule_09_stopped_session_is_404_after_deletion() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    fixture.change("/stop", &id).await;
    assert_eq!(status(&fixture).await.0, "stopped");
    fixture.forget(&id);
    assert_eq!(fixture.get("/sessions/s1").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn rule_10_newest_runtime_of_a_session_is_returned() {
    let fixture = GatewayFixture::new();
    let first = started(&fixture).await;
    fixture.change("/stop", &first).await;
    let second = started(&fixture).await;
    let (_, info) = fixture.get("/sessions/s1").await;
    assert_eq!(info["runtime_id"], json!(second));
    assert_eq!(
        fixture.get(&format!("/runtime/{first}")).await.1["status"],
        "stopped"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_11_repeated_state_change_succeeds() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    let body = json!({"runtime_id": id});
    for (path, status) in [
        ("/pause", "paused"),
        ("/pause", "paused"),
        ("/resume", "starting"),
        ("/resume", "starting"),
        ("/stop", "stopped"),
        ("/stop", "stopped"),
        ("/pause", "stopped"),
    ] {
        let (code, info) = fixture.post(path, &body).await;
        assert_eq!(
            (code, info["status"].as_str()),
            (200, Some(status)),
            "{path}"
        );
        let (code, info) = fixture.get("/sessions/s1").await;
        assert_eq!(
            (code, info["status"].as_str()),
            (200, Some(status)),
            "{path}"
        );
    }
    assert_eq!(fixture.post("/resume", &body).await.0, 404);
    assert_eq!(fixture.get("/list").await.1["total"], 0);
}

#[tokio::test(start_paused = true)]
async fn rule_12_changes_of_unknown_stopped_and_missing_id() {
    let fixture = GatewayFixture::new();
    for body in [json!({"runtime_id": null}), json!({})] {
        let nothing = (200, json!({"runtime_id": null}));
        assert_eq!(fixture.post("/stop", &body).await, nothing);
        assert_eq!(fixture.post("/pause", &body).await, nothing);
        assert_eq!(fixture.post("/resume", &body).await.0, 400);
    }
    assert_eq!(fixture.call_as(KEY, "POST", "/stop", "").await.0, 200);
    let id = started(&fixture).await;
    for _ in 0..2 {
        let stop = fixture.change("/stop", &id).await;
        assert_eq!(stop.0, 200);
    }
    for (key, id) in [(KEY, "aaaaaaaaaaaaaaaa"), (KEY, "no-id"), (OTHER_KEY, &*id)] {
        let body = json!({"runtime_id": id}).to_string();
        for path in ["/stop", "/pause", "/resume"] {
            let answer = fixture.call_as(key, "POST", path, &body).await;
            assert_eq!(answer, (404, json!({"detail": "no runtime with this id"})));
        }
        let path = format!("/runtime/{id}");
        assert_eq!(fixture.call_as(key, "GET", &path, "").await.0, 404);
    }
    let answer = fixture.call_as(OTHER_KEY, "GET", "/sessions/s1", "").await;
    assert_eq!(
        answer,
        (404, json!({"detail": "no runtime for this session"}))
    );
}

#[tokio::test(start_paused = true)]
async fn rule_13_starting_sandbox_can_be_paused() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    fixture.report(&id, &starting(false));
    let (code, info) = fixture.change("/pause", &id).await;
    assert_eq!((code, &info["status"]), (200, &json!("paused")));
}

#[tokio::test(start_paused = true)]
async fn rules_14_15_resume_returns_full_info_with_same_key() {
    let fixture = GatewayFixture::new();
    let (_, before) = start(&fixture, json!({})).await;
    let body = json!({"runtime_id": before["runtime_id"]});
    fixture.post("/pause", &body).await;
    let (code, after) = fixture.post("/resume", &body).await;
    assert_eq!(code, 200);
    for field in [
        "runtime_id",
        "session_id",
        "url",
        "session_api_key",
        "work_hosts",
    ] {
        assert_eq!(before[field], after[field], "{field}");
        assert!(!after[field].is_null(), "{field}");
    }
    assert_eq!(after["status"], "starting");
}

#[tokio::test(start_paused = true)]
async fn rules_16_38_list_has_live_runtimes_and_total() {
    let fixture = GatewayFixture::new();
    for (session, status) in [
        ("starting", starting(false)),
        ("running", ready("10.0.0.1")),
        ("failed", failed(PodStatus::Failed)),
        ("paused", ready("10.0.0.2")),
        ("stopped", ready("10.0.0.3")),
    ] {
        let (_, info) = start(&fixture, json!({"session_id": session})).await;
        let id = info["runtime_id"].as_str().unwrap();
        fixture.report(id, &status);
        let path = match session {
            "paused" => "/pause",
            "stopped" => "/stop",
            _ => continue,
        };
        fixture.post(path, &json!({"runtime_id": id})).await;
    }
    let without_session = crds::Sandbox::new("mine", crds::sandbox::SandboxSpec::default());
    fixture.index.apply(&fixture.api.put(&without_session));
    for path in ["/list", "/runtime/list"] {
        let (_, list) = fixture.get(path).await;
        let mut sessions: Vec<_> = list["runtimes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|info| info["session_id"].as_str().unwrap())
            .collect();
        sessions.sort_unstable();
        assert_eq!(sessions, ["running", "starting"], "{path}");
        assert_eq!(list["total"], 2);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_17_batch_is_by_position() {
    let fixture = GatewayFixture::new();
    started(&fixture).await;
    let ids: Vec<_> = (0..200).map(|n| format!("ids=s{n}")).collect();
    let (code, batch) = fixture
        .get(&format!("/sessions/batch?{}", ids.join("&")))
        .await;
    assert_eq!(code, 200);
    let batch = batch.as_array().unwrap();
    assert_eq!(batch.len(), 200);
    for (n, entry) in batch.iter().enumerate() {
        assert_eq!(entry.is_null(), n != 1, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_18_resource_factors() {
    let fixture = GatewayFixture::new();
    for (n, (factor, made)) in [
        (json!(1), Some(1.0)),
        (json!(4.0), Some(4.0)),
        (json!(0.5), Some(0.5)),
        (json!(1000), Some(8.0)),
        (Value::Null, Some(1.0)),
        (json!(0), None),
        (json!(-1), None),
        (json!("2"), None),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"session_id": n.to_string(), "resource_factor": factor});
        let (code, info) = start(&fixture, body).await;
        assert_eq!(code, if made.is_some() { 201 } else { 400 }, "{factor}");
        assert_eq!(info["resource_factor"].as_f64(), made, "{factor}");
        let detail = info["status_detail"].as_str().unwrap_or_default();
        let capped = detail.contains("resource_factor is capped at 8");
        assert_eq!(capped, factor == json!(1000), "{detail}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_19_commands_in_both_shapes() {
    let fixture = GatewayFixture::new();
    for (n, (sent, words)) in [
        (
            json!("a 'b c' \"d\" e\\ f"),
            Some(vec!["a", "b c", "d", "e f"]),
        ),
        (json!(["a", "b c"]), Some(vec!["a", "b c"])),
        (
            json!("a; b | c && $d"),
            Some(vec!["a;", "b", "|", "c", "&&", "$d"]),
        ),
        (json!(""), None),
        (json!([]), None),
        (Value::Null, None),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"session_id": n.to_string(), "command": sent});
        let (_, info) = start(&fixture, body).await;
        let made = fixture.api.get(info["runtime_id"].as_str().unwrap());
        let words = words.map(|words| words.into_iter().map(str::to_owned).collect());
        assert_eq!(made.spec.command, words, "{sent}");
        let echoed = if words.is_some() { sent } else { Value::Null };
        assert_eq!(info["command"], echoed);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_21_runtime_classes() {
    let mut config = config();
    config.runtime_classes = RuntimeClasses {
        default: Some("runc".into()),
        installed: vec!["runsc".into(), "kata-qemu".into()],
        gvisor: "runsc".into(),
        strict: false,
    };
    let fixture = GatewayFixture::beside(&FakeApi::default(), config.clone());
    for (n, (asked, class, noted)) in [
        (Value::Null, "runc", false),
        (json!(""), "runc", false),
        (json!("runc"), "runc", false),
        (json!("gvisor"), "runsc", false),
        (json!("kata-qemu"), "kata-qemu", false),
        (json!("sysbox-runc"), "runc", true),
        (json!("sysbox"), "runc", true),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"session_id": n.to_string(), "runtime_class": asked});
        let (code, info) = start(&fixture, body).await;
        assert_eq!(
            (code, &info["runtime_class"]),
            (201, &json!(class)),
            "{asked}"
        );
        let note = info["status_detail"].as_str().unwrap_or_default();
        assert_eq!(note.contains("not installed"), noted, "{note}");
    }
    config.runtime_classes.strict = true;
    config.runtime_classes.installed = vec!["sysbox-runc".into()];
    let strict = GatewayFixture::beside(&FakeApi::default(), config);
    for (asked, code) in [("sysbox", 201), ("runc", 201), ("", 201), ("kata", 400)] {
        let body = json!({"session_id": format!("x{asked}"), "runtime_class": asked});
        assert_eq!(start(&strict, body).await.0, code, "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_22_23_identity_and_pull_policy_are_set_only_on_request() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    let spec = fixture.api.get(&id).spec;
    assert_eq!(
        (spec.security_context, spec.image_pull_policy),
        (None, None)
    );
    let body = json!({"session_id": "s2", "fs_group": 7, "image_pull_policy": "IfNotPresent"});
    let (_, info) = start(&fixture, body).await;
    let spec = fixture.api.get(info["runtime_id"].as_str().unwrap()).spec;
    let security = spec.security_context.unwrap();
    assert_eq!((security.run_as_user, security.fs_group), (None, Some(7)));
    assert_eq!(spec.image_pull_policy, Some(PullPolicy::IfNotPresent));
}

#[tokio::test(start_paused = true)]
async fn rules_24_36_environment_is_text_without_reserved_names() {
    let fixture = GatewayFixture::new();
    let environment = json!({
        "N": 1, "F": 1.5, "B": false, "GONE": null, "T": "text", "O": {"a": [1]}, "E": "",
        "RUNTIME_ID": "x", "SESSION_API_KEY": "mine", "OH_SESSION_API_KEYS_0": "mine", "RUNTIME_URL": "x",
    });
    let (_, info) = start(&fixture, json!({"environment": environment})).await;
    let name = info["runtime_id"].as_str().unwrap();
    let sealed = fixture.api.get(name).spec.sealed_env.unwrap();
    let opened = fixture.keys.open("sandboxes", name, &sealed).unwrap();
    let pairs: Vec<_> = opened.iter().map(|(n, v)| (&**n, &**v)).collect();
    let expected = [
        ("B", "false"),
        ("E", ""),
        ("F", "1.5"),
        ("N", "1"),
        ("O", "{\"a\":[1]}"),
        ("T", "text"),
    ];
    assert_eq!(pairs, expected);
}

#[tokio::test(start_paused = true)]
async fn rules_25_26_session_ids() {
    let fixture = GatewayFixture::new();
    for session in [
        "rt_123456",
        "a/b c?d#e%",
        "ü",
        "None",
        "Batch",
        &"x".repeat(256),
    ] {
        let (code, info) = start(&fixture, json!({"session_id": session})).await;
        assert_eq!((code, &info["session_id"]), (201, &json!(session)));
    }
    for path in ["a%2Fb%20c%3Fd%23e%25", "None", "%C3%BC"] {
        assert_eq!(
            fixture.get(&format!("/sessions/{path}")).await.0,
            200,
            "{path}"
        );
    }
    for session in [
        Value::Null,
        json!(""),
        json!("x".repeat(257)),
        json!("batch"),
        json!(7),
    ] {
        let (code, answer) = start(&fixture, json!({"session_id": session})).await;
        assert_eq!(code, 400, "{session}");
        assert!(answer["detail"].is_string());
    }
}

/// Tenants of the two keys; `fields` extend the record of the first.
fn limited(fields: &Value) -> Tenants {
    let hash = |key: &str| {
        let hash = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
        operator::hex::encode(hash.as_ref())
    };
    let mut first = fields.clone();
    first["name"] = "default".into();
    first["sha256"] = hash(KEY).into();
    let second = json!({"name": "other", "sha256": hash(OTHER_KEY)});
    let tenants = Tenants::pending();
    let records = json!([first, second]).to_string();
    tenants.replace(records.as_bytes()).unwrap();
    tenants
}

#[tokio::test(start_paused = true)]
async fn rule_27_start_over_quota_queues_until_queue_is_full() {
    let tenants = limited(&json!({"maxSandboxes": 2, "maxWaiting": 1}));
    let fixture = GatewayFixture::of(&FakeApi::default(), tenants, ApiSettings::default());
    for session in ["a", "b", "c"] {
        let (code, info) = start(&fixture, json!({"session_id": session})).await;
        assert_eq!((code, &info["status"]), (201, &json!("starting")));
    }
    let (_, waiting) = fixture.get("/sessions/c").await;
    let id = waiting["runtime_id"].as_str().unwrap().to_owned();
    let reported = SandboxStatus {
        phase: Phase::Pending,
        reason: Some(Reason::QuotaExceeded),
        message: Some("waits for its turn".into()),
        pod_status: Some(PodStatus::Pending),
        ..SandboxStatus::default()
    };
    fixture.report(&id, &reported);
    let (_, waiting) = fixture.get("/sessions/c").await;
    assert_eq!(
        (&waiting["status"], &waiting["pod_status"]),
        (&json!("starting"), &json!("Pending"))
    );
    assert_eq!(waiting["status_detail"], "waits for its turn");

    let (code, answer) = start(&fixture, json!({"session_id": "d"})).await;
    assert_eq!(code, 503);
    assert!(answer["detail"].as_str().unwrap().contains("queued"));
    // An existing session is not rejected, nor are other tenants.
    assert_eq!(start(&fixture, json!({"session_id": "c"})).await.0, 201);
    let body = json!({"image": "i", "session_id": "d"}).to_string();
    assert_eq!(
        fixture.call_as(OTHER_KEY, "POST", "/start", &body).await.0,
        201
    );
    let (_, first) = fixture.get("/sessions/a").await;
    fixture
        .post("/stop", &json!({"runtime_id": first["runtime_id"]}))
        .await;
    // The controller has admitted the third one.
    fixture.report(&id, &starting(false));
    assert_eq!(start(&fixture, json!({"session_id": "d"})).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn rule_27_rate_limited_call_waits_without_429() {
    let tenants = limited(&json!({"callsPerSecond": 10}));
    let fixture = GatewayFixture::of(&FakeApi::default(), tenants, ApiSettings::default());
    let began = tokio::time::Instant::now();
    let calls = (0..100).map(|_| fixture.get("/list"));
    let codes: Vec<_> = futures::future::join_all(calls)
        .await
        .into_iter()
        .map(|(code, _)| code)
        .collect();
    let answered = codes.iter().filter(|code| **code == 200).count();
    assert_eq!(answered, 71);
    assert!(codes.iter().all(|code| [200, 503].contains(code)));
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn rule_27_rate_limit_never_fails_a_start() {
    let tenants = limited(&json!({"callsPerSecond": 10}));
    let fixture = GatewayFixture::of(&FakeApi::default(), tenants, ApiSettings::default());
    let id = started(&fixture).await;
    fixture.change("/pause", &id).await;
    let began = tokio::time::Instant::now();
    for path in [
        "/sessions/s1",
        "/sessions/batch?ids=s1",
        &format!("/runtime/{id}"),
    ] {
        for _ in 0..100 {
            assert_eq!(fixture.get(path).await.0, 200, "{path}");
        }
    }
    assert!(began.elapsed().is_zero());
    // A rate-limited call has less time left for the rest.
    let calls = futures::future::join_all((0..60).map(|_| fixture.get("/list")));
    fixture.api.set_silent(true);
    let (_, (code, _)) = tokio::join!(calls, start(&fixture, json!({})));
    assert_eq!(code, 503);
    assert_eq!(began.elapsed().as_secs(), 8);
}

#[tokio::test(start_paused = true)]
async fn rules_11_29_repeated_change_needs_no_api_server() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    let body = json!({"runtime_id": id});
    let limit = std::time::Duration::from_secs(10);
    // The requested change, and one that is not in effect yet.
    for (verb, other) in [("/resume", "/pause"), ("/pause", "/resume"), ("/stop", "")] {
        assert_eq!(fixture.post(verb, &body).await.0, 200, "{verb}");
        for silent in [false, true] {
            fixture.api.set_silent(silent);
            fixture.api.set_unavailable(!silent);
            let began = tokio::time::Instant::now();
            let (code, answer) = fixture.post(verb, &body).await;
            assert_eq!(code, 200, "{verb}: {answer}");
            if !other.is_empty() {
                assert_eq!(fixture.post(other, &body).await.0, 503, "{other}");
            }
            assert!(began.elapsed() < 2 * limit);
        }
        fixture.api.set_silent(false);
        fixture.api.set_unavailable(false);
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_before_the_client_timeout() {
    let tenants = limited(&json!({"callsPerSecond": 10}));
    let fixture = GatewayFixture::of(&FakeApi::default(), tenants, ApiSettings::default());
    let id = started(&fixture).await;
    fixture.api.set_silent(true);
    let busy = futures::future::join_all((0..65).map(|_| fixture.get("/list")));
    let body = json!({"runtime_id": id});
    let unknown = json!({"runtime_id": "kqzvbnwmxatyploe"});
    let calls = async || {
        let began = tokio::time::Instant::now();
        let codes = tokio::join!(
            fixture.post("/pause", &body),
            fixture.post("/stop", &body),
            fixture.post("/resume", &unknown),
        );
        assert_eq!([codes.0.0, codes.1.0, codes.2.0], [503; 3]);
        began.elapsed().as_secs()
    };
    let (_, took) = tokio::join!(busy, calls());
    assert_eq!(took, 8);
    let configs = (0..5).map(|_| fixture.get("/api/warm-runtime-configs"));
    let began = tokio::time::Instant::now();
    for (code, answer) in futures::future::join_all(configs).await {
        assert_eq!(code, 503, "{answer}");
    }
    assert!(began.elapsed().as_secs() <= 8);
}

#[tokio::test(start_paused = true)]
async fn rules_28_39_invalid_key_is_401_and_foreign_runtime_404() {
    let fixture = GatewayFixture::new();
    let id = started(&fixture).await;
    let (code, answer) = fixture.call_as("wrong", "GET", "/list", "").await;
    assert_eq!(code, 401);
    assert!(answer["detail"].is_string());
    for (method, path, body) in [
        ("GET", format!("/runtime/{id}"), String::new()),
        ("GET", "/sessions/s1".to_owned(), String::new()),
        (
            "POST",
            "/stop".to_owned(),
            json!({"runtime_id": id}).to_string(),
        ),
    ] {
        assert_eq!(
            fixture.call_as(OTHER_KEY, method, &path, &body).await.0,
            404,
            "{path}"
        );
    }
    assert_eq!(
        fixture.call_as(OTHER_KEY, "GET", "/list", "").await.1["total"],
        0
    );
}

#[tokio::test(start_paused = true)]
async fn rule_30_url_form_follows_the_api_key() {
    let tenants = limited(&json!({"urlForm": "path"}));
    let fixture = GatewayFixture::of(&FakeApi::default(), tenants, ApiSettings::default());
    let id = started(&fixture).await;
    let url = format!("https://rt.example.com/{id}/runtime");
    for path in ["/sessions/s1", &format!("/runtime/{id}")] {
        let (_, info) = fixture.get(path).await;
        assert_eq!(info["url"], json!(url));
        assert_eq!(
            info["work_hosts"][format!("https://rt.example.com/{id}/work-1")],
            12000
        );
    }
    let body = json!({"image": "i", "session_id": "s1"}).to_string();
    let (_, info) = fixture.call_as(OTHER_KEY, "POST", "/start", &body).await;
    let other = info["runtime_id"].as_str().unwrap();
    assert_eq!(
        info["url"],
        json!(format!("https://{other}.rt.example.com"))
    );
    assert_eq!(config().urls.form, UrlForm::Nested);
}

#[tokio::test(start_paused = true)]
async fn rules_31_35_slashes_head_options_and_errors() {
    let fixture = GatewayFixture::new();
    started(&fixture).await;
    for path in ["//list", "/list/", "/sessions/s1/", "//sessions/s1//"] {
        assert_eq!(fixture.get(path).await.0, 200, "{path}");
    }
    assert_eq!(
        fixture.call_as(KEY, "HEAD", "/list", "").await,
        (200, Value::Null)
    );
    assert_eq!(
        fixture.call_as(KEY, "OPTIONS", "/start", "").await,
        (204, Value::Null)
    );
    let unknown = (404, json!({"detail": "no such path"}));
    assert_eq!(fixture.get("/nothing").await, unknown);
    assert_eq!(fixture.call_as(KEY, "DELETE", "/list", "").await.0, 405);
    assert!(fixture.get("/start").await.1["detail"].is_string());
    assert_eq!(fixture.get("/sessions/%FF").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn rule_37_unchecked_image_exists() {
    let fixture = GatewayFixture::new();
    let exists = json!({"exists": true, "image": {"upload_time": "", "image_size_bytes": 0}});
    assert_eq!(
        fixture.get("/image_exists?image=a/b:c").await,
        (200, exists)
    );
    assert_eq!(fixture.get("/image_exists").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn rule_40_times_are_rfc_3339_in_utc() {
    let fixture = GatewayFixture::new();
    let (_, info) = start(&fixture, json!({})).await;
    assert_eq!(info["created_at"], "2026-01-02T03:04:05Z");
    assert_eq!(fixture.api.calls(), [(Method::POST, String::new())]);
}
