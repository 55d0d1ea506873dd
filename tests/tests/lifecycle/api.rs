//! The runtime API over the same installation.

use std::collections::HashSet;

use crds::Sandbox;
use crds::sandbox::Phase;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tests::clients::text;
use tests::test_cluster::{TestCluster, start_body};

fn body(session: &str) -> Value {
    let mut body = start_body(session);
    body["environment"] = json!({"TOKEN": "hunter2"});
    body
}

#[tokio::test(start_paused = true)]
async fn concurrent_starts_on_two_gateways_make_one_runtime() {
    let cluster = TestCluster::new();
    let gateways = [cluster.gateway().await, cluster.gateway().await];
    let starts = (0..10).map(|n| {
        let gateway = gateways[n % 2].clone();
        async move {
            let info = gateway.start(&body("s")).await;
            ["runtime_id", "url", "session_api_key"].map(|field| text(&info, field))
        }
    });
    let ids: HashSet<_> = join_all(starts).await.into_iter().collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(cluster.names::<Sandbox>().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn secrets_are_in_no_object() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let info = gateway.start(&body("s")).await;
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
