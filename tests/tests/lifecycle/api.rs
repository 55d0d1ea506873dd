//! The runtime API over the same installation.

use std::collections::HashSet;

use crds::Sandbox;
use crds::sandbox::Phase;
use http::Method;
use serde_json::{Value, json};
use tests::test_cluster::{OTHER_KEY, TestCluster, TestGateway};

fn body(session: &str) -> Value {
    json!({
        "session_id": session, "image": "debian:12", "environment": {"TOKEN": "hunter2"},
        "command": ["server", "--port", "60000"],
    })
}

async fn status(gateway: &TestGateway, session: &str) -> Value {
    gateway.get(&format!("/sessions/{session}")).await.body["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn ten_concurrent_starts_over_two_gateways_make_one_runtime() {
    let cluster = TestCluster::new();
    let gateways = [cluster.gateway().await, cluster.gateway().await];
    let starts = (0..10).map(|n| {
        let gateway = gateways[n % 2].clone();
        tokio::spawn(async move { gateway.post("/start", &body("s")).await })
    });
    let starts: Vec<_> = starts.collect();
    let mut ids = HashSet::new();
    for start in starts {
        let answer = start.await.unwrap();
        assert_eq!(answer.status, 201, "{}", answer.body);
        let text = |field: &str| answer.body[field].as_str().unwrap().to_owned();
        ids.insert((text("runtime_id"), text("url"), text("session_api_key")));
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(cluster.names::<Sandbox>().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_pauses_resumes_stops_and_starts_anew() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let first = gateway.post("/start", &body("s")).await.body;
    let id = json!({"runtime_id": first["runtime_id"]});
    let name = first["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(name, Phase::Running).await;

    assert_eq!(gateway.post("/pause", &id).await.status, 200);
    assert_eq!(status(&gateway, "s").await, "paused");
    assert_eq!(gateway.get("/list").await.body["total"], 0);
    cluster.wait_for_phase(name, Phase::Paused).await;

    let resumed = gateway.post("/resume", &id).await.body;
    for field in ["runtime_id", "url", "session_api_key", "session_id"] {
        assert_eq!(resumed[field], first[field]);
    }
    assert_ne!(status(&gateway, "s").await, "paused");
    cluster.wait_for_phase(name, Phase::Running).await;

    assert_eq!(gateway.post("/stop", &id).await.status, 200);
    assert_eq!(status(&gateway, "s").await, "stopped");
    let second = gateway.post("/start", &body("s")).await.body;
    assert_ne!(second["runtime_id"], first["runtime_id"]);
    assert_ne!(second["session_api_key"], first["session_api_key"]);
    assert_ne!(status(&gateway, "s").await, "stopped");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_of_another_key_is_unknown() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let mine = gateway.post("/start", &body("s")).await.body;
    let id = mine["runtime_id"].as_str().unwrap();
    let stranger = |method, path: String, body: String| {
        let gateway = gateway.clone();
        async move { gateway.send(OTHER_KEY, method, &path, body).await }
    };
    let stop = json!({"runtime_id": id}).to_string();
    for (method, path, body) in [
        (Method::GET, format!("/runtime/{id}"), String::new()),
        (Method::GET, "/sessions/s".into(), String::new()),
        (Method::POST, "/stop".into(), stop.clone()),
        (Method::POST, "/pause".into(), stop.clone()),
        (Method::POST, "/resume".into(), stop),
    ] {
        let answer = stranger(method, path.clone(), body).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
        assert!(answer.body["detail"].is_string());
    }
    let listed = stranger(Method::GET, "/list".into(), String::new()).await;
    assert_eq!(listed.body["total"], 0);
    // The same session id of another key is another session.
    let theirs = stranger(Method::POST, "/start".into(), body("s").to_string()).await;
    assert_ne!(theirs.body["runtime_id"], mine["runtime_id"]);
}

#[tokio::test(start_paused = true)]
async fn secrets_stand_in_no_object() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let info = gateway.post("/start", &body("s")).await.body;
    let name = info["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(name, Phase::Running).await;
    let key = info["session_api_key"].as_str().unwrap();

    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::default_namespaced(cluster.client.clone());
    let pod = serde_json::to_string(&pods.get(name).await.unwrap()).unwrap();
    let sandbox = serde_json::to_string(&cluster.sandboxes().get(name).await.unwrap()).unwrap();
    for text in [&pod, &sandbox] {
        assert!(!text.contains("hunter2") && !text.contains(key), "{text}");
    }
    // They did reach the supervisor.
    assert_eq!(cluster.supervisors.tokens().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reads_are_answered_while_the_api_server_is_away() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let info = gateway.post("/start", &body("s")).await.body;
    let name = info["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(name, Phase::Running).await;
    // The gateway's own index is at least as far after its own answer says so.
    while gateway.get("/sessions/s").await.body["pod_status"] != "Ready" {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    cluster
        .api
        .faults()
        .set_outage(standalone::api::Outage::Refuse);
    for path in [
        format!("/runtime/{name}"),
        "/sessions/s".into(),
        "/list".into(),
        "/sessions/batch?ids=s".into(),
    ] {
        let answer = gateway.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
}
