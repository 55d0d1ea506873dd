//! The table of ambiguities (runtime API spec 7), row by row, where client or controller can see it.
//! Row 20, a working directory that does not exist, is the supervisor's and tested there.

#[cfg(test)]
#[path = "gateway_rules/controller.rs"]
mod controller;
#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase, PodStatus, PullPolicy, SandboxStatus};
use http::Method;
use operator::gateway::{ApiSettings, RuntimeClasses, Tenants};
use operator::urls::UrlForm;
use serde_json::{Value, json};
use support::fake_api::FakeApi;

use support::world::{KEY, OTHER_KEY, World, config, ready, starting};

#[cfg(test)]
async fn start(world: &World, body: Value) -> (u16, Value) {
    let mut whole = json!({"image": "i", "session_id": "s1", "command": ["a", "b"]});
    for (name, value) in body.as_object().unwrap() {
        whole[name] = value.clone();
    }
    world.post("/start", &whole).await
}

#[cfg(test)]
async fn started(world: &World) -> String {
    let (code, info) = start(world, json!({})).await;
    assert_eq!(code, 201, "{info}");
    info["runtime_id"].as_str().unwrap().to_owned()
}

#[cfg(test)]
fn failed(pod: PodStatus) -> SandboxStatus {
    SandboxStatus {
        phase: Phase::Failed,
        pod_status: Some(pod),
        ..SandboxStatus::default()
    }
}

#[cfg(test)]
async fn status(world: &World) -> (Value, Value) {
    let (code, info) = world.get("/sessions/s1").await;
    assert_eq!(code, 200);
    (info["status"].clone(), info["pod_status"].clone())
}

#[tokio::test(start_paused = true)]
async fn rule_01_a_start_returns_what_lives_resumes_what_rests_and_replaces_what_is_over() {
    let world = World::new();
    let id = started(&world).await;
    for alive in [starting(false), ready("10.0.0.1"), starting(true)] {
        world.report(&id, &alive);
        let (_, again) = start(&world, json!({"command": "else", "resource_factor": 2})).await;
        assert_eq!(again["runtime_id"], json!(id));
        assert_eq!(again["command"], json!(["a", "b"]));
    }
    world.post("/pause", &json!({"runtime_id": id})).await;
    assert_eq!(started(&world).await, id);
    world.report(&id, &failed(PodStatus::Failed));
    let second = started(&world).await;
    assert_ne!(second, id);
    assert_eq!(world.api.get(&id).spec.state, DesiredState::Stopped);
    world.post("/stop", &json!({"runtime_id": second})).await;
    let third = started(&world).await;
    assert!(third != second && third != id);
}

#[tokio::test(start_paused = true)]
async fn rule_01_starts_of_one_session_at_once_make_one_sandbox() {
    let first = World::new();
    let second = World::beside(&first.api, config());
    let starts = (0..16).map(|n| {
        let world = if n % 2 == 0 { &first } else { &second };
        started(world)
    });
    let ids = futures::future::join_all(starts).await;
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(first.api.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_02_another_image_changes_nothing_while_the_sandbox_lives() {
    let world = World::new();
    let id = started(&world).await;
    let (_, info) = start(&world, json!({"image": "new"})).await;
    assert_eq!(
        (&info["runtime_id"], &info["image"]),
        (&json!(id), &json!("i"))
    );
    world.post("/pause", &json!({"runtime_id": id})).await;
    let (_, info) = start(&world, json!({"image": "new"})).await;
    assert_eq!(
        (&info["runtime_id"], &info["image"]),
        (&json!(id), &json!("i"))
    );
}

#[tokio::test(start_paused = true)]
async fn rule_03_a_start_is_201_also_if_nothing_was_made() {
    let world = World::new();
    for _ in 0..2 {
        assert_eq!(start(&world, json!({})).await.0, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_04_starting_until_it_answers() {
    let world = World::new();
    let id = started(&world).await;
    let not_yet = SandboxStatus {
        pod_status: Some(PodStatus::Running),
        ..starting(false)
    };
    for (told, expected) in [
        (not_yet, ("starting", "Running")),
        (starting(false), ("starting", "Pending")),
        (ready("10.0.0.1"), ("running", "Ready")),
    ] {
        world.report(&id, &told);
        let (status, pod) = status(&world).await;
        assert_eq!(
            (status.as_str(), pod.as_str()),
            (Some(expected.0), Some(expected.1))
        );
    }
}

#[test]
fn rule_05_pod_status_is_spelt_as_old_clients_compare_it() {
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
async fn rule_06_no_pod_status_that_clients_map_while_it_rests() {
    let world = World::new();
    let id = started(&world).await;
    world.report(&id, &ready("10.0.0.1"));
    world.post("/pause", &json!({"runtime_id": id})).await;
    assert_eq!(status(&world).await, (json!("paused"), json!("Not Found")));
    world.post("/stop", &json!({"runtime_id": id})).await;
    assert_eq!(status(&world).await, (json!("stopped"), json!("Not Found")));
}

#[tokio::test(start_paused = true)]
async fn rule_08_a_runtime_is_known_before_its_pod_exists() {
    let world = World::new();
    let id = started(&world).await;
    let (code, info) = world.get(&format!("/runtime/{id}")).await;
    assert_eq!((code, &info["pod_status"]), (200, &json!("Not Found")));
}

#[tokio::test(start_paused = true)]
async fn rule_09_a_stopped_session_is_stopped_and_then_unknown() {
    let world = World::new();
    let id = started(&world).await;
    world.post("/stop", &json!({"runtime_id": id})).await;
    assert_eq!(status(&world).await.0, "stopped");
    world.forget(&id);
    assert_eq!(world.get("/sessions/s1").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn rule_10_the_newest_runtime_of_a_session_counts() {
    let world = World::new();
    let first = started(&world).await;
    world.post("/stop", &json!({"runtime_id": first})).await;
    let second = started(&world).await;
    let (_, info) = world.get("/sessions/s1").await;
    assert_eq!(info["runtime_id"], json!(second));
    assert_eq!(
        world.get(&format!("/runtime/{first}")).await.1["status"],
        "stopped"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_11_what_is_so_already_is_fine() {
    let world = World::new();
    let body = json!({"runtime_id": started(&world).await});
    for path in ["/resume", "/pause", "/pause", "/resume", "/resume"] {
        assert_eq!(world.post(path, &body).await.0, 200, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_12_stop_of_the_unknown_the_stopped_and_nothing() {
    let world = World::new();
    let id = started(&world).await;
    for (id, code) in [
        (json!("aaaaaaaaaaaaaaaa"), 404),
        (json!(id), 200),
        (json!(id), 200),
        (Value::Null, 200),
    ] {
        let body = json!({"runtime_id": id});
        assert_eq!(world.post("/stop", &body).await.0, code, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_13_a_start_can_be_paused() {
    let world = World::new();
    let id = started(&world).await;
    world.report(&id, &starting(false));
    let (code, info) = world.post("/pause", &json!({"runtime_id": id})).await;
    assert_eq!((code, &info["status"]), (200, &json!("paused")));
}

#[tokio::test(start_paused = true)]
async fn rules_14_15_a_resume_answers_whole_and_with_the_same_key() {
    let world = World::new();
    let (_, before) = start(&world, json!({})).await;
    let body = json!({"runtime_id": before["runtime_id"]});
    world.post("/pause", &body).await;
    let (code, after) = world.post("/resume", &body).await;
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
async fn rules_16_38_a_list_has_the_live_ones_and_their_number() {
    let world = World::new();
    for (session, status) in [
        ("starting", starting(false)),
        ("running", ready("10.0.0.1")),
        ("failed", failed(PodStatus::Failed)),
        ("paused", ready("10.0.0.2")),
        ("stopped", ready("10.0.0.3")),
    ] {
        let (_, info) = start(&world, json!({"session_id": session})).await;
        let id = info["runtime_id"].as_str().unwrap();
        world.report(id, &status);
        let path = match session {
            "paused" => "/pause",
            "stopped" => "/stop",
            _ => continue,
        };
        world.post(path, &json!({"runtime_id": id})).await;
    }
    let of_nobody = crds::Sandbox::new("mine", crds::sandbox::SandboxSpec::default());
    world.index.apply(&world.api.put(&of_nobody));
    for path in ["/list", "/runtime/list"] {
        let (_, list) = world.get(path).await;
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
async fn rule_17_a_batch_is_strictly_by_position() {
    let world = World::new();
    started(&world).await;
    let ids: Vec<_> = (0..200).map(|n| format!("ids=s{n}")).collect();
    let (code, batch) = world
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
    let world = World::new();
    for (n, (factor, made)) in [
        (json!(1), Some(1.0)),
        (json!(4.0), Some(4.0)),
        (json!(0.5), Some(0.5)),
        (json!(1000), Some(64.0)),
        (Value::Null, Some(1.0)),
        (json!(0), None),
        (json!(-1), None),
        (json!("2"), None),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"session_id": n.to_string(), "resource_factor": factor});
        let (code, info) = start(&world, body).await;
        assert_eq!(code, if made.is_some() { 201 } else { 400 }, "{factor}");
        assert_eq!(info["resource_factor"].as_f64(), made, "{factor}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_19_commands_in_both_shapes() {
    let world = World::new();
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
        let (_, info) = start(&world, body).await;
        let made = world.api.get(info["runtime_id"].as_str().unwrap());
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
        installed: ["runsc".to_owned()].into(),
        gvisor: Some("runsc".into()),
        strict: false,
    };
    let world = World::beside(&FakeApi::default(), config.clone());
    for (n, (asked, class, noted)) in [
        (Value::Null, "runc", false),
        (json!(""), "runc", false),
        (json!("gvisor"), "runsc", false),
        (json!("sysbox-runc"), "runc", true),
        (json!("sysbox"), "runc", true),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"session_id": n.to_string(), "runtime_class": asked});
        let (code, info) = start(&world, body).await;
        assert_eq!(
            (code, &info["runtime_class"]),
            (201, &json!(class)),
            "{asked}"
        );
        let note = info["status_detail"].as_str().unwrap_or_default();
        assert_eq!(note.contains("not installed"), noted, "{note}");
    }
    config.runtime_classes.strict = true;
    let strict = World::beside(&FakeApi::default(), config);
    assert_eq!(
        start(&strict, json!({"runtime_class": "sysbox"})).await.0,
        400
    );
}

#[tokio::test(start_paused = true)]
async fn rules_22_23_identity_and_pull_policy_only_as_asked() {
    let world = World::new();
    let id = started(&world).await;
    let spec = world.api.get(&id).spec;
    assert_eq!(
        (spec.security_context, spec.image_pull_policy),
        (None, None)
    );
    let body = json!({"session_id": "s2", "fs_group": 7, "image_pull_policy": "IfNotPresent"});
    let (_, info) = start(&world, body).await;
    let spec = world.api.get(info["runtime_id"].as_str().unwrap()).spec;
    let security = spec.security_context.unwrap();
    assert_eq!((security.run_as_user, security.fs_group), (None, Some(7)));
    assert_eq!(spec.image_pull_policy, Some(PullPolicy::IfNotPresent));
}

#[tokio::test(start_paused = true)]
async fn rules_24_36_the_environment_becomes_text_and_never_names_the_servers_own() {
    let world = World::new();
    let environment = json!({
        "N": 1, "F": 1.5, "B": false, "GONE": null, "T": "text",
        "SESSION_API_KEY": "mine", "OH_SESSION_API_KEYS_0": "mine", "RUNTIME_URL": "x",
    });
    let (_, info) = start(&world, json!({"environment": environment})).await;
    let name = info["runtime_id"].as_str().unwrap();
    let sealed = world.api.get(name).spec.sealed_env.unwrap();
    let opened = world.keys.open("sandboxes", name, &sealed).unwrap();
    let pairs: Vec<_> = opened.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert_eq!(
        pairs,
        [("B", "false"), ("F", "1.5"), ("N", "1"), ("T", "text")]
    );
}

#[tokio::test(start_paused = true)]
async fn rules_25_26_session_ids() {
    let world = World::new();
    for session in [
        "rt_123456",
        "a/b c?d#e%",
        "ü",
        "None",
        "Batch",
        &"x".repeat(256),
    ] {
        let (code, info) = start(&world, json!({"session_id": session})).await;
        assert_eq!((code, &info["session_id"]), (201, &json!(session)));
    }
    for session in [
        Value::Null,
        json!(""),
        json!("x".repeat(257)),
        json!("batch"),
        json!(7),
    ] {
        let (code, answer) = start(&world, json!({"session_id": session})).await;
        assert_eq!(code, 400, "{session}");
        assert!(answer["detail"].is_string());
    }
}

/// Tenants of the two keys, the first with these fields in its record.
#[cfg(test)]
fn limited(fields: &Value) -> Tenants {
    let hash = |key: &str| {
        let hash = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
        operator::tenants::book::hex(hash.as_ref())
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
async fn rule_27_who_is_over_its_quota_waits_and_only_a_full_queue_refuses() {
    let tenants = limited(&json!({"maxSandboxes": 2, "maxWaiting": 1}));
    let world = World::of(&FakeApi::default(), tenants, ApiSettings::default());
    for session in ["a", "b", "c"] {
        let (code, info) = start(&world, json!({"session_id": session})).await;
        assert_eq!((code, &info["status"]), (201, &json!("starting")));
    }
    let (_, waiting) = world.get("/sessions/c").await;
    let id = waiting["runtime_id"].as_str().unwrap().to_owned();
    let told = SandboxStatus {
        phase: Phase::Pending,
        reason: Some(Reason::QuotaExceeded),
        message: Some("waits for its turn".into()),
        pod_status: Some(PodStatus::Pending),
        ..SandboxStatus::default()
    };
    world.report(&id, &told);
    let (_, waiting) = world.get("/sessions/c").await;
    assert_eq!(
        (&waiting["status"], &waiting["pod_status"]),
        (&json!("starting"), &json!("Pending"))
    );
    assert_eq!(waiting["status_detail"], "waits for its turn");

    let (code, answer) = start(&world, json!({"session_id": "d"})).await;
    assert_eq!(code, 503);
    assert!(answer["detail"].as_str().unwrap().contains("wait"));
    // Who is there already is not refused, nor are others.
    assert_eq!(start(&world, json!({"session_id": "c"})).await.0, 201);
    let body = json!({"image": "i", "session_id": "d"}).to_string();
    assert_eq!(
        world.call_as(OTHER_KEY, "POST", "/start", &body).await.0,
        201
    );
    let (_, first) = world.get("/sessions/a").await;
    world
        .post("/stop", &json!({"runtime_id": first["runtime_id"]}))
        .await;
    // The controller has let the third one in.
    world.report(&id, &starting(false));
    assert_eq!(start(&world, json!({"session_id": "d"})).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn rule_27_who_calls_too_fast_waits_and_is_never_told_429() {
    let tenants = limited(&json!({"callsPerSecond": 10}));
    let world = World::of(&FakeApi::default(), tenants, ApiSettings::default());
    let began = tokio::time::Instant::now();
    let calls = (0..100).map(|_| world.get("/list"));
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
async fn rule_27_a_pace_never_ends_a_start() {
    let tenants = limited(&json!({"callsPerSecond": 10}));
    let world = World::of(&FakeApi::default(), tenants, ApiSettings::default());
    let id = started(&world).await;
    world.post("/pause", &json!({"runtime_id": id})).await;
    let began = tokio::time::Instant::now();
    for path in [
        "/sessions/s1",
        "/sessions/batch?ids=s1",
        &format!("/runtime/{id}"),
    ] {
        for _ in 0..100 {
            assert_eq!(world.get(path).await.0, 200, "{path}");
        }
    }
    assert!(began.elapsed().is_zero());
    // Whoever waited for a turn has less time left for everything else.
    let calls = futures::future::join_all((0..60).map(|_| world.get("/list")));
    world.api.set_silent(true);
    let (_, (code, _)) = tokio::join!(calls, start(&world, json!({})));
    assert_eq!(code, 503);
    assert_eq!(began.elapsed().as_secs(), 8);
}

#[tokio::test(start_paused = true)]
async fn rules_11_29_what_is_so_already_is_no_matter_of_the_cluster() {
    let world = World::new();
    let id = started(&world).await;
    let body = json!({"runtime_id": id});
    let limit = std::time::Duration::from_secs(10);
    // What is asked for, and what is not so yet.
    for (verb, other) in [("/resume", "/pause"), ("/pause", "/resume"), ("/stop", "")] {
        assert_eq!(world.post(verb, &body).await.0, 200, "{verb}");
        for silent in [false, true] {
            world.api.set_silent(silent);
            world.api.set_away(!silent);
            let began = tokio::time::Instant::now();
            let (code, answer) = world.post(verb, &body).await;
            assert_eq!(code, 200, "{verb}: {answer}");
            if !other.is_empty() {
                assert_eq!(world.post(other, &body).await.0, 503, "{other}");
            }
            assert!(began.elapsed() < 2 * limit);
        }
        world.api.set_silent(false);
        world.api.set_away(false);
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_has_its_answer_while_a_client_waits() {
    let tenants = limited(&json!({"callsPerSecond": 10}));
    let world = World::of(&FakeApi::default(), tenants, ApiSettings::default());
    let id = started(&world).await;
    world.api.set_silent(true);
    let busy = futures::future::join_all((0..65).map(|_| world.get("/list")));
    let body = json!({"runtime_id": id});
    let unknown = json!({"runtime_id": "kqzvbnwmxatyploe"});
    let calls = async || {
        let began = tokio::time::Instant::now();
        let codes = tokio::join!(
            world.post("/pause", &body),
            world.post("/stop", &body),
            world.post("/resume", &unknown),
        );
        assert_eq!([codes.0.0, codes.1.0, codes.2.0], [503; 3]);
        began.elapsed().as_secs()
    };
    let (_, took) = tokio::join!(busy, calls());
    assert_eq!(took, 8);
    let configs = (0..5).map(|_| world.get("/api/warm-runtime-configs"));
    let began = tokio::time::Instant::now();
    for (code, answer) in futures::future::join_all(configs).await {
        assert_eq!(code, 503, "{answer}");
    }
    assert!(began.elapsed().as_secs() <= 8);
}

#[tokio::test(start_paused = true)]
async fn rules_28_39_keys_and_what_is_not_theirs() {
    let world = World::new();
    let id = started(&world).await;
    let (code, answer) = world.call_as("wrong", "GET", "/list", "").await;
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
            world.call_as(OTHER_KEY, method, &path, &body).await.0,
            404,
            "{path}"
        );
    }
    assert_eq!(
        world.call_as(OTHER_KEY, "GET", "/list", "").await.1["total"],
        0
    );
}

#[tokio::test(start_paused = true)]
async fn rule_29_reads_go_on_while_the_cluster_is_away() {
    let world = World::new();
    let id = started(&world).await;
    world.api.set_away(true);
    for path in [
        "/list",
        "/sessions/s1",
        "/sessions/batch?ids=s1",
        &format!("/runtime/{id}"),
    ] {
        assert_eq!(world.get(path).await.0, 200, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_30_every_client_gets_the_same_url_in_the_form_of_its_key() {
    let tenants = limited(&json!({"urlForm": "path"}));
    let world = World::of(&FakeApi::default(), tenants, ApiSettings::default());
    let id = started(&world).await;
    let url = format!("https://rt.example.com/{id}/runtime");
    for path in ["/sessions/s1", &format!("/runtime/{id}")] {
        let (_, info) = world.get(path).await;
        assert_eq!(info["url"], json!(url));
        assert_eq!(
            info["work_hosts"][format!("https://rt.example.com/{id}/work-1")],
            12000
        );
    }
    let body = json!({"image": "i", "session_id": "s1"}).to_string();
    let (_, info) = world.call_as(OTHER_KEY, "POST", "/start", &body).await;
    let other = info["runtime_id"].as_str().unwrap();
    assert_eq!(
        info["url"],
        json!(format!("https://{other}.rt.example.com"))
    );
    assert_eq!(config().urls.form, UrlForm::Nested);
}

#[tokio::test(start_paused = true)]
async fn rules_31_35_slashes_head_and_options() {
    let world = World::new();
    started(&world).await;
    for path in ["//list", "/list/", "/sessions/s1/", "//sessions/s1//"] {
        assert_eq!(world.get(path).await.0, 200, "{path}");
        assert_eq!(
            world.call_as(KEY, "HEAD", path, "").await,
            (200, Value::Null)
        );
        assert_eq!(world.call_as(KEY, "OPTIONS", path, "").await.0, 204);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_37_an_image_that_cannot_be_checked_exists() {
    let world = World::new();
    let exists = json!({"exists": true, "image": {"upload_time": "", "image_size_bytes": 0}});
    assert_eq!(world.get("/image_exists?image=a/b:c").await, (200, exists));
    assert_eq!(world.get("/image_exists").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn rule_40_times_are_rfc_3339_in_utc() {
    let world = World::new();
    let (_, info) = start(&world, json!({})).await;
    assert_eq!(info["created_at"], "2026-01-02T03:04:05Z");
    assert_eq!(world.api.calls(), [(Method::POST, String::new())]);
}
