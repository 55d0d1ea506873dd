//! Calls of the gateway's own router and proxy, with the credentials of an MCP client.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::{Bytes, BytesMut};
use crds::contract::header::{API_KEY, SESSION_API_KEY};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use rmcp::model::RequestId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::running_calls::{self, CallKey, RunningCalls};
use crate::client_address::ClientAddress;
use crate::client_memory::ClientMemory;
use crate::keyed_limit::KeyedLimiter;
use crate::proxy::{Proxy, Route};
use crate::sandboxes::Sandboxes;
use shared::urls::RUNTIME;

/// Memory of all answers that are being read, in bytes.
const ANSWER_MEMORY_BYTES: usize = 256 << 20;
/// Part of it for one tenant, in MiB: as many as its calls, each of which begins with one.
const TENANT_ANSWER_MIB: usize = 64;
/// Largest answer. A page with its picture and tree is the largest; 16 MiB is several times that.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Time for a call of the API, which itself answers within ten seconds.
const API_TIMEOUT: Duration = Duration::from_secs(30);
/// Headers of the trace of a request.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// A failure that the model reads.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ToolError(pub(super) String);

/// The services that tools call; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    api: Router,
    proxy: Arc<Proxy>,
    pub(super) sandboxes: Sandboxes,
    answers: ClientMemory,
    /// MiB of answers that are being read, by tenant.
    tenant_answers: KeyedLimiter<String>,
    /// Calls in progress by tenant.
    pub(super) calls: KeyedLimiter<String>,
    pub(super) running: RunningCalls,
}

/// Client of a call. Its key is secret, so `Debug` leaves it out.
#[derive(Clone)]
pub(super) struct Caller(Arc<CallerParts>);

struct CallerParts {
    key: HeaderValue,
    tenant: String,
    session: Option<String>,
    address: ClientAddress,
    peer: SocketAddr,
    trace: HeaderMap,
}

/// Body of the errors of API and proxy.
#[derive(Debug, Deserialize)]
struct ErrorBody {
    detail: String,
}

impl Caller {
    pub(super) fn new(
        key: HeaderValue,
        tenant: String,
        address: ClientAddress,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Self {
        let trace = TRACE.iter().filter_map(|name| {
            let value = headers.get(*name)?.clone();
            Some((HeaderName::from_static(name), value))
        });
        Self(Arc::new(CallerParts {
            key,
            tenant,
            session: running_calls::session(headers),
            address,
            peer,
            trace: trace.collect(),
        }))
    }

    pub(super) fn tenant(&self) -> &String {
        &self.0.tenant
    }

    /// Key of a request of this client; `None` without a session.
    pub(super) fn call_key(&self, request: &RequestId) -> Option<CallKey> {
        Some(CallKey {
            tenant: self.0.tenant.clone(),
            session: self.0.session.clone()?,
            request: request.clone(),
        })
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.0.tenant).finish()
    }
}

impl Backend {
    pub(crate) fn new(api: Router, proxy: Arc<Proxy>, sandboxes: Sandboxes) -> Self {
        Self {
            api,
            proxy,
            sandboxes,
            answers: ClientMemory::new(ANSWER_MEMORY_BYTES),
            tenant_answers: KeyedLimiter::default(),
            calls: KeyedLimiter::default(),
            running: RunningCalls::default(),
        }
    }

    /// Calls the runtime API and returns its JSON.
    pub(super) async fn api<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, ToolError> {
        let mut request = request(caller, method, path, body)?;
        let headers = request.headers_mut();
        headers.insert(API_KEY, caller.0.key.clone());
        let client = SocketAddr::new(caller.0.address.ip, caller.0.peer.port());
        request.extensions_mut().insert(ConnectInfo(client));
        let answer = async {
            let Ok(response) = self.api.clone().oneshot(request).await;
            self.read(caller, response).await
        };
        parse(
            &timeout(API_TIMEOUT, answer)
                .await
                .map_err(|_| late("the API"))??,
        )
    }

    /// Calls the server in a sandbox through the proxy, for at most `limit`.
    pub(super) async fn sandbox<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        (runtime_id, session_key): (&str, &str),
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<T, ToolError> {
        let mut request = request(caller, Method::POST, path, Some(body))?;
        let key = HeaderValue::from_str(session_key);
        let key = key.map_err(|_| ToolError("the sandbox has no valid key".into()))?;
        request.headers_mut().insert(SESSION_API_KEY, key);
        let route = Route {
            id: runtime_id.into(),
            port: RUNTIME.into(),
            prefix: None,
        };
        let answer = async {
            let response = self.proxy.forward(route, request, &caller.0.address).await;
            self.read(caller, response).await
        };
        parse(
            &timeout(limit, answer)
                .await
                .map_err(|_| late("the sandbox"))??,
        )
    }

    /// Reads a successful body, whose memory is counted while it arrives: sandboxes of one tenant that
    /// send slowly must not take the memory of all others.
    async fn read(&self, caller: &Caller, response: Response<Body>) -> Result<Bytes, ToolError> {
        let status = response.status();
        let mut permit = self.answers.acquire(0).ok_or_else(busy)?;
        let mut own = Vec::new();
        let (mut body, mut bytes) = (response.into_body(), BytesMut::new());
        if body.size_hint().lower() > MAX_ANSWER_BYTES as u64 {
            return Err(too_large());
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ToolError("the answer broke off".into()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let size = bytes.len() + data.len();
            if size > MAX_ANSWER_BYTES {
                return Err(too_large());
            }
            while own.len() < size.div_ceil(1 << 20) {
                let mib = self
                    .tenant_answers
                    .acquire(caller.tenant(), TENANT_ANSWER_MIB);
                own.push(mib.ok_or_else(busy)?);
            }
            if !permit.grow_to(size) {
                return Err(busy());
            }
            bytes.extend_from_slice(&data);
        }
        if status.is_success() {
            return Ok(bytes.freeze());
        }
        Err(failure(status, &bytes))
    }
}

fn request(
    caller: &Caller,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Request<Body>, ToolError> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = HeaderValue::from(body.len());
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::from(body));
    let mut request = request.map_err(|_| ToolError("the name cannot be part of a path".into()))?;
    let headers = request.headers_mut();
    headers.extend(caller.0.trace.clone());
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ToolError> {
    let parsed = serde_json::from_slice(bytes);
    parsed.map_err(|_| ToolError("the answer of the sandbox has an unknown form".into()))
}

fn failure(status: StatusCode, body: &[u8]) -> ToolError {
    let detail = serde_json::from_slice::<ErrorBody>(body).map(|body| body.detail);
    let detail = detail.unwrap_or_else(|_| "no explanation".into());
    ToolError(format!("{detail} (HTTP status {})", status.as_u16()))
}

fn late(what: &str) -> ToolError {
    ToolError(format!("{what} did not answer in time; try again"))
}

fn too_large() -> ToolError {
    let limit = MAX_ANSWER_BYTES >> 20;
    ToolError(format!("the answer exceeds {limit} MiB"))
}

fn busy() -> ToolError {
    ToolError("too many large answers at once; try again".into())
}

#[cfg(test)]
mod tests {
    use testing::FakeApi;

    use super::*;
    use crate::Gateway;

    fn caller(tenant: &str) -> Caller {
        let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
        let headers = HeaderMap::new();
        let address = ClientAddress::of(peer, &headers, &[]);
        let key = HeaderValue::from_static("key");
        Caller::new(key, tenant.to_owned(), address, peer, &headers)
    }

    #[tokio::test]
    async fn answers_of_one_tenant_leave_memory_to_others() {
        let gateway = Gateway::fixture(&FakeApi::default());
        let (proxy, events) = (&gateway.0.proxy, &gateway.0.events);
        let backend = Backend::new(Router::new(), proxy.clone(), events.sandboxes.clone());
        let (own, other) = (caller("a"), caller("b"));
        let can_read = async |caller: &Caller, mib: usize| {
            let answer = Response::new(Body::from(vec![b'x'; mib << 20]));
            backend.read(caller, answer).await.is_ok()
        };
        // Of other answers: all but one MiB.
        let limit = TENANT_ANSWER_MIB;
        let taken = (1..limit).map(|_| backend.tenant_answers.acquire(own.tenant(), limit));
        let taken: Vec<_> = taken.collect();
        assert!(!can_read(&own, 2).await && can_read(&own, 1).await);
        assert!(can_read(&other, 2).await);
        drop(taken);
        assert!(can_read(&own, 2).await);
    }
}
