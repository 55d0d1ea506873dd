//! A client of snapshots, and the writes of the controller that it sees.

use crds::SandboxSnapshot;
use serde_json::{Value, json};

use super::gateway_fixture::{GatewayFixture, ready};

pub(crate) const COLLECTION: &str =
    "/apis/openhands.dev/v1alpha1/namespaces/sandboxes/sandboxsnapshots";

/// A gateway with the running sandbox of the session `s1`, and its id.
pub(crate) fn running() -> (GatewayFixture, String) {
    let fixture = GatewayFixture::new();
    let id = fixture.add(60000, &ready("10.0.0.9"));
    (fixture, id)
}

impl GatewayFixture {
    /// Makes a snapshot of a sandbox and returns its id.
    pub(crate) async fn snapshot(&self, runtime: &str) -> String {
        let body = json!({"runtime_id": runtime});
        let (code, info) = self.post("/snapshots", &body).await;
        assert_eq!(code, 201, "{info}");
        info["snapshot_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn stored_snapshot(&self, name: &str) -> SandboxSnapshot {
        let object = self.api.object(&format!("{COLLECTION}/{name}"));
        serde_json::from_value(object).unwrap()
    }

    /// Writes a status, as the controller would.
    pub(crate) fn set_snapshot_status(&self, name: &str, status: &Value) {
        let path = format!("{COLLECTION}/{name}");
        let mut object = self.api.object(&path);
        object["status"] = status.clone();
        self.api.put(&path, object);
    }

    /// Stores a snapshot of `s1`, as kubectl would.
    pub(crate) fn put_snapshot(&self, name: &str, spec: &Value, status: &Value) {
        let object = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxSnapshot",
            "metadata": {"name": name}, "spec": spec, "status": status,
        });
        self.api.put(&format!("{COLLECTION}/{name}"), object);
    }

    pub(crate) async fn delete_snapshot(&self, key: &str, id: &str) -> (u16, Value) {
        let path = format!("/snapshots/{id}");
        self.call_as(key, "DELETE", &path, "").await
    }

    /// Ids of the snapshots of a list.
    pub(crate) async fn listed(&self, query: &str) -> Vec<Value> {
        let list = self.found(&format!("/snapshots{query}")).await;
        let snapshots = list["snapshots"].as_array().unwrap().iter();
        snapshots.map(|info| info["snapshot_id"].clone()).collect()
    }
}
