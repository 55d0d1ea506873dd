//! Gateways without sockets, and all of them as the controller asks them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use operator::gateway::{Gateway, GatewayConfig};
use operator::index::Key;
use operator::traffic::{Gateways, GatewaysError, Traffic};
use parking_lot::Mutex;
use serde_json::Value;
use testing::EventReader;
use tokio_util::sync::DropGuard;

use super::{API_KEY, NAMESPACE, urls};
use crate::clients::JsonReply;

#[derive(Debug, Default)]
pub(super) struct TestGateways(pub(super) Mutex<Vec<Gateway>>);

impl Gateways for TestGateways {
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        let gateways = self.0.lock().clone();
        Box::pin(async move {
            let mut all: Option<Traffic> = None;
            for gateway in gateways {
                let one = gateway.traffic(sandbox).await?;
                all = all.zip(one).map(|(a, b)| a.merge(b)).or(all).or(one);
            }
            Ok(all)
        })
    }
}

/// A gateway without a socket.
#[derive(Debug, Clone)]
pub struct TestGateway {
    pub(super) gateway: Gateway,
    pub(super) _shutdown: Arc<DropGuard>,
}

impl TestGateway {
    /// `/start` with the key of the tenant `default`, which must be accepted.
    pub async fn start(&self, body: &Value) -> Value {
        let answer = self.post("/start", body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body
    }

    /// `POST` with the key of the tenant `default`.
    pub async fn post(&self, path: &str, body: &Value) -> JsonReply {
        self.send(API_KEY, Method::POST, path, body.to_string())
            .await
    }

    /// `GET` with the key of the tenant `default`.
    pub async fn get(&self, path: &str) -> JsonReply {
        self.send(API_KEY, Method::GET, path, String::new()).await
    }

    /// Opens the event stream of a key, perhaps after a cursor.
    pub async fn events(&self, key: &str, after: Option<&str>) -> EventReader<Body> {
        let query = after.map(|cursor| format!("?after={cursor}"));
        let request = Request::get(format!("/events{}", query.unwrap_or_default()))
            .header("Host", "localhost:5000")
            .header("X-API-Key", key)
            .body(Body::empty())
            .expect("a request");
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        EventReader::new(self.gateway.respond(request, peer).await)
    }

    pub async fn send(&self, key: &str, method: Method, path: &str, body: String) -> JsonReply {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", "localhost:5000")
            .header("X-API-Key", key)
            .body(Body::from(body))
            .expect("a request");
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let response = self.gateway.respond(request, peer).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body");
        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
        JsonReply { status, body }
    }
}

pub(super) fn gateway_config() -> GatewayConfig {
    GatewayConfig {
        namespace: NAMESPACE.into(),
        urls: urls(),
        workspace_size: "1Gi".into(),
        drain_delay: Duration::ZERO,
        drain_limit: Duration::from_secs(1),
        max_connections: 64,
        max_connections_per_address: 0,
        loopback_pods: true,
        ..GatewayConfig::default()
    }
}
