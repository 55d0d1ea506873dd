//! The runtime API over the same installation.

use crds::sandbox::Phase;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tests::test_cluster::{TestCluster, start_body};

#[tokio::test(start_paused = true)]
async fn secrets_are_in_no_object() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let mut body = start_body("s");
    body["environment"] = json!({"TOKEN": "hunter2"});
    let info = gateway.start(&body).await;
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
