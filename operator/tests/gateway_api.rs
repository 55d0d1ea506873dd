//! The runtime API against a fake Kubernetes API: what clients see, call by call.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use axum::body::Body;
use crds::sandbox::{DesiredState, Phase, PodStatus, Restarts, SandboxStatus};
use http::{Method, Request};
use operator::gateway::RuntimeClasses;
use serde_json::{Value, json};

use support::fake_api::FakeApi;
use support::world::{KEY, OTHER_KEY, World, config, read, ready, starting};

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

#[cfg(test)]
async fn started(world: &World, session: &str) -> String {
    let body = json!({"image": "i", "session_id": session, "command": ["a", "b"]});
    let (code, info) = world.post("/start", &body).await;
    assert_eq!(code, 201, "{info}");
    info["runtime_id"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_start_makes_one_object_and_answers_whole() {
    let world = World::new();
    let (code, info) = world.post("/start", &start_body()).await;
    assert_eq!(code, 201);
    insta::assert_json_snapshot!("runtime_info_of_start", info);

    let mut made = world.api.get(info["runtime_id"].as_str().unwrap());
    let sealed = made.spec.sealed_env.clone().unwrap();
    let name = made.metadata.name.clone().unwrap();
    let environment = world.keys.open("sandboxes", &name, &sealed).unwrap();
    let pairs: Vec<_> = environment.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert_eq!(pairs, [("N", "1"), ("TOKEN", "hunter2")]);
    made.spec.sealed_env = Some("[sealed]".into());
    insta::assert_json_snapshot!("sandbox_of_start", made);
    assert_eq!(world.api.calls(), [(Method::POST, String::new())]);
}

#[tokio::test(start_paused = true)]
async fn the_same_object_is_answered_everywhere() {
    let world = World::new();
    let id = started(&world, "s1").await;
    let status = SandboxStatus {
        restarts: Restarts {
            count: 1,
            reasons: vec!["OOMKilled".into()],
        },
        ..ready("10.0.0.9")
    };
    world.report(&id, &status);
    let (code, by_session) = world.get("/sessions/s1").await;
    assert_eq!(code, 200);
    insta::assert_json_snapshot!("runtime_info_running", by_session);
    assert_eq!(
        world.get(&format!("/runtime/{id}")).await,
        (200, by_session.clone())
    );
    let batch = world.get("/sessions/batch?ids=s1&ids=none&ids=s1").await;
    let expected = json!([by_session, null, by_session]);
    assert_eq!(batch, (200, expected));
    let list = json!({"runtimes": [by_session], "total": 1});
    assert_eq!(world.get("/list").await, (200, list));
    assert_eq!(world.get("/sessions/batch").await, (200, json!([])));
}

#[tokio::test(start_paused = true)]
async fn a_warm_start_is_running_at_once() {
    let world = World::new();
    let body = json!({"image": "i", "session_id": "s1"});
    let start = world.post("/start", &body);
    let controller = async {
        let mut changes = world.index.changes();
        let key = changes.recv().await.unwrap();
        world.report(&key.name, &ready("10.0.0.9"));
    };
    let ((code, info), ()) = tokio::join!(start, controller);
    assert_eq!((code, &info["status"]), (201, &json!("running")));
    assert_eq!(info["command"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn two_replicas_start_one_sandbox() {
    let first = World::new();
    let second = World::beside(&first.api, config());
    let body = json!({"image": "i", "session_id": "s1"});
    let (a, b) = tokio::join!(first.post("/start", &body), second.post("/start", &body));
    assert_eq!((a.0, b.0), (201, 201));
    assert_eq!(a.1["runtime_id"], b.1["runtime_id"]);
    assert_eq!(a.1["session_api_key"], b.1["session_api_key"]);
    assert_eq!(first.api.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_resumes_what_is_paused() {
    let world = World::new();
    let id = started(&world, "s1").await;
    let (code, info) = world.post("/pause", &json!({"runtime_id": id})).await;
    assert_eq!((code, &info["status"]), (200, &json!("paused")));
    assert_eq!(info["pod_status"], "Not Found");
    assert_eq!(started(&world, "s1").await, id);
    assert_eq!(world.api.get(&id).spec.state, DesiredState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_start_replaces_what_is_over() {
    let world = World::new();
    let first = started(&world, "s1").await;
    world.report(
        &first,
        &SandboxStatus {
            phase: Phase::Failed,
            pod_status: Some(PodStatus::CrashLoopBackOff),
            ..SandboxStatus::default()
        },
    );
    let (_, info) = world.get("/sessions/s1").await;
    assert_eq!(info["status"], "error");
    assert_eq!(info["pod_status"], "CrashLoopBackOff");

    let second = started(&world, "s1").await;
    assert_ne!(first, second);
    assert_eq!(world.api.get(&first).spec.state, DesiredState::Stopped);
    assert_eq!(world.api.get(&second).spec.session.unwrap().epoch, 1);
    let (_, info) = world.get("/sessions/s1").await;
    assert_eq!(info["runtime_id"], json!(second));

    // Another replica stops it; this one has not heard of it yet.
    let other = World::beside(&world.api, config());
    assert_eq!(
        other.post("/stop", &json!({"runtime_id": second})).await.0,
        200
    );
    let third = started(&world, "s1").await;
    assert_eq!(world.api.get(&third).spec.session.unwrap().epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn states_are_changed_again_and_again() {
    let world = World::new();
    let id = started(&world, "s1").await;
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
        let (code, info) = world.post(path, &body).await;
        assert_eq!(
            (code, info["status"].as_str()),
            (200, Some(status)),
            "{path}"
        );
        let (code, info) = world.get("/sessions/s1").await;
        assert_eq!(
            (code, info["status"].as_str()),
            (200, Some(status)),
            "{path}"
        );
    }
    assert_eq!(world.post("/resume", &body).await.0, 404);
    assert_eq!(world.get("/list").await.1["total"], 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_to_change_is_fine_and_unknown_is_not() {
    let world = World::new();
    for body in [json!({"runtime_id": null}), json!({})] {
        let nothing = (200, json!({"runtime_id": null}));
        assert_eq!(world.post("/stop", &body).await, nothing);
        assert_eq!(world.post("/pause", &body).await, nothing);
        assert_eq!(world.post("/resume", &body).await.0, 400);
    }
    assert_eq!(world.call_as(KEY, "POST", "/stop", "").await.0, 200);
    let id = started(&world, "s1").await;
    for (key, id) in [(KEY, "aaaaaaaaaaaaaaaa"), (KEY, "no-id"), (OTHER_KEY, &*id)] {
        let body = json!({"runtime_id": id}).to_string();
        for path in ["/stop", "/pause", "/resume"] {
            let answer = world.call_as(key, "POST", path, &body).await;
            assert_eq!(answer, (404, json!({"detail": "no runtime with this id"})));
        }
        let path = format!("/runtime/{id}");
        assert_eq!(world.call_as(key, "GET", &path, "").await.0, 404);
    }
    let answer = world.call_as(OTHER_KEY, "GET", "/sessions/s1", "").await;
    assert_eq!(
        answer,
        (404, json!({"detail": "no runtime for this session"}))
    );
}

#[tokio::test(start_paused = true)]
async fn another_replicas_sandbox_is_found() {
    let first = World::new();
    let id = started(&first, "s1").await;
    let path = format!("/runtime/{id}");
    for path in [&*path, "/sessions/s1", "/sessions/batch?ids=s1"] {
        let second = World::beside(&first.api, config());
        let (code, info) = second.get(path).await;
        assert_eq!(code, 200, "{path}");
        assert!(info.to_string().contains(&id), "{path}");
    }
}

fn unsure(session: &str) -> Value {
    json!({
        "runtime_id": null, "session_id": session, "url": null, "session_api_key": null,
        "status": "unknown", "pod_status": "Not Found",
        "status_detail": "the Kubernetes API cannot be asked for this at present",
        "work_hosts": {}, "restart_count": 0,
    })
}

#[tokio::test(start_paused = true)]
async fn known_sandboxes_are_answered_while_the_api_server_is_away() {
    let world = World::new();
    let id = started(&world, "s1").await;
    world.api.set_away(true);
    for path in ["/list", "/sessions/s1", "/sessions/batch?ids=s1", "/health"] {
        assert_eq!(world.get(path).await.0, 200, "{path}");
    }
    // A null would be the end of what may well exist, and no answer the loss of what is known.
    assert_eq!(world.get("/sessions/batch?ids=x").await.0, 503);
    let (code, batch) = world.get("/sessions/batch?ids=x&ids=s1&ids=x").await;
    assert_eq!((code, batch.as_array().unwrap().len()), (200, 3));
    assert_eq!((&batch[0], &batch[2]), (&unsure("x"), &unsure("x")));
    assert_eq!(batch[1], world.get("/sessions/s1").await.1);
    assert_eq!(world.get(&format!("/runtime/{id}")).await.0, 200);
    // The session lives, so a start of it needs no write.
    assert_eq!(started(&world, "s1").await, id);
    let (code, answer) = world.post("/pause", &json!({"runtime_id": id})).await;
    assert_eq!(code, 503);
    assert!(answer["detail"].is_string());
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_moment_are_not_seen() {
    let world = World::new();
    world.api.fail([500, 429]);
    let id = started(&world, "s1").await;
    world.api.fail([409, 503]);
    assert_eq!(
        world.post("/pause", &json!({"runtime_id": id})).await.0,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_cluster_are_told_once_and_as_they_are() {
    let world = World::new();
    for (refusal, code, said) in [
        (413, 400, "larger than"),
        (403, 503, "does not allow this: injected"),
    ] {
        world.api.fail([refusal]);
        let calls = world.api.calls().len();
        let (answered, answer) = world.post("/start", &start_body()).await;
        assert_eq!(answered, code, "{answer}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains(said), "{detail}");
        assert_eq!(world.api.calls().len(), calls + 1, "{refusal}");
    }
    // What was refused left nothing that would be in the way.
    started(&world, "s1").await;
}

#[tokio::test(start_paused = true)]
async fn bad_starts_are_refused_in_words() {
    let world = World::new();
    let long = "x".repeat(257);
    for (field, value) in [
        ("image", json!(null)),
        ("image", json!("")),
        ("session_id", json!(null)),
        ("session_id", json!("")),
        ("session_id", json!("batch")),
        ("session_id", json!(long)),
        ("resource_factor", json!(0)),
        ("resource_factor", json!(-1.5)),
        ("command", json!("a 'b")),
        ("command", json!("a \0")),
        ("command", json!(["a", "\0"])),
        ("working_dir", json!("/a\0b")),
        ("image", json!("a\0b")),
        ("environment", json!({"A": "x".repeat(128 << 10)})),
        ("command", json!(["a", "x".repeat(128 << 10)])),
        ("command", json!({"a": "b"})),
        ("resource_factor", json!("2")),
        ("working_dir", json!("relative")),
        ("working_dir", json!(format!("/{}", "x".repeat(4096)))),
        ("run_as_user", json!(-1)),
        ("image_pull_policy", json!("Sometimes")),
        ("environment", json!(["A=B"])),
    ] {
        let mut body = start_body();
        body[field] = value.clone();
        let (code, answer) = world.post("/start", &body).await;
        assert_eq!(code, 400, "{field}={value}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains(field), "{field}={value}: {detail}");
    }
    let (code, answer) = world
        .call_as(KEY, "POST", "/start", "{\"image\": hunter2")
        .await;
    assert_eq!(code, 400);
    assert!(!answer.to_string().contains("hunter2"));
    let large = "x".repeat((2 << 20) + 1);
    assert_eq!(world.call_as(KEY, "POST", "/start", &large).await.0, 413);
    assert!(world.api.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn legacy_names_and_classes_are_understood() {
    let strict = RuntimeClasses {
        installed: ["sysbox-runc".to_owned()].into(),
        strict: true,
        ..RuntimeClasses::default()
    };
    let mut config = config();
    config.runtime_classes = strict;
    let world = World::beside(&FakeApi::default(), config);
    let body = json!({"image": "i", "name": "old", "runtime_class": "sysbox"});
    let (code, info) = world.post("/start", &body).await;
    assert_eq!((code, &info["session_id"]), (201, &json!("old")));
    assert_eq!(info["runtime_class"], "sysbox-runc");
    let body = json!({"image": "i", "session_id": "s", "runtime_class": "kata"});
    assert_eq!(world.post("/start", &body).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn odd_session_ids_come_back() {
    let world = World::new();
    for (session, path) in [
        ("rt_123456", "rt_123456"),
        ("a b/c%", "a%20b%2Fc%25"),
        ("None", "None"),
        ("ü", "%C3%BC"),
    ] {
        started(&world, session).await;
        let (code, info) = world.get(&format!("/sessions/{path}")).await;
        assert_eq!((code, &info["session_id"]), (200, &json!(session)));
    }
}

#[tokio::test(start_paused = true)]
async fn routes_are_forgiving_and_errors_are_objects() {
    let world = World::new();
    started(&world, "s1").await;
    for path in ["//list", "/list/", "/sessions/s1/", "//sessions/s1"] {
        assert_eq!(world.get(path).await.0, 200, "{path}");
    }
    assert_eq!(
        world.call_as(KEY, "HEAD", "/list", "").await,
        (200, Value::Null)
    );
    assert_eq!(
        world.call_as(KEY, "OPTIONS", "/start", "").await,
        (204, Value::Null)
    );
    let unknown = (404, json!({"detail": "no such path"}));
    assert_eq!(world.get("/nothing").await, unknown);
    assert_eq!(world.call_as(KEY, "DELETE", "/list", "").await.0, 405);
    assert!(world.get("/start").await.1["detail"].is_string());
    assert_eq!(world.get("/sessions/%FF").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn nobody_without_a_key_learns_anything() {
    let world = World::new();
    started(&world, "s1").await;
    for (method, path) in [
        ("POST", "/start"),
        ("POST", "/stop"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("GET", "/list"),
        ("GET", "/sessions/s1"),
        ("GET", "/sessions/batch"),
        ("GET", "/runtime/x"),
    ] {
        let (code, answer) = world.call_as("wrong", method, path, "not json").await;
        assert_eq!(code, 401, "{path}");
        assert!(answer["detail"].is_string(), "{path}");
    }
    let health = Request::get("/health")
        .header("host", "x")
        .body(Body::empty());
    assert_eq!(read(world.send(health.unwrap()).await).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_start_keeps_a_sandbox_that_is_starting() {
    let world = World::new();
    let id = started(&world, "s1").await;
    world.report(&id, &starting(false));
    assert_eq!(started(&world, "s1").await, id);
    let (_, info) = world.get("/sessions/s1").await;
    assert_eq!(info["status_detail"], "CreatingPod");
    // Deleted with kubectl, and the index does not know yet.
    world.api.delete(&id);
    started(&world, "s1").await;
    assert_eq!(world.api.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_leaves_alone_what_is_no_session_of_its_own() {
    let world = World::new();
    let name = world
        .keys
        .session_runtime_id("sandboxes", "default", "s1", 0);
    let foreign = crds::Sandbox::new(&name, crds::sandbox::SandboxSpec::default());
    world.api.put(&foreign);
    let id = started(&world, "s1").await;
    assert_ne!(id, name);
    assert_eq!(world.api.get(&name).spec.state, DesiredState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_know_all_yet_does_not_guess() {
    let world = World::new();
    let first = started(&world, "s1").await;
    world.post("/stop", &json!({"runtime_id": first})).await;
    let second = started(&world, "s1").await;
    assert_ne!(first, second);
    let made = crds::Sandbox::new("mine", crds::sandbox::SandboxSpec::default());
    let made = world.api.put(&made);
    let own_id = world
        .keys
        .object_runtime_id(made.metadata.uid.as_ref().unwrap());

    let fresh = World::unsynced(&world.api);
    assert_eq!(fresh.get("/health").await.0, 503);
    fresh.index.apply(&world.api.get(&first));
    assert_eq!(fresh.get("/sessions/s1").await.0, 503);
    assert_eq!(fresh.get(&format!("/runtime/{second}")).await.0, 200);
    let path = format!("/{own_id}/runtime/alive");
    assert_eq!(fresh.get(&path).await.0, 503);
    fresh.index.apply(&made);
    for name in [&first, &second] {
        fresh.index.apply(&world.api.get(name));
    }
    let seen = [&first, &second].map(|name| operator::index::Key {
        namespace: "sandboxes".into(),
        name: name.clone(),
    });
    fresh.index.retain(&seen.into());
    let (code, info) = fresh.get("/sessions/s1").await;
    assert_eq!((code, info["runtime_id"].as_str()), (200, Some(&*second)));
    assert_eq!(fresh.get(&path).await.0, 404);
    assert_eq!(fresh.get("/health").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn what_is_found_to_be_gone_is_forgotten() {
    let world = World::new();
    let id = started(&world, "s1").await;
    world.api.delete(&id);
    assert_eq!(
        world.post("/pause", &json!({"runtime_id": id})).await.0,
        404
    );
    assert_eq!(world.get("/sessions/s1").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_keys_is_not_healthy() {
    let world = World::new();
    let gateway = operator::gateway::Gateway::new(
        &world.api.client(),
        config(),
        world.keys.clone(),
        world.index.clone(),
        operator::gateway::Tenants::pending(),
    );
    let request = Request::get("/health").header("host", "api.example.com");
    let request = request.body(Body::empty()).unwrap();
    let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 4711));
    let (code, _) = read(gateway.respond(request, peer).await).await;
    assert_eq!(code, 503);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_only_an_id_leads_nowhere() {
    let world = World::new();
    let id = started(&world, "s1").await;
    for end in ["", "/", "?q"] {
        assert_eq!(world.get(&format!("/{id}{end}")).await.0, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_explains_itself_to_its_owner() {
    let world = World::new();
    let id = started(&world, "s1").await;
    let log = "Traceback: no module named hunter2\n";
    let failed = SandboxStatus {
        phase: Phase::Failed,
        reason: Some(crds::conditions::Reason::CrashLoop),
        message: Some("the command ended 3 times".into()),
        pod_status: Some(PodStatus::CrashLoopBackOff),
        restarts: Restarts {
            count: 2,
            reasons: vec!["exit code 1".into()],
        },
        sealed_log: world.keys.seal_log("sandboxes", &id, log).ok(),
        ..SandboxStatus::default()
    };
    world.report(&id, &failed);
    let stored = serde_json::to_string(&world.api.get(&id)).unwrap();
    assert!(!stored.contains("hunter2"));
    let (_, info) = world.get("/sessions/s1").await;
    assert_eq!(info["pod_logs"], log);
    let container = &info["container_statuses"][0];
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoop");
    assert_eq!(
        container["lastState"]["terminated"]["reason"],
        "exit code 1"
    );
    assert_eq!(info["events"][0]["message"], "the command ended 3 times");
    // Copied into another sandbox, it cannot be read.
    let other = started(&world, "s2").await;
    world.report(&other, &failed);
    assert_eq!(world.get("/sessions/s2").await.1["pod_logs"], "");
}

#[tokio::test(start_paused = true)]
async fn a_scan_of_ids_costs_the_api_server_little() {
    let world = World::new();
    let scan = (0..1000).map(|n| {
        let path = format!("/runtime/{}", strange_id(n));
        let world = &world;
        async move { world.get(&path).await.0 }
    });
    let codes = futures::future::join_all(scan).await;
    assert!(codes.iter().all(|code| *code == 404));
    let calls = world.api.calls().len();
    assert_eq!(calls, 100);
    for _ in 0..100 {
        assert_eq!(world.get("/runtime/zzzzzzzzzzzzzzzz").await.0, 404);
    }
    let asked = world.api.calls().len() - calls;
    assert!(asked < 40, "{asked}");
    let path = format!("/runtime/{}", started(&world, "s1").await);
    let other = World::beside(&world.api, config());
    assert_eq!(other.get(&path).await.0, 200);
}

/// Ids that nobody has.
#[cfg(test)]
fn strange_id(n: u32) -> String {
    let letter = |shift: u32| char::from(b'a' + u8::try_from(n >> shift & 15).unwrap());
    let end: String = [12, 8, 4, 0].into_iter().map(letter).collect();
    format!("aaaaaaaaaaaa{end}")
}

#[tokio::test(start_paused = true)]
async fn nothing_is_missing_while_nobody_can_be_asked() {
    let world = World::new();
    world.api.set_away(true);
    let runtimes = (0..200).map(|n| format!("/runtime/{}", strange_id(n)));
    let sessions = (0..700).map(|n| format!("/sessions/x{n}"));
    let paths: Vec<_> = runtimes.chain(sessions).collect();
    for _ in 0..2 {
        let answers = paths.iter().map(|path| world.get(path));
        for (code, answer) in futures::future::join_all(answers).await {
            assert_eq!(code, 503, "{answer}");
        }
    }
    for many in [1, 64, 65, 200] {
        let ids: Vec<_> = (0..many).map(|n| format!("ids=y{n}")).collect();
        let path = format!("/sessions/batch?{}", ids.join("&"));
        assert_eq!(world.get(&path).await.0, 503, "{many}");
    }
    world.api.set_away(false);
    started(&world, "s1").await;
    world.api.set_away(true);
    for many in [1, 64, 65, 200] {
        let ids: Vec<_> = (0..many).map(|n| format!("ids=y{n}")).collect();
        let path = format!("/sessions/batch?ids=s1&{}", ids.join("&"));
        let (code, batch) = world.get(&path).await;
        let batch = batch.as_array().unwrap();
        assert_eq!((code, batch.len()), (200, many + 1), "{many}");
        assert_eq!(batch[0]["session_id"], "s1");
        let is_unsure = |(n, entry): (usize, &Value)| *entry == unsure(&format!("y{n}"));
        assert!(batch[1..].iter().enumerate().all(is_unsure), "{many}");
    }
    world.api.set_away(false);
    let answers = paths.iter().map(|path| world.get(path));
    for (code, answer) in futures::future::join_all(answers).await {
        assert_eq!(code, 404, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_whose_watch_fails_does_not_say_what_is_missing() {
    let vitals = std::sync::Arc::new(operator::vitals::Vitals::default());
    let health = &vitals.health;
    health.begin("sandboxes", "sandboxes.openhands.dev".into());
    let mut config = config();
    config.vitals = vitals.clone();
    let world = World::beside(&FakeApi::default(), config);
    let scan = async || {
        let paths: Vec<_> = (0..200)
            .map(|n| format!("/runtime/{}", strange_id(n)))
            .collect();
        let answers = paths.iter().map(|path| world.get(path));
        let codes = futures::future::join_all(answers).await;
        codes.iter().filter(|(code, _)| *code == 503).count()
    };
    let trouble = operator::kubernetes::health::Trouble::Unreachable("gone".into());
    health.failed("sandboxes", trouble);
    // The first hundred were asked for one by one.
    assert_eq!(scan().await, 100);
    health.heard("sandboxes");
    assert_eq!(scan().await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_is_not_told_when_another_replica_began_anew() {
    for end in [Phase::Failed, Phase::Stopped] {
        let first = World::new();
        let old = started(&first, "s1").await;
        let over = SandboxStatus {
            phase: end,
            ..SandboxStatus::default()
        };
        first.report(&old, &over);
        let known = first.api.get(&old);
        let new = started(&first, "s1").await;
        assert_ne!(old, new);
        for path in ["/sessions/s1", "/sessions/batch?ids=s1"] {
            // It has not heard of the second start yet.
            let second = World::beside(&first.api, config());
            second.index.apply(&known);
            let (code, answer) = second.get(path).await;
            assert_eq!(code, 200, "{path}");
            assert!(answer.to_string().contains(&new), "{path}: {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn polls_of_what_is_over_cost_little_and_go_on_while_the_api_server_is_away() {
    let world = World::new();
    let id = started(&world, "s1").await;
    world.post("/stop", &json!({"runtime_id": id})).await;
    let calls = world.api.calls().len();
    for away in [false, true] {
        world.api.set_away(away);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        for _ in 0..100 {
            for path in ["/sessions/s1", "/sessions/batch?ids=s1"] {
                let (code, answer) = world.get(path).await;
                assert_eq!(code, 200, "{path}");
                assert!(answer.to_string().contains(&id), "{path}: {answer}");
            }
        }
    }
    assert_eq!(world.api.calls().len() - calls, 2);
}
