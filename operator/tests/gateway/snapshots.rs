//! Snapshots, call by call: what clients see, what is stored, and tenants.

use std::time::Duration;

use crds::sandbox::{DesiredState, PodStatus};
use http::Method;
use serde_json::{Value, json};
use testing::CapturedLog;

use crate::support::gateway_fixture::{
    GatewayFixture, KEY, OTHER_KEY, config, failed, ready, starting, tenants,
};
use crate::support::snapshot_client::{COLLECTION, running};

/// Replaces the random part of a name.
fn redacted(mut value: Value, id: &str) -> Value {
    let text = value.to_string().replace(id, "snap-[random]");
    value = serde_json::from_str(&text).unwrap();
    value
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_created_and_described_until_it_is_ready() {
    let (fixture, runtime) = running();
    let body = json!({"runtime_id": runtime, "level": "memory", "delete_after": "36h"});
    let (code, info) = fixture.post("/snapshots", &body).await;
    assert_eq!(code, 201, "{info}");
    let id = info["snapshot_id"].as_str().unwrap();
    let random = id.strip_prefix("snap-").unwrap();
    assert!(random.len() == 16 && random.bytes().all(|b| b.is_ascii_lowercase()));
    let stored = serde_json::to_value(fixture.stored_snapshot(id)).unwrap();
    let path = format!("/snapshots/{id}");
    assert_eq!(fixture.found(&path).await, info);
    fixture.set_snapshot_status(
        id,
        &json!({
            "phase": "Ready", "level": "Root", "size": 1234, "savedAt": "2026-01-02T03:05:06Z",
            "message": "processes: not possible here", "tenant": "default",
        }),
    );
    let complete = fixture.found(&path).await;
    assert_eq!(
        fixture.found("/snapshots").await,
        json!({"snapshots": [complete]})
    );
    let all = json!({"stored": stored, "new": info, "ready": complete});
    insta::assert_json_snapshot!("snapshot_from_creation_to_ready", redacted(all, id));
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_snapshot_are_optional() {
    let (fixture, runtime) = running();
    for extra in [
        json!({}),
        json!({"level": null, "delete_after": null}),
        json!({"level": "", "delete_after": ""}),
    ] {
        let mut body = json!({"runtime_id": runtime});
        let extra = extra.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(extra);
        let (code, info) = fixture.post("/snapshots", &body).await;
        assert_eq!(code, 201, "{info}");
        let spec = fixture
            .stored_snapshot(info["snapshot_id"].as_str().unwrap())
            .spec;
        assert_eq!((spec.level, spec.delete_after), (None, None));
        assert_eq!(info["expires_at"], Value::Null);
    }
    let body = json!({"runtime_id": runtime, "delete_after": "0s"});
    let (_, info) = fixture.post("/snapshots", &body).await;
    assert_eq!(info["expires_at"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn malformed_request_for_a_snapshot_is_400() {
    let (fixture, runtime) = running();
    for (field, value, said) in [
        ("runtime_id", json!(7), "runtime_id must be text"),
        ("runtime_id", Value::Null, "runtime_id must be text"),
        ("level", json!(1), "level must be text"),
        ("level", json!("Disk"), "level: \"Disk\" is not a level"),
        ("delete_after", json!(3600), "delete_after must be text"),
        (
            "delete_after",
            json!("1d"),
            "delete_after is not a duration",
        ),
        (
            "delete_after",
            json!("-1h"),
            "delete_after is not a duration",
        ),
    ] {
        let mut body = json!({"runtime_id": runtime});
        body[field] = value;
        let (code, answer) = fixture.post("/snapshots", &body).await;
        let detail = answer["detail"].as_str().unwrap();
        assert!(code == 400 && detail.starts_with(said), "{answer}");
    }
    let (code, answer) = fixture.post("/snapshots", &json!({})).await;
    assert_eq!(
        (code, answer),
        (400, json!({"detail": "runtime_id is required"}))
    );
    let calls = fixture.api.calls();
    assert!(calls.iter().all(|(method, _)| *method != Method::POST));
}

#[tokio::test(start_paused = true)]
async fn sandbox_that_does_not_run_is_409() {
    let (fixture, runtime) = running();
    let body = json!({"runtime_id": runtime});
    for (status, state, said) in [
        (starting(false), DesiredState::Running, "is starting"),
        (
            failed(PodStatus::Failed),
            DesiredState::Running,
            "has failed",
        ),
        (ready("10.0.0.9"), DesiredState::Paused, "is paused"),
        (ready("10.0.0.9"), DesiredState::Stopped, "was stopped"),
    ] {
        let mut sandbox = fixture.set_status(&runtime, &status);
        sandbox.spec.state = state;
        fixture.index.apply(&fixture.put(&sandbox)).unwrap();
        let (code, answer) = fixture.post("/snapshots", &body).await;
        let detail = format!("a snapshot needs a running sandbox, and this one {said}");
        assert_eq!((code, answer), (409, json!({"detail": detail})));
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_and_foreign_sandboxes_are_404() {
    let (fixture, runtime) = running();
    let body = json!({"runtime_id": runtime}).to_string();
    let (code, unknown) = fixture.call_as(OTHER_KEY, "POST", "/stop", &body).await;
    assert_eq!(code, 404);
    let foreign = fixture.call_as(OTHER_KEY, "POST", "/snapshots", &body);
    assert_eq!(foreign.await, (404, unknown.clone()));
    let body = json!({"runtime_id": "abcdefghijklmnop"});
    assert_eq!(fixture.post("/snapshots", &body).await, (404, unknown));
    for (method, path) in [("POST", "/snapshots"), ("GET", "/snapshots")] {
        let (code, _) = fixture.call_as("wrong", method, path, "{}").await;
        assert_eq!(code, 401);
    }
}

#[tokio::test(start_paused = true)]
async fn tenant_neither_sees_nor_changes_snapshots_of_another() {
    let (fixture, runtime) = running();
    let id = fixture.snapshot(&runtime).await;
    let unknown = (404, json!({"detail": "no such snapshot"}));
    let path = format!("/snapshots/{id}");
    let start = format!("{path}/start");
    let as_other = async |method, path| fixture.call_as(OTHER_KEY, method, path, "").await;
    assert_eq!(as_other("GET", &path).await, unknown);
    assert_eq!(as_other("DELETE", &path).await, unknown);
    assert_eq!(as_other("POST", &start).await, unknown);
    let none = (200, json!({"snapshots": []}));
    assert_eq!(as_other("GET", "/snapshots").await, none);
    assert_eq!(fixture.listed("").await, [&*id]);
    // The status counts before the spec: the controller knows the owner of the sandbox.
    let status = json!({"phase": "Ready", "tenant": "other"});
    fixture.set_snapshot_status(&id, &status);
    assert_eq!(fixture.get(&path).await, unknown);
    assert_eq!(as_other("GET", &path).await.0, 200);
    assert_eq!(as_other("DELETE", &path).await, (204, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn snapshots_of_kubectl_belong_to_the_tenant_of_their_status() {
    let (fixture, runtime) = running();
    let spec = json!({"sandbox": runtime});
    fixture.put_snapshot("theirs", &spec, &json!({"tenant": "other"}));
    fixture.put_snapshot("of-no-tenant", &spec, &Value::Null);
    fixture.put_snapshot("mine.1", &spec, &json!({"tenant": "default"}));
    assert_eq!(fixture.listed("").await, ["mine.1"]);
    let info = fixture.found("/snapshots/mine.1").await;
    assert_eq!(info["runtime_id"], *runtime);
    assert_eq!(info["session_id"], "s1");
    for name in ["theirs", "of-no-tenant"] {
        assert_eq!(fixture.get(&format!("/snapshots/{name}")).await.0, 404);
    }
    // A sandbox that has taken the name later is not the source.
    let status = json!({"tenant": "default", "sandboxUID": "earlier"});
    fixture.put_snapshot("mine.1", &spec, &status);
    let info = fixture.found("/snapshots/mine.1").await;
    assert_eq!(info["runtime_id"], Value::Null);
    assert_eq!(info["session_id"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn list_has_the_snapshots_of_one_sandbox_on_request() {
    let (fixture, runtime) = running();
    let other = fixture.add_session("s2", 60000, &ready("10.0.0.8"));
    let of_first = fixture.snapshot(&runtime).await;
    let of_other = fixture.snapshot(&other).await;
    assert_eq!(fixture.listed("").await.len(), 2);
    let query = format!("?runtime_id={runtime}");
    assert_eq!(fixture.listed(&query).await, [of_first]);
    assert!(fixture.listed("?runtime_id=none").await.is_empty());
    // The id is known for longer than the sandbox.
    fixture.forget(&other);
    let query = format!("?runtime_id={other}");
    assert_eq!(fixture.listed(&query).await, [&*of_other]);
    let info = fixture.found(&format!("/snapshots/{of_other}")).await;
    assert_eq!(info["session_id"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn deleted_snapshot_is_unknown() {
    let (fixture, runtime) = running();
    let (id, going) = (
        fixture.snapshot(&runtime).await,
        fixture.snapshot(&runtime).await,
    );
    assert_eq!(fixture.delete_snapshot(KEY, &id).await, (204, Value::Null));
    let unknown = (404, json!({"detail": "no such snapshot"}));
    assert_eq!(fixture.delete_snapshot(KEY, &id).await, unknown);
    assert_eq!(fixture.get(&format!("/snapshots/{id}")).await, unknown);
    // A finalizer holds it.
    let path = format!("{COLLECTION}/{going}");
    let mut object = fixture.api.object(&path);
    object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    fixture.api.put(&path, object);
    assert_eq!(fixture.delete_snapshot(KEY, &going).await, unknown);
    assert!(fixture.listed("").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ids_that_no_object_can_have_are_unknown_without_a_lookup() {
    let (fixture, _) = running();
    let calls = fixture.api.calls().len();
    for id in ["A", "a%2Fb", "..", "-a", "a%3Fb", &"a".repeat(53), "%C3%A4"] {
        let (code, _) = fixture.get(&format!("/snapshots/{id}")).await;
        assert_eq!(code, 404, "{id}");
    }
    assert_eq!(fixture.api.calls().len(), calls);
}

#[tokio::test(start_paused = true)]
async fn tenant_has_at_most_a_hundred_snapshots() {
    let (fixture, runtime) = running();
    let mut last = String::new();
    for _ in 0..100 {
        last = fixture.snapshot(&runtime).await;
    }
    let body = json!({"runtime_id": runtime});
    let (code, answer) = fixture.post("/snapshots", &body).await;
    let said = "this API key has 100 snapshots: delete one before the next";
    assert_eq!((code, answer), (429, json!({"detail": said})));
    fixture.delete_snapshot(KEY, &last).await;
    fixture.snapshot(&runtime).await;
}

#[tokio::test(start_paused = true)]
async fn outages_of_the_api_server_are_503_and_transient_failures_are_retried() {
    let (fixture, runtime) = running();
    let id = fixture.snapshot(&runtime).await;
    let path = format!("/snapshots/{id}");
    fixture.api.set_unavailable(true);
    for (method, path) in [
        ("POST", "/snapshots"),
        ("GET", "/snapshots"),
        ("GET", &path),
        ("DELETE", &path),
        ("POST", &format!("{path}/start")),
    ] {
        let body = json!({"runtime_id": runtime}).to_string();
        let (code, answer) = fixture.call_as(KEY, method, path, &body).await;
        assert_eq!(code, 503, "{method} {path}: {answer}");
        assert!(answer["detail"].is_string());
    }
    fixture.api.set_unavailable(false);
    fixture.api.set_silent(true);
    let began = tokio::time::Instant::now();
    assert_eq!(fixture.get("/snapshots").await.0, 503);
    assert_eq!(fixture.get(&path).await.0, 503);
    assert!(began.elapsed() < Duration::from_secs(8));
    fixture.api.set_silent(false);
    // The API server does not know the resource.
    fixture.api.fail_with(404, "NotFound");
    let (code, answer) = fixture.get("/snapshots").await;
    assert_eq!(code, 503);
    assert!(
        answer["detail"].as_str().unwrap().contains("lacks"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn incomplete_index_is_503() {
    let fixture = GatewayFixture::unsynced(&testing::FakeApi::default(), config(), tenants());
    assert_eq!(fixture.get("/snapshots").await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn changes_are_audited() {
    let log = CapturedLog::start();
    let (fixture, runtime) = running();
    let id = fixture.snapshot(&runtime).await;
    let unknown = json!({"runtime_id": "abcdefghijklmnop"});
    fixture.post("/snapshots", &unknown).await;
    fixture
        .post(&format!("/snapshots/{id}/start"), &json!({}))
        .await;
    fixture.delete_snapshot(KEY, &id).await;
    let fields = &["action", "runtime", "snapshot", "outcome"];
    assert_eq!(
        log.of("audit", fields),
        [
            json!(["create-snapshot", runtime, id, "done"]),
            json!(["create-snapshot", "abcdefghijklmnop", "", "unknown-runtime"]),
            json!(["start-snapshot", "", id, "snapshot-not-ready"]),
            json!(["delete-snapshot", "", id, "done"]),
        ]
    );
}
