//! Clients of event streams, and changes as the watch delivers them.

use axum::body::Body;
use crds::Sandbox;
use crds::sandbox::SandboxStatus;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::json;
use testing::{EventReader, ReceivedEvent};

use super::gateway_fixture::{GatewayFixture, KEY, key};

/// Ids of the sandboxes of these events, in order.
pub(crate) fn ids(events: &[ReceivedEvent]) -> Vec<&str> {
    let ids = events.iter().map(|event| &event.data["runtime_id"]);
    ids.filter_map(|id| id.as_str()).collect()
}

impl GatewayFixture {
    /// Opens a stream with a query, perhaps empty, and a header `Last-Event-ID`.
    pub(crate) async fn events_as(
        &self,
        api_key: &str,
        query: &str,
        last: Option<&str>,
    ) -> EventReader<Body> {
        let mut request = Request::get(format!("/events{query}"))
            .header("host", "api.example.com")
            .header("x-api-key", api_key);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = self.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()["cache-control"], "no-cache");
        EventReader::new(response)
    }

    pub(crate) async fn events(&self) -> EventReader<Body> {
        self.events_as(KEY, "", None).await
    }

    /// Continues after a cursor.
    pub(crate) async fn events_after(&self, cursor: &str) -> EventReader<Body> {
        self.events_as(KEY, "", Some(cursor)).await
    }

    /// Opens a stream and reads its list.
    pub(crate) async fn synced_events(&self) -> EventReader<Body> {
        let mut events = self.events().await;
        events.until("synced").await;
        events
    }

    /// Status code of a request for a stream that is rejected.
    pub(crate) async fn rejection_of_events(&self, query: &str) -> (u16, String) {
        let request = Request::get(format!("/events{query}"))
            .header("host", "api.example.com")
            .header("x-api-key", KEY);
        let response = self.send(request.body(Body::empty()).unwrap()).await;
        let code = response.status().as_u16();
        assert_ne!(code, 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (code, body["detail"].as_str().unwrap().to_owned())
    }

    /// Writes a status, and delivers it as the watch does.
    pub(crate) fn deliver(&self, name: &str, status: &SandboxStatus) -> Sandbox {
        let stored = self.set_status(name, status);
        self.index.deliver(&stored);
        stored
    }

    /// Deletes an object, and delivers that as the watch does.
    pub(crate) fn deliver_deletion(&self, name: &str) {
        let known = self.index.get(&key(name)).unwrap();
        self.delete(name);
        // A deletion has a version of its own.
        let other = self.api.put("/other/objects/x", json!({"metadata": {}}));
        let version = other["metadata"]["resourceVersion"].as_str().unwrap();
        let version = version.parse().ok();
        self.index.deliver_deletion(&key(name), &known.uid, version);
    }
}
