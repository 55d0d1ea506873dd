//! Minimal client of the runtime API.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest answer in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

pub(super) struct GatewayClient {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    key: Option<String>,
}

/// Response. A body that is not JSON becomes null.
#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) path: String,
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl GatewayClient {
    pub(super) fn new(url: &str, key: Option<String>) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            url: url.trim_end_matches('/').to_owned(),
            key,
        }
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<ApiResponse> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<ApiResponse> {
        self.send(Method::POST, path, Bytes::from(body.to_string()))
            .await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<ApiResponse> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("Content-Type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("X-API-Key", key);
        }
        let response = self.client.request(request.body(Full::new(body))?);
        let response = timeout(REQUEST_TIMEOUT, response)
            .await
            .context(self.url.clone())??;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
        let body = timeout(REQUEST_TIMEOUT, body).await?;
        let body = body.map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
        Ok(ApiResponse {
            path: path.to_owned(),
            status,
            body: serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
        })
    }
}
