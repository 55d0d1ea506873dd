//! Environment Secret of sandboxes that run their image's own entrypoint, its keys, and its deletion.

use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use operator::index::Entry;
use serde_json::{Value, json};
use tests::test_cluster::{NAMESPACE, TestCluster, TestGateway};

async fn start(gateway: &TestGateway) -> Value {
    let body = json!({
        "session_id": "s", "image": "agent-server:1", "command": null,
        "environment": {"TOKEN": "hunter2"}, "working_dir": "/workspace/project",
        "run_as_user": 10001,
    });
    gateway.start(&body).await
}

/// The variables in the only Secret; `None` if there is none.
async fn variables(cluster: &TestCluster) -> Option<Value> {
    let secrets: Api<Secret> = cluster.api_of();
    let mut secrets = secrets.list(&ListParams::default()).await.unwrap().items;
    assert!(secrets.len() < 2, "{secrets:?}");
    let secret = secrets.pop()?;
    assert_eq!(secret.immutable, Some(true));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let data = secret.data.unwrap().into_iter();
    Some(
        data.map(|(name, value)| (name, Value::from(text(value.0))))
            .collect(),
    )
}

async fn rotate(cluster: &TestCluster, name: &str, number: u32) {
    let patch = json!({"spec": {"keyRotation": number}});
    cluster.patch(name, patch).await;
}

#[tokio::test(start_paused = true)]
async fn session_without_command_gets_its_environment_from_a_secret() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let info = start(&gateway).await;
    let name = info["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(name, Phase::Running).await;

    let given = variables(&cluster).await.unwrap();
    assert_eq!(given["TOKEN"], "hunter2");
    assert_eq!(given["SESSION_API_KEY"], info["session_api_key"]);
    assert_eq!(given["OH_SESSION_API_KEYS_0"], info["session_api_key"]);
    assert_eq!(given["RUNTIME_URL"], info["url"]);
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let pod = serde_json::to_string(&pods.get(name).await.unwrap()).unwrap();
    assert!(pod.contains("-sbx-env"), "{pod}");
    let sandbox = serde_json::to_string(&cluster.sandboxes().get(name).await.unwrap()).unwrap();
    let key = info["session_api_key"].as_str().unwrap();
    for text in [&pod, &sandbox] {
        assert!(!text.contains("hunter2") && !text.contains(key), "{text}");
    }

    cluster.bring(name, DesiredState::Paused).await;
    assert_eq!(variables(&cluster).await, None);
    cluster.bring(name, DesiredState::Running).await;
    assert_eq!(variables(&cluster).await.unwrap(), given);
    cluster.bring(name, DesiredState::Stopped).await;
    assert!(cluster.names::<Secret>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rotated_key_is_reported_after_the_sandbox_restarted() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let first = start(&gateway).await["session_api_key"].clone();
    let runtimes = cluster.names::<Sandbox>().await;
    let name = runtimes[0].as_str();
    cluster.wait_for_phase(name, Phase::Running).await;

    rotate(&cluster, name, 1).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let told = async || gateway.get("/sessions/s").await.body["session_api_key"].clone();
    assert_eq!(told().await, first);

    cluster.bring(name, DesiredState::Paused).await;
    assert_eq!(told().await, first);
    let entry = cluster.bring(name, DesiredState::Running).await;
    assert_eq!(entry.status.key_rotation, Some(1));
    // The gateway's own index may be a moment behind.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = told().await;
    let given = variables(&cluster).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(given["OH_SESSION_API_KEYS_0"], second);
    assert_eq!(given["OH_SESSION_API_KEYS_1"], first);
}

#[tokio::test(start_paused = true)]
async fn replacement_of_lost_pod_applies_rotated_key() {
    let cluster = TestCluster::new();
    cluster.running("a").await;
    rotate(&cluster, "a", 1).await;
    cluster.delete_pod_now("a").await;
    let rotated = |e: &Entry| e.status.key_rotation == Some(1);
    assert!(rotated(&cluster.wait("a", rotated).await.unwrap()));
    cluster.wait_for_phase("a", Phase::Running).await;
}
