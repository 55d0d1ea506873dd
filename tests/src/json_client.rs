//! A small JSON client for tests: one request, one answer.

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Sends JSON and reads JSON, as clients of the runtime API do.
#[derive(Debug, Clone)]
pub struct JsonClient {
    client: Client<HttpConnector, Full<Bytes>>,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
}

/// Status and body; a body that is no JSON becomes a string.
#[derive(Debug, PartialEq)]
pub struct JsonResponse {
    pub status: StatusCode,
    pub body: Value,
}

impl JsonClient {
    /// A client that sends this API key.
    pub fn with_api_key(key: &str) -> Self {
        Self::with_header("X-API-Key", key)
    }

    /// A client that sends this header.
    pub fn with_header(name: &str, value: &str) -> Self {
        Self {
            // No idle connections: a server that a test restarts leaves them dead.
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build_http(),
            headers: vec![(name.into(), value.into())],
        }
    }

    pub async fn get(&self, url: &str) -> JsonResponse {
        self.send(Method::GET, url, Bytes::new()).await
    }

    pub async fn post(&self, url: &str, body: &Value) -> JsonResponse {
        self.send(Method::POST, url, Bytes::from(body.to_string()))
            .await
    }

    /// Sends any body, also one that is no JSON.
    pub async fn send(&self, method: Method, url: &str, body: Bytes) -> JsonResponse {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header("Content-Type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        let response = self.client.request(request).await.expect("an answer");
        let status = response.status();
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        JsonResponse { status, body }
    }
}
