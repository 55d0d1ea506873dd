//! Whole reconciles against a fake API server.

use std::time::Duration;

use crds::Sandbox;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use shared::clock::Clock;
use shared::kubernetes::leader::LeaseConfig;
use testing::FakeApi;

use super::*;
use crate::tests::{config, context, key};

struct ReconcileFixture {
    api: FakeApi,
    context: Arc<Context>,
    key: Key,
}

impl ReconcileFixture {
    /// A leader of the lease `system/lease`, and the Sandbox `ns/a`.
    fn new(spec: &Value, status: &Value) -> Self {
        let api = FakeApi::default();
        let mut config = config();
        config.leader = Some(LeaseConfig {
            namespace: "system".into(),
            name: "lease".into(),
            identity: "one".into(),
        });
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let fixture = Self {
            context: Arc::new(context(api.client(), config, clock)),
            api,
            key: key("a"),
        };
        let sandbox = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "spec": spec,
            "metadata": {"namespace": "ns", "name": "a", "uid": "new", "generation": 1},
            "status": status,
        });
        let path = "/apis/openhands.dev/v1alpha1/namespaces/ns/sandboxes/a";
        let stored = serde_json::from_value(fixture.api.put(path, sandbox)).unwrap();
        fixture.context.index.apply(&stored);
        fixture
    }

    /// A terminating Pod of the sandbox with this uid, whose node is dead.
    fn add_terminating_pod(&self, owner: &str) {
        let owner = json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "name": "a", "uid": owner, "controller": true});
        let metadata = json!({"namespace": "ns", "name": crds::names::pod("a"), "uid": "pod",
            "deletionTimestamp": "1970-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30,
            "ownerReferences": [owner]});
        let path = format!("/api/v1/namespaces/ns/pods/{}", crds::names::pod("a"));
        let stored = self.api.put(&path, json!({ "metadata": metadata }));
        self.context
            .pods
            .apply(&serde_json::from_value(stored).unwrap());
    }

    async fn has_pod(&self) -> bool {
        let pods = self.context.api::<Pod>(&self.key);
        let found = pods.get_opt(&crds::names::pod("a")).await;
        found.unwrap().is_some()
    }

    async fn reconcile(&self) -> Result<Option<Timestamp>, ReconcileError> {
        reconcile(&self.context, &self.key).await
    }
}

#[tokio::test(start_paused = true)]
async fn pod_of_deleted_sandbox_on_dead_node_is_force_deleted() {
    let fixture = ReconcileFixture::new(&json!({"image": "i"}), &json!({}));
    fixture.add_terminating_pod("new");
    fixture.context.index.remove(&fixture.key, "new");
    let until = fixture.reconcile().await.unwrap().unwrap();
    assert_eq!(until.as_second(), 60, "30 s of grace and 30 s for the node");
    assert!(fixture.has_pod().await);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(fixture.reconcile().await.unwrap(), None);
    assert!(!fixture.has_pod().await);
    assert_eq!(fixture.reconcile().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn pod_of_earlier_sandbox_on_dead_node_makes_room_for_the_next_one() {
    let spec = json!({"image": "i", "command": ["c"], "state": "Stopped"});
    let fixture = ReconcileFixture::new(&spec, &json!({}));
    fixture.add_terminating_pod("old");
    tokio::time::advance(Duration::from_mins(1)).await;
    fixture.reconcile().await.unwrap();
    assert!(!fixture.has_pod().await);
}

#[tokio::test(start_paused = true)]
async fn sandbox_of_other_installation_is_left_alone() {
    let status = json!({"phase": "Pending", "installation": "other/lease"});
    let fixture = ReconcileFixture::new(&json!({"image": "i"}), &status);
    let error = fixture.reconcile().await.unwrap_err();
    assert_eq!(error.category(), "other_installation");
    assert!(
        error.to_string().contains("installation other/lease"),
        "{error}"
    );
    assert_eq!(fixture.api.objects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stopped_sandbox_loses_its_sealed_environment() {
    let spec = json!({"image": "i", "command": ["c"], "state": "Stopped", "sealedEnv": "x"});
    let fixture = ReconcileFixture::new(&spec, &json!({"phase": "Running"}));
    fixture.reconcile().await.unwrap();
    let sandboxes = fixture.context.api::<Sandbox>(&fixture.key);
    let stopped = sandboxes.get("a").await.unwrap();
    assert_eq!(stopped.spec.sealed_env, None);
    assert_eq!(stopped.spec.command, Some(vec!["c".into()]));
}
