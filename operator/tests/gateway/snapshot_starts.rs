//! Starts from a snapshot: the Sandboxes that they make, sessions, and what cannot start.

use std::collections::HashSet;

use futures::future::join_all;
use serde_json::{Value, json};
use testing::{CapturedLog, FakeApi};

use crate::support::gateway_fixture::{GatewayFixture, OTHER_KEY, config, limited, ready};
use crate::support::snapshot_client::running;

/// Spec of a sandbox as the controller keeps it, with every field that a start takes over.
fn template() -> Value {
    json!({
        "image": "ghcr.io/openhands/agent-server:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["server", "--port", "60000"],
        "workingDir": "/workspace/project",
        "env": [{"name": "A", "value": "1"}],
        "executor": "Native",
        "plugins": ["jupyter"],
        "resources": {"limits": {"cpu": "1"}},
        "resourceFactor": 2.0,
        "runtimeClassName": "runsc",
        "securityContext": {"runAsUser": 1000},
        "ports": [{"name": "runtime", "port": 8000}],
        "workspace": {"size": "20Gi", "mountPath": "/data"},
        "lifecycle": {"idleTimeout": "30m"},
        "podTemplate": {"spec": {"priorityClassName": "low"}},
    })
}

fn status(level: &str, template: &Value) -> Value {
    json!({"phase": "Ready", "level": level, "tenant": "default", "template": template})
}

/// A gateway with a snapshot that is ready, and its id.
async fn saved(level: &str, template: &Value) -> (GatewayFixture, String) {
    let (fixture, runtime) = running();
    let id = fixture.snapshot(&runtime).await;
    fixture.set_snapshot_status(&id, &status(level, template));
    (fixture, id)
}

impl GatewayFixture {
    async fn start_from(&self, snapshot: &str, body: &Value) -> (u16, Value) {
        self.post(&format!("/snapshots/{snapshot}/start"), body)
            .await
    }

    async fn started_from(&self, snapshot: &str, body: &Value) -> Vec<Value> {
        let (code, answer) = self.start_from(snapshot, body).await;
        assert_eq!(code, 201, "{answer}");
        answer["runtimes"].as_array().unwrap().clone()
    }
}

fn ids(runtimes: &[Value]) -> Vec<String> {
    let ids = runtimes.iter().map(|info| info["runtime_id"].as_str());
    ids.map(|id| id.unwrap().to_owned()).collect()
}

/// Names of the stored Sandboxes.
fn sandboxes(api: &FakeApi) -> HashSet<String> {
    let mut objects = api.objects();
    objects.retain(|object| object["kind"] == "Sandbox");
    let names = objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str());
    names.map(|name| name.unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn sandbox_has_template_and_state_of_the_snapshot_and_its_own_environment() {
    // None of these is of the new sandbox.
    let mut full = template();
    for (field, value) in [
        ("sealedEnv", json!("parent")),
        ("pool", json!("warm")),
        ("state", json!("Paused")),
        ("keyRotation", json!(3)),
        ("persistence", json!("Workspace")),
        ("source", json!({"snapshot": "older"})),
        ("session", json!({"tenant": "other", "id": "s1"})),
    ] {
        full[field] = value;
    }
    let (fixture, id) = saved("Memory", &full).await;
    let body = json!({
        "session_id": "copy",
        "environment": {"TOKEN": "hunter2", "N": 1, "GONE": null, "SESSION_API_KEY": "mine"},
        "image": "ignored",
    });
    let [mut info] = <[Value; 1]>::try_from(fixture.started_from(&id, &body).await).unwrap();
    let mut made = fixture.stored(info["runtime_id"].as_str().unwrap());
    let sealed = made.spec.sealed_env.replace("[sealed]".into()).unwrap();
    let name = made.metadata.name.as_ref().unwrap();
    let environment = fixture.keys.open("sandboxes", name, &sealed).unwrap();
    assert_eq!(json!(environment), json!({"N": "1", "TOKEN": "hunter2"}));
    let source = made.spec.source.as_mut().unwrap();
    assert_eq!(source.snapshot, id);
    source.snapshot = "[snapshot]".into();
    // The key and the URLs derive from ids that depend on nothing random.
    insta::assert_json_snapshot!("sandbox_of_start_from_snapshot", made);
    assert_eq!(info["status_detail"], "unknown fields are ignored: image");
    info["status_detail"] = Value::Null;
    let polled = fixture.found("/sessions/copy").await;
    assert_eq!(info, polled);
    insta::assert_json_snapshot!("runtime_info_of_start_from_snapshot", info);
}

#[tokio::test(start_paused = true)]
async fn sandbox_keeps_at_least_its_root() {
    for (level, expected) in [
        ("Workspace", "Root"),
        ("Root", "Root"),
        ("Memory", "Memory"),
    ] {
        let (fixture, id) = saved(level, &json!({"image": "debian:12"})).await;
        let runtimes = fixture.started_from(&id, &json!({})).await;
        let made = fixture.stored(&ids(&runtimes)[0]);
        assert_eq!(json!(made.spec.persistence), expected, "{level}");
        // The state needs a volume.
        assert!(made.spec.workspace.is_some());
        assert_eq!(made.spec.sealed_env, None);
    }
}

#[tokio::test(start_paused = true)]
async fn start_of_a_session_from_a_snapshot_is_idempotent() {
    let (fixture, id) = saved("Root", &template()).await;
    let body = json!({"session_ids": ["a", "b"]});
    let first = fixture.started_from(&id, &body).await;
    let sessions: Vec<_> = first.iter().map(|info| &info["session_id"]).collect();
    assert_eq!(sessions, ["a", "b"]);
    // By another replica as well, and at the same moment.
    let replica = GatewayFixture::beside(&fixture.api, config());
    let again = (0..10).map(|n| if n % 2 == 0 { &fixture } else { &replica });
    let again = again.map(|fixture| fixture.started_from(&id, &body));
    for runtimes in join_all(again).await {
        assert_eq!(ids(&runtimes), ids(&first));
    }
    assert_eq!(sandboxes(&fixture.api).len(), 3);
    // A paused one goes on; its state is its own.
    let name = &ids(&first)[0];
    fixture.report(name, &ready("10.0.0.7"));
    fixture.change("/pause", name).await;
    fixture.started_from(&id, &json!({"session_id": "a"})).await;
    assert_eq!(json!(fixture.stored(name).spec.state), "Running");
    // A stopped one begins anew with the snapshot.
    fixture.change("/stop", name).await;
    let next = fixture.started_from(&id, &json!({"session_id": "a"})).await;
    let made = fixture.stored(&ids(&next)[0]);
    assert_eq!(
        (
            made.spec.session.unwrap().epoch,
            made.spec.source.unwrap().snapshot
        ),
        (1, id)
    );
}

#[tokio::test(start_paused = true)]
async fn session_with_another_state_keeps_it_and_says_so() {
    let (fixture, id) = saved("Root", &json!({"image": "image"})).await;
    let runtimes = fixture
        .started_from(&id, &json!({"session_id": "s1"}))
        .await;
    let detail = runtimes[0]["status_detail"].as_str().unwrap();
    assert!(
        detail.ends_with("which keeps its persistence, state"),
        "{detail}"
    );
    // A plain start finds the sandbox of the snapshot.
    let from_snapshot = fixture
        .started_from(&id, &json!({"session_id": "copy"}))
        .await;
    let body = json!({"image": "image", "session_id": "copy"});
    let (code, info) = fixture.post("/start", &body).await;
    assert_eq!(
        (code, &info["runtime_id"]),
        (201, &from_snapshot[0]["runtime_id"])
    );
    assert_eq!(info["status_detail"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn count_starts_as_many_new_sessions() {
    let (fixture, id) = saved("Root", &template()).await;
    let runtimes = fixture.started_from(&id, &json!({"count": 32})).await;
    let distinct: HashSet<_> = ids(&runtimes).into_iter().collect();
    assert_eq!(distinct.len(), 32);
    for info in &runtimes {
        let session = info["session_id"].as_str().unwrap();
        assert!(session.starts_with(&format!("{id}-")), "{session}");
    }
    let more = fixture.started_from(&id, &json!({})).await;
    assert_eq!(more.len(), 1);
    assert!(!distinct.contains(&ids(&more)[0]));
}

#[tokio::test(start_paused = true)]
async fn malformed_start_from_a_snapshot_is_400() {
    let (fixture, id) = saved("Root", &template()).await;
    let many: Vec<_> = (0..33).map(|n| n.to_string()).collect();
    for (body, said) in [
        (json!({"session_id": 7}), "session_id must be text"),
        (json!({"session_id": ""}), "session_id may not be empty"),
        (
            json!({"session_id": "s".repeat(257)}),
            "session_id may have at most 256",
        ),
        (
            json!({"session_ids": []}),
            "session_ids must have 1 to 32 entries",
        ),
        (
            json!({"session_ids": many}),
            "session_ids must have 1 to 32 entries",
        ),
        (
            json!({"session_ids": ["a", 7]}),
            "session_ids[1] must be text",
        ),
        (
            json!({"session_ids": ["a", "batch"]}),
            "session_id may not be \"batch\"",
        ),
        (
            json!({"session_ids": ["a", "a"]}),
            "session_ids must be distinct",
        ),
        (json!({"count": 0}), "count must be 1 to 32"),
        (json!({"count": 33}), "count must be 1 to 32"),
        (json!({"count": -1}), "count must be a whole number"),
        (json!({"count": "2"}), "count must be a whole number"),
        (
            json!({"count": 1, "session_id": "a"}),
            "session_id, session_ids and count exclude",
        ),
        (json!({"environment": []}), "environment must be an object"),
        (json!({"environment": {"A": "a\0b"}}), "environment"),
        (json!([]), "the body is not a JSON object"),
    ] {
        let (code, answer) = fixture.start_from(&id, &body).await;
        let detail = answer["detail"].as_str().unwrap();
        assert!(code == 400 && detail.starts_with(said), "{body}: {answer}");
    }
    assert_eq!(sandboxes(&fixture.api).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn snapshot_that_is_not_ready_is_409() {
    let (fixture, runtime) = running();
    let id = fixture.snapshot(&runtime).await;
    let broken = json!({"image": 7});
    for (status, said) in [
        (Value::Null, "the snapshot is not ready: it is pending"),
        (
            json!({"phase": "Saving"}),
            "the snapshot is not ready: it is saving",
        ),
        (
            json!({"phase": "Failed", "message": "the volume is full"}),
            "the snapshot has failed: the volume is full",
        ),
        (
            json!({"phase": "Failed"}),
            "the snapshot has failed: its controller gave no reason",
        ),
        (
            json!({"phase": "Ready"}),
            "the snapshot does not say what its sandbox ran",
        ),
        (
            status("Root", &json!({"pool": "p"})),
            "the snapshot does not say what its sandbox ran",
        ),
        (
            status("Root", &broken),
            "the snapshot does not say what its sandbox ran",
        ),
    ] {
        fixture.set_snapshot_status(&id, &status);
        let (code, answer) = fixture.start_from(&id, &json!({"session_id": "a"})).await;
        let detail = answer["detail"].as_str().unwrap();
        assert!(code == 409 && detail.starts_with(said), "{answer}");
    }
    assert_eq!(fixture.start_from("none", &json!({})).await.0, 404);
    assert_eq!(sandboxes(&fixture.api).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tenant_starts_only_from_its_own_snapshots() {
    let (fixture, id) = saved("Root", &template()).await;
    let path = format!("/snapshots/{id}/start");
    let foreign = fixture.call_as(OTHER_KEY, "POST", &path, "{}").await;
    assert_eq!(foreign, (404, json!({"detail": "no such snapshot"})));
    fixture.put_snapshot(
        "mine",
        &json!({"sandbox": "x"}),
        &status("Root", &template()),
    );
    let runtimes = fixture.started_from("mine", &json!({})).await;
    let made = fixture.stored(&ids(&runtimes)[0]);
    assert_eq!(made.spec.session.unwrap().tenant, "default");
}

#[tokio::test(start_paused = true)]
async fn start_beyond_the_limits_of_the_tenant_leaves_no_sandbox_of_a_generated_session() {
    let fixture = limited(&json!({"maxSandboxes": 1, "maxWaiting": 2}));
    fixture.put_snapshot(
        "mine",
        &json!({"sandbox": "x"}),
        &status("Root", &template()),
    );
    let full = async |body: Value| {
        let (code, answer) = fixture.start_from("mine", &body).await;
        assert_eq!(code, 503, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains("queued"));
        let made = sandboxes(&fixture.api).into_iter();
        let states = made.map(|name| json!(fixture.stored(&name).spec.state));
        states.collect::<Vec<_>>()
    };
    let states = full(json!({"count": 32})).await;
    // No more than are created at once exceed the limit.
    assert!((3..=6).contains(&states.len()), "{states:?}");
    assert!(states.iter().all(|state| state == "Stopped"), "{states:?}");
    // The client knows these sessions: a second call finds them.
    let many: Vec<_> = (0..32).map(|n| n.to_string()).collect();
    let mut states = full(json!({"session_ids": many})).await;
    states.retain(|state| state == "Running");
    assert!((3..=6).contains(&states.len()), "{states:?}");
    fixture
        .started_from("mine", &json!({"session_id": "0"}))
        .await;
}

#[tokio::test(start_paused = true)]
async fn starts_count_in_all_sandboxes_of_the_tenant() {
    let fixture = limited(&json!({"maxTotalSandboxes": 2}));
    fixture.put_snapshot(
        "mine",
        &json!({"sandbox": "x"}),
        &status("Root", &template()),
    );
    for session in ["0", "1"] {
        let body = json!({"session_id": session});
        fixture.started_from("mine", &body).await;
    }
    let (code, answer) = fixture
        .start_from("mine", &json!({"session_id": "2"}))
        .await;
    assert_eq!(code, 503, "{answer}");
    assert_eq!(sandboxes(&fixture.api).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_started_sandbox_is_audited() {
    let (fixture, id) = saved("Root", &template()).await;
    let log = CapturedLog::start();
    let runtimes = fixture
        .started_from(&id, &json!({"session_ids": ["a", "b"]}))
        .await;
    let ids = ids(&runtimes);
    let fields = &["action", "runtime", "snapshot", "outcome"];
    assert_eq!(
        log.of("audit", fields),
        [
            json!(["start", ids[0], null, "done"]),
            json!(["start", ids[1], null, "done"]),
            json!(["start-snapshot", "", id, "done"]),
        ]
    );
}
