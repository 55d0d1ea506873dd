//! The rules of `docs/specs/runtime-api.md`, section 7, where clients can observe them.

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase, PodStatus, PullPolicy, SandboxStatus};
use futures::future::join_all;
use operator::gateway::RuntimeClasses;
use operator::urls::UrlForm;
use serde_json::{Value, json};
use testing::FakeApi;
use tokio::time::Instant;

use crate::support::gateway_fixture::{
    GatewayFixture, KEY, OTHER_KEY, config, failed, limited, ready, starting,
};

/// `status` and `pod_status` of the session `s1`.
async fn status(fixture: &GatewayFixture) -> Value {
    let info = fixture.found("/sessions/s1").await;
    json!([info["status"], info["pod_status"]])
}

#[tokio::test(start_paused = true)]
async fn rule_01_start_returns_live_resumes_paused_replaces_ended() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    for alive in [starting(false), ready("10.0.0.1"), starting(true)] {
        fixture.report(&id, &alive);
        let fields = json!({"command": "else", "resource_factor": 2});
        let (_, again) = fixture.start(fields).await;
        assert_eq!(again["runtime_id"], json!(id));
        assert_eq!(again["command"], json!(["a", "b"]));
    }
    let info = fixture.found("/sessions/s1").await;
    assert_eq!(info["status_detail"], "CreatingPod");
    fixture.change("/pause", &id).await;
    assert_eq!(fixture.started("s1").await, id);

    fixture.report(&id, &failed(PodStatus::CrashLoopBackOff));
    assert_eq!(status(&fixture).await, json!(["error", "CrashLoopBackOff"]));
    let epoch = |id: &str| fixture.stored(id).spec.session.unwrap().epoch;
    let second = fixture.started("s1").await;
    assert_eq!(fixture.stored(&id).spec.state, DesiredState::Stopped);
    assert_eq!(epoch(&second), 1);
    fixture.change("/stop", &second).await;
    let third = fixture.started("s1").await;
    assert_eq!(epoch(&third), 2);
    // Another replica stops it; the index of this one is stale.
    let other = GatewayFixture::beside(&fixture.api, config());
    assert_eq!(other.change("/stop", &third).await.0, 200);
    let fourth = fixture.started("s1").await;
    assert_eq!(epoch(&fourth), 3);
    // Deleted with kubectl; the index is stale.
    fixture.delete(&fourth);
    let fifth = fixture.started("s1").await;
    let info = fixture.found("/sessions/s1").await;
    assert_eq!(info["runtime_id"], json!(fifth));
    assert_eq!(fixture.stored(&fifth).spec.state, DesiredState::Running);
}

#[tokio::test(start_paused = true)]
async fn rule_01_concurrent_starts_create_one_sandbox() {
    let first = GatewayFixture::new();
    let second = GatewayFixture::beside(&first.api, config());
    let starts = (0..16).map(|n| {
        let fixture = if n % 2 == 0 { &first } else { &second };
        fixture.started("s1")
    });
    let ids = join_all(starts).await;
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(first.api.objects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_02_start_with_another_image_keeps_sandbox() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    // So does one with another level, which cannot change while the sandbox runs.
    let (_, info) = fixture.start(json!({"persistence": "memory"})).await;
    let kept = "the session has a sandbox already, which keeps its persistence";
    assert_eq!(info["status_detail"], kept, "{info}");
    let kept = "the session has a sandbox already, which keeps its image";
    for is_paused in [false, true] {
        if is_paused {
            fixture.change("/pause", &id).await;
        }
        let (_, info) = fixture.start(json!({"image": "new"})).await;
        assert_eq!(info["runtime_id"], json!(id));
        assert_eq!(info["image"], "i");
        assert!(is_paused || info["status_detail"] == kept, "{info}");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_03_04_08_13_status_is_starting_until_ready_and_can_be_paused() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    let info = fixture.found(&format!("/runtime/{id}")).await;
    assert_eq!(info["pod_status"], "Not Found");
    let not_yet = SandboxStatus {
        pod_status: Some(PodStatus::Running),
        ..starting(false)
    };
    for (reported, expected) in [
        (not_yet, ["starting", "Running"]),
        (ready("10.0.0.1"), ["running", "Ready"]),
        (starting(false), ["starting", "Pending"]),
    ] {
        fixture.report(&id, &reported);
        assert_eq!(fixture.start(json!({})).await.0, 201);
        assert_eq!(status(&fixture).await, json!(expected));
    }
    let (code, info) = fixture.change("/pause", &id).await;
    assert_eq!((code, &info["status"]), (200, &json!("paused")));
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
async fn rules_09_10_stopped_session_is_found_until_replaced_or_deleted() {
    let fixture = GatewayFixture::new();
    let first = fixture.started("s1").await;
    fixture.change("/stop", &first).await;
    assert_eq!(status(&fixture).await[0], "stopped");
    let second = fixture.started("s1").await;
    let info = fixture.found("/sessions/s1").await;
    assert_eq!(info["runtime_id"], json!(second));
    let info = fixture.found(&format!("/runtime/{first}")).await;
    assert_eq!(info["status"], "stopped");
    fixture.forget(&second);
    fixture.forget(&first);
    assert_eq!(fixture.get("/sessions/s1").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn rules_06_11_repeated_state_change_succeeds() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    fixture.report(&id, &ready("10.0.0.1"));
    for (path, expected) in [
        ("/pause", ["paused", "Not Found"]),
        ("/pause", ["paused", "Not Found"]),
        ("/resume", ["running", "Ready"]),
        ("/resume", ["running", "Ready"]),
        ("/stop", ["stopped", "Not Found"]),
        ("/stop", ["stopped", "Not Found"]),
        ("/pause", ["stopped", "Not Found"]),
    ] {
        let (code, info) = fixture.change(path, &id).await;
        assert_eq!(
            (code, &info["status"]),
            (200, &json!(expected[0])),
            "{path}"
        );
        assert_eq!(status(&fixture).await, json!(expected), "{path}");
    }
    assert_eq!(fixture.change("/resume", &id).await.0, 404);
    assert_eq!(fixture.found("/list").await["total"], 0);
}

#[tokio::test(start_paused = true)]
async fn rules_12_28_39_unknown_foreign_stopped_and_missing_id() {
    let fixture = GatewayFixture::new();
    for body in [json!({"runtime_id": null}), json!({})] {
        let nothing = (200, json!({"runtime_id": null}));
        assert_eq!(fixture.post("/stop", &body).await, nothing);
        assert_eq!(fixture.post("/pause", &body).await, nothing);
        assert_eq!(fixture.post("/resume", &body).await.0, 400);
    }
    assert_eq!(fixture.call_as(KEY, "POST", "/stop", "").await.0, 200);
    let id = fixture.started("s1").await;
    let listed = fixture.call_as(OTHER_KEY, "GET", "/list", "").await.1;
    assert_eq!(listed["total"], 0);
    for _ in 0..2 {
        assert_eq!(fixture.change("/stop", &id).await.0, 200);
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
    let unknown = json!({"detail": "no runtime for this session"});
    assert_eq!(answer, (404, unknown));
}

#[tokio::test(start_paused = true)]
async fn rules_14_15_resume_returns_full_info_with_same_key() {
    let fixture = GatewayFixture::new();
    let (_, before) = fixture.start(json!({})).await;
    let id = before["runtime_id"].as_str().unwrap();
    fixture.change("/pause", id).await;
    let (code, after) = fixture.change("/resume", id).await;
    assert_eq!((code, &after["status"]), (200, &json!("starting")));
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
        let id = fixture.started(session).await;
        fixture.report(&id, &status);
        match session {
            "paused" => fixture.change("/pause", &id).await,
            "stopped" => fixture.change("/stop", &id).await,
            _ => continue,
        };
    }
    let without_session = crds::Sandbox::new("mine", crds::sandbox::SandboxSpec::default());
    fixture.index.apply(&fixture.put(&without_session));
    for path in ["/list", "/runtime/list"] {
        let list = fixture.found(path).await;
        let runtimes = list["runtimes"].as_array().unwrap().iter();
        let mut sessions: Vec<_> = runtimes
            .map(|r| r["session_id"].as_str().unwrap())
            .collect();
        sessions.sort_unstable();
        assert_eq!(sessions, ["running", "starting"], "{path}");
        assert_eq!(list["total"], 2);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_18_resource_factors() {
    let fixture = GatewayFixture::new();
    for (factor, made) in [
        (json!(1), 1.0),
        (json!(4.0), 4.0),
        (json!(0.5), 0.5),
        (json!(1000), 8.0),
        (Value::Null, 1.0),
    ] {
        let body = json!({"session_id": factor.to_string(), "resource_factor": factor});
        let (code, info) = fixture.start(body).await;
        assert_eq!((code, info["resource_factor"].as_f64()), (201, Some(made)));
        let detail = info["status_detail"].as_str().unwrap_or_default();
        let capped = detail.contains("resource_factor is capped at 8");
        assert_eq!(capped, factor == json!(1000), "{detail}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_19_commands_in_both_shapes() {
    let fixture = GatewayFixture::new();
    let quoted = json!("a 'b c' \"d\" e\\ f");
    let shell = json!("a; b | c && $d");
    for (sent, words) in [
        (quoted, Some(&["a", "b c", "d", "e f"][..])),
        (json!(["a", "b c"]), Some(&["a", "b c"])),
        (shell, Some(&["a;", "b", "|", "c", "&&", "$d"])),
        (json!(""), None),
        (json!([]), None),
        (Value::Null, None),
    ] {
        let body = json!({"session_id": sent.to_string(), "command": sent});
        let (_, info) = fixture.start(body).await;
        let made = fixture.stored(info["runtime_id"].as_str().unwrap());
        assert_eq!(json!(made.spec.command), json!(words), "{sent}");
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
    let mut strict = config.clone();
    strict.runtime_classes.strict = true;
    strict.runtime_classes.installed = vec!["sysbox-runc".into()];
    let lenient = GatewayFixture::beside(&FakeApi::default(), config);
    let strict = GatewayFixture::beside(&FakeApi::default(), strict);
    for (fixture, asked, class, noted) in [
        (&lenient, Value::Null, "runc", false),
        (&lenient, json!(""), "runc", false),
        (&lenient, json!("runc"), "runc", false),
        (&lenient, json!("gvisor"), "runsc", false),
        (&lenient, json!("kata-qemu"), "kata-qemu", false),
        (&lenient, json!("sysbox-runc"), "runc", true),
        (&lenient, json!("sysbox"), "runc", true),
        (&strict, json!("sysbox"), "sysbox-runc", false),
        (&strict, json!("runc"), "runc", false),
        (&strict, json!(""), "runc", false),
    ] {
        let body = json!({"session_id": asked.to_string(), "runtime_class": asked});
        let (code, info) = fixture.start(body).await;
        assert_eq!((code, &info["runtime_class"]), (201, &json!(class)));
        let note = info["status_detail"].as_str().unwrap_or_default();
        assert_eq!(note.contains("not installed"), noted, "{note}");
    }
    let kata = json!({"runtime_class": "kata"});
    assert_eq!(strict.start(kata).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn rules_22_23_identity_and_pull_policy_are_set_only_on_request() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    let spec = fixture.stored(&id).spec;
    assert_eq!(spec.security_context, None);
    assert_eq!(spec.image_pull_policy, None);
    let body = json!({"session_id": "s2", "fs_group": 7, "image_pull_policy": "IfNotPresent"});
    let (_, info) = fixture.start(body).await;
    let spec = fixture.stored(info["runtime_id"].as_str().unwrap()).spec;
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
    let (_, info) = fixture.start(json!({"environment": environment})).await;
    let name = info["runtime_id"].as_str().unwrap();
    let sealed = fixture.stored(name).spec.sealed_env.unwrap();
    let opened = fixture.keys.open("sandboxes", name, &sealed).unwrap();
    let expected =
        json!({"B": "false", "E": "", "F": "1.5", "N": "1", "O": "{\"a\":[1]}", "T": "text"});
    assert_eq!(json!(opened), expected);
}

#[tokio::test(start_paused = true)]
async fn rules_25_26_session_ids_round_trip() {
    let fixture = GatewayFixture::new();
    let long = "x".repeat(256);
    for (session, path) in [
        ("rt_123456", "rt_123456"),
        ("a b/c%", "a%20b%2Fc%25"),
        ("a/b c?d#e%", "a%2Fb%20c%3Fd%23e%25"),
        ("None", "None"),
        ("Batch", "Batch"),
        ("\u{fc}", "%C3%BC"),
        ("/a/", "%2Fa%2F"),
        ("/b/", "/b/"),
        ("c/", "c/"),
        (&long, &long),
    ] {
        fixture.started(session).await;
        let info = fixture.found(&format!("/sessions/{path}")).await;
        assert_eq!(info["session_id"], json!(session));
    }
    // The name of the field in old clients.
    let body = json!({"image": "i", "name": "old"});
    let (code, info) = fixture.post("/start", &body).await;
    assert_eq!((code, &info["session_id"]), (201, &json!("old")));
}

#[tokio::test(start_paused = true)]
async fn rule_27_start_over_quota_queues_until_queue_is_full() {
    let fixture = limited(&json!({"maxSandboxes": 2, "maxWaiting": 1}));
    for session in ["a", "b", "c"] {
        let (code, info) = fixture.start(json!({"session_id": session})).await;
        assert_eq!((code, &info["status"]), (201, &json!("starting")));
    }
    let waiting = fixture.found("/sessions/c").await;
    let id = waiting["runtime_id"].as_str().unwrap();
    let reported = SandboxStatus {
        phase: Phase::Pending,
        reason: Some(Reason::QuotaExceeded),
        message: Some("waits for its turn".into()),
        pod_status: Some(PodStatus::Pending),
        ..SandboxStatus::default()
    };
    fixture.report(id, &reported);
    let waiting = fixture.found("/sessions/c").await;
    let shown = ["status", "pod_status", "status_detail"].map(|field| &waiting[field]);
    assert_eq!(
        json!(shown),
        json!(["starting", "Pending", "waits for its turn"])
    );

    let (code, answer) = fixture.start(json!({"session_id": "d"})).await;
    assert_eq!(code, 503);
    assert!(answer["detail"].as_str().unwrap().contains("queued"));
    // An existing session is not rejected, nor are other tenants.
    fixture.started("c").await;
    let body = json!({"image": "i", "session_id": "d"}).to_string();
    let other = fixture.call_as(OTHER_KEY, "POST", "/start", &body).await;
    assert_eq!(other.0, 201);
    let first = fixture.found("/sessions/a").await;
    let first = first["runtime_id"].as_str().unwrap();
    fixture.change("/stop", first).await;
    // The controller has admitted the third one.
    fixture.report(id, &starting(false));
    fixture.started("d").await;
}

#[tokio::test(start_paused = true)]
async fn rule_41_start_beyond_all_sandboxes_is_rejected_until_one_is_stopped() {
    let fixture = limited(&json!({"maxTotalSandboxes": 2}));
    let first = fixture.started("a").await;
    fixture.change("/pause", &first).await;
    fixture.started("b").await;
    let (code, answer) = fixture.start(json!({"session_id": "c"})).await;
    assert_eq!(code, 503);
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("has 2 sandboxes"), "{detail}");
    // An existing session is not rejected, nor are other tenants.
    fixture.started("a").await;
    let body = json!({"image": "i", "session_id": "c"}).to_string();
    let other = fixture.call_as(OTHER_KEY, "POST", "/start", &body).await;
    assert_eq!(other.0, 201);
    fixture.change("/stop", &first).await;
    fixture.started("c").await;
}

#[tokio::test(start_paused = true)]
async fn rule_27_rate_limited_call_waits_without_429() {
    let fixture = limited(&json!({"callsPerSecond": 10}));
    let began = Instant::now();
    let answers = fixture.get_all(&vec!["/list".into(); 100]).await;
    let answered = answers.iter().filter(|(code, _)| *code == 200).count();
    assert_eq!(answered, 71);
    assert!(answers.iter().all(|(code, _)| [200, 503].contains(code)));
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn rule_27_rate_limit_never_fails_a_start() {
    let fixture = limited(&json!({"callsPerSecond": 10}));
    let id = fixture.started("s1").await;
    fixture.change("/pause", &id).await;
    let began = Instant::now();
    for path in [
        "/sessions/s1",
        "/sessions/batch?ids=s1",
        &format!("/runtime/{id}"),
    ] {
        for _ in 0..100 {
            fixture.found(path).await;
        }
    }
    assert!(began.elapsed().is_zero());
    // A rate-limited call has less time left for the rest.
    let lists = vec!["/list".into(); 60];
    let calls = fixture.get_all(&lists);
    fixture.api.set_silent(true);
    let (_, (code, _)) = tokio::join!(calls, fixture.start(json!({})));
    assert_eq!(code, 503);
    assert_eq!(began.elapsed().as_secs(), 8);
}

#[tokio::test(start_paused = true)]
async fn rules_11_29_repeated_change_needs_no_api_server() {
    let fixture = GatewayFixture::new();
    let id = fixture.started("s1").await;
    let limit = std::time::Duration::from_secs(10);
    // The requested change, and one that is not in effect yet.
    for (verb, other) in [("/resume", "/pause"), ("/pause", "/resume"), ("/stop", "")] {
        assert_eq!(fixture.change(verb, &id).await.0, 200, "{verb}");
        for silent in [false, true] {
            fixture.api.set_silent(silent);
            fixture.api.set_unavailable(!silent);
            let began = Instant::now();
            let (code, answer) = fixture.change(verb, &id).await;
            assert_eq!(code, 200, "{verb}: {answer}");
            if !other.is_empty() {
                assert_eq!(fixture.change(other, &id).await.0, 503, "{other}");
            }
            assert!(began.elapsed() < 2 * limit);
        }
        fixture.api.set_silent(false);
        fixture.api.set_unavailable(false);
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_before_the_client_timeout() {
    let fixture = limited(&json!({"callsPerSecond": 10}));
    let id = fixture.started("s1").await;
    fixture.api.set_silent(true);
    let lists = vec!["/list".into(); 65];
    let calls = async || {
        let began = Instant::now();
        let ((pause, _), (stop, _), (resume, _)) = tokio::join!(
            fixture.change("/pause", &id),
            fixture.change("/stop", &id),
            fixture.change("/resume", "kqzvbnwmxatyploe"),
        );
        assert_eq!([pause, stop, resume], [503; 3]);
        began.elapsed().as_secs()
    };
    let (_, took) = tokio::join!(fixture.get_all(&lists), calls());
    assert_eq!(took, 8);
    let began = Instant::now();
    let configs = vec!["/api/warm-runtime-configs".into(); 5];
    for (code, answer) in fixture.get_all(&configs).await {
        assert_eq!(code, 503, "{answer}");
    }
    assert!(began.elapsed().as_secs() <= 8);
}

#[tokio::test(start_paused = true)]
async fn rule_30_url_form_follows_the_api_key() {
    let fixture = limited(&json!({"urlForm": "path"}));
    let id = fixture.started("s1").await;
    let url = |port: &str| format!("https://rt.example.com/{id}/{port}");
    for path in ["/sessions/s1", &format!("/runtime/{id}")] {
        let info = fixture.found(path).await;
        assert_eq!(info["url"], url("runtime"));
        assert_eq!(info["work_hosts"][url("work-1")], 12000);
    }
    let body = json!({"image": "i", "session_id": "s1"}).to_string();
    let (_, info) = fixture.call_as(OTHER_KEY, "POST", "/start", &body).await;
    let other = info["runtime_id"].as_str().unwrap();
    assert_eq!(info["url"], format!("https://{other}.rt.example.com"));
    assert_eq!(config().urls.form, UrlForm::Nested);
}

#[tokio::test(start_paused = true)]
async fn rules_31_35_slashes_head_options_and_errors() {
    let fixture = GatewayFixture::new();
    fixture.started("s1").await;
    for path in ["//list", "/list/", "/sessions/s1/", "//sessions/s1//"] {
        fixture.found(path).await;
    }
    for (method, path, expected) in [
        ("HEAD", "/list", (200, Value::Null)),
        ("OPTIONS", "/start", (204, Value::Null)),
        ("GET", "/nothing", (404, json!({"detail": "no such path"}))),
    ] {
        assert_eq!(fixture.call_as(KEY, method, path, "").await, expected);
    }
    assert_eq!(fixture.call_as(KEY, "DELETE", "/list", "").await.0, 405);
    assert!(fixture.get("/start").await.1["detail"].is_string());
    assert_eq!(fixture.get("/sessions/%FF").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn rule_37_unchecked_image_exists() {
    let fixture = GatewayFixture::new();
    let exists = json!({"exists": true, "image": {"upload_time": "", "image_size_bytes": 0}});
    assert_eq!(fixture.found("/image_exists?image=a/b:c").await, exists);
    assert_eq!(fixture.get("/image_exists").await.0, 400);
}
