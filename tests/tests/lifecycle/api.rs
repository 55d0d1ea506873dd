//! The runtime API over the same installation.

use std::collections::HashSet;

use crds::Sandbox;
use crds::sandbox::Phase;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tests::clients::text;
use tests::test_cluster::TestCluster;

fn body(session: &str) -> Value {
    json!({
        "session_id": session, "image": "debian:12", "environment": {"TOKEN": "hunter2"},
        "command": ["server", "--port", "60000"],
    })
}

#[tokio::test(start_paused = true)]
async fn concurrent_starts_on_two_gateways_make_one_runtime() {
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
        ids.insert(["runtime_id", "url", "session_api_key"].map(|f| text(&answer.body, f)));
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(cluster.names::<Sandbox>().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn secrets_are_in_no_object() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let info = gateway.post("/start", &body("s")).await.body;
    let name = info["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(name, Phase::Running).await;
    let key = info["session_api_key"].as_str().unwrap();

    let pod = cluster.api_of::<Pod>().get(name).await.unwrap();
    let pod = serde_json::to_string(&pod).unwrap();
    let sandbox = serde_json::to_string(&cluster.sandboxes().get(name).await.unwrap()).unwrap();
    for text in [&pod, &sandbox] {
        assert!(!text.contains("hunter2") && !text.contains(key), "{text}");
    }
    // They did reach the supervisor.
    assert_eq!(cluster.supervisors.tokens().len(), 1);
}
