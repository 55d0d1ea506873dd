//! An image's own entrypoint on a real cluster: its environment comes through a Secret, its directory
//! is its user's, a runtime class that is not there does not stop it, and a rotated key is the one
//! that is told.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, LogParams};
use serde_json::{Value, json};

use crate::test_namespace::TestNamespace;

const NAME: &str = "entrypoint";

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn entrypoint_gets_its_environment_from_a_secret() {
    let ns = TestNamespace::new("entrypoint").await;
    let script = "touch here && owner=$(stat -c %u here) && export owner && env && \
                  echo written && exec sleep infinity";
    ns.apply(
        NAME,
        &json!({
            "imagePullPolicy": "Never",
            "workingDir": "/workspace/project",
            "runtimeClassName": "kata",
            "securityContext": {"runAsUser": 10001},
            "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "sandbox", "args": ["-c", script]}]}},
        }),
    );
    let status = ns.ready(NAME).await;
    let first = environment(&ns).await;
    assert_eq!(first["SESSION_API_KEY"], ns.token(NAME).trim());
    assert_eq!(first["owner"], "10001");
    assert_eq!(first["RUNTIME_ID"], status.runtime_id.unwrap());
    let note = status.message.unwrap();
    let missing = "runtime class kata is not installed";
    assert!(note.contains(missing), "{note}");
    assert_eq!(secrets(&ns).await, 1);

    let change = json!({"state": "Paused", "keyRotation": 1});
    ns.patch(NAME, change).await;
    ns.paused(NAME).await;
    while secrets(&ns).await > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(first["SESSION_API_KEY"], ns.token(NAME).trim());

    ns.patch(NAME, json!({"state": "Running"})).await;
    ns.ready(NAME).await;
    let second = environment(&ns).await;
    assert_ne!(second["SESSION_API_KEY"], first["SESSION_API_KEY"]);
    assert_eq!(second["SESSION_API_KEY"], ns.token(NAME).trim());
    assert_eq!(second["OH_SESSION_API_KEYS_1"], first["SESSION_API_KEY"]);
    assert_eq!(second["OH_SECRET_KEY"], first["OH_SECRET_KEY"]);
}

/// Returns the environment of the sandbox.
async fn environment(ns: &TestNamespace) -> Value {
    let params = LogParams {
        container: Some("sandbox".into()),
        ..LogParams::default()
    };
    for _ in 0..600 {
        let log = ns.pods().logs(NAME, &params).await.unwrap_or_default();
        if log.contains("written") {
            let pairs = log.lines().filter_map(|line| line.split_once('='));
            return pairs.collect();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the sandbox does not say what it has");
}

/// Returns the number of Secrets of the sandbox.
async fn secrets(ns: &TestNamespace) -> usize {
    let params = ListParams::default().labels(&format!("openhands.dev/sandbox={NAME}"));
    let secrets = ns.api::<Secret>().list(&params).await.unwrap();
    secrets.items.len()
}
