//! HTTP as the Python clients speak it: connections are kept, redirects are not followed, cookies would
//! be. Every name is this machine's, as wildcard names are for real clients.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::iter::{Once, once};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;
use tower::Service;

use super::ClientException;

/// Time that httpx keeps an idle connection.
const IDLE: Duration = Duration::from_secs(5);

/// A resolver to which every name is this machine's.
#[derive(Debug, Clone, Copy)]
pub struct LocalhostResolver;

impl Service<Name> for LocalhostResolver {
    type Response = Once<SocketAddr>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(once((Ipv4Addr::LOCALHOST, 0).into())))
    }
}

/// Limit of a call that a test makes itself: the longest action of the tests.
const TEST_LIMIT: Duration = Duration::from_mins(10);

/// One HTTP client, with headers that go with every request, and a record of what was asked.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client<HttpConnector<LocalhostResolver>, Full<Bytes>>,
    pub headers: Vec<(String, String)>,
    calls: Arc<Mutex<Vec<String>>>,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Status and body; a body that is no JSON becomes a string.
#[derive(Debug, PartialEq)]
pub struct JsonReply {
    pub status: u16,
    pub body: Value,
}

impl HttpClient {
    /// A client that sends this API key.
    pub fn new(api_key: &str) -> Self {
        Self::with_headers(&[("X-API-Key", api_key)])
    }

    /// A client of a sandbox that sends this session key.
    pub fn of_session(key: &str) -> Self {
        Self::with_headers(&[("X-Session-API-Key", key)])
    }

    pub fn anonymous() -> Self {
        Self::with_headers(&[])
    }

    pub fn with_headers(headers: &[(&str, &str)]) -> Self {
        Self::build(headers, usize::MAX)
    }

    /// A client that keeps no connection: those to a server that a test restarts are dead.
    pub fn unpooled(headers: &[(&str, &str)]) -> Self {
        Self::build(headers, 0)
    }

    fn build(headers: &[(&str, &str)], kept: usize) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(kept)
            .build(HttpConnector::new_with_resolver(LocalhostResolver));
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            client,
            headers: headers.iter().map(own).collect(),
            calls: Arc::default(),
        }
    }

    /// Requests as `GET /path 200`; the status is `-` without a response.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }

    /// A call of a test, which must be answered.
    pub async fn get(&self, url: &str) -> JsonReply {
        self.request(Method::GET, url, Bytes::new()).await
    }

    /// As [`HttpClient::get`], with a body.
    pub async fn post(&self, url: &str, body: &Value) -> JsonReply {
        self.request(Method::POST, url, body.to_string().into())
            .await
    }

    /// As [`HttpClient::get`], with any body, also one that is no JSON.
    pub async fn request(&self, method: Method, url: &str, body: Bytes) -> JsonReply {
        let reply = self.send(method, url, body, TEST_LIMIT).await;
        JsonReply::from(reply.unwrap_or_else(|error| panic!("{url}: {error:?}")))
    }

    /// `GET` of a client, which gives up after `limit`.
    pub async fn try_get(&self, url: &str, limit: Duration) -> Result<Reply, ClientException> {
        self.send(Method::GET, url, Bytes::new(), limit).await
    }

    /// As [`HttpClient::try_get`], with a body.
    pub async fn try_post(
        &self,
        url: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Reply, ClientException> {
        self.send(Method::POST, url, body.to_string().into(), limit)
            .await
    }

    /// Sends a request and waits for the whole answer, at most for `limit`.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Reply, ClientException> {
        let call = format!("{method} {}", path(url));
        let exchange = timeout(limit, self.exchange(method, url, body)).await;
        let reply = exchange.unwrap_or(Err(ClientException::Timeout));
        let status = reply.as_ref().map_or("-".into(), |r| r.status.to_string());
        self.calls.lock().push(format!("{call} {status}"));
        reply
    }

    async fn exchange(
        &self,
        method: Method,
        url: &str,
        body: Bytes,
    ) -> Result<Reply, ClientException> {
        let mut request = Request::builder().method(method).uri(url);
        let own = self.headers.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let json = [("Content-Type", "application/json")];
        let typed = own.clone().any(|(name, _)| name == "Content-Type");
        for (name, value) in own.chain(json.into_iter().filter(|_| !typed)) {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        let response = self.client.request(request).await;
        let response = response.map_err(|_| ClientException::Connection)?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await;
        let body = body.map_err(|_| ClientException::Connection)?;
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.to_bytes(),
        })
    }
}

impl Reply {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// `response.json()`.
    pub fn json(&self) -> Result<Value, ClientException> {
        let text = std::str::from_utf8(&self.body).map_err(|_| ClientException::Decode)?;
        serde_json::from_str(text).map_err(|_| ClientException::Decode)
    }

    /// `response.raise_for_status()`, then `response.json()`.
    pub fn success(&self) -> Result<Value, ClientException> {
        if self.is_success() {
            return self.json();
        }
        Err(self.error())
    }

    /// The exception of an answer that is not 2xx, as V0 makes it: the body is no text, no JSON or an
    /// object, and anything else raises something unrelated.
    pub fn error(&self) -> ClientException {
        let status = self.status;
        let Ok(text) = std::str::from_utf8(&self.body) else {
            return ClientException::Decode;
        };
        let detail = match serde_json::from_str(text) {
            Err(_) => None,
            Ok(Value::Object(body)) => body.get("detail").map(|d| match d {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            }),
            Ok(other) => return ClientException::Type(format!("{other} has no attribute get")),
        };
        ClientException::Http { status, detail }
    }
}

impl JsonReply {
    /// The body of an answer that must be 2xx.
    pub fn success(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }
}

impl From<Reply> for JsonReply {
    fn from(Reply { status, body, .. }: Reply) -> Self {
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
        Self { status, body }
    }
}

/// A text field of an answer.
pub fn text(info: &Value, field: &str) -> String {
    let text = info[field].as_str();
    text.unwrap_or_else(|| panic!("{field} of {info}")).into()
}

fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("/", |at| &rest[at..])
}
