//! The HTTP side of `/mcp`: API key, body limit and the shape of errors. The protocol itself is
//! that of the `rmcp` crate, without sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use crds::contract::header::API_KEY;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use jiff::Timestamp;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcNotification, JsonRpcRequest,
    RequestId,
};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio::time::timeout;

use super::backend::{Backend, Caller};
use super::running_calls::{RunningCalls, SESSION, new_session};
use super::server::McpServer;
use crate::api::{ApiError, MAX_BODY_BYTES, error_response};
use crate::client_address::ClientAddress;
use shared::tenants::Tenants;
use shared::urls::{Scheme, Urls};

/// Path of the endpoint.
pub(crate) const PATH: &str = "/mcp";
/// Time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of comments on an event stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Codes of JSON-RPC.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;

type Service = StreamableHttpService<McpServer, NeverSessionManager>;

/// Message of which the library leaves out a part, because it keeps no sessions.
#[derive(Debug)]
enum SessionMessage {
    /// Its response names the session.
    Initialize,
    /// Ends a call of the session.
    Cancelled(RequestId),
}

/// The endpoint; cheap to clone.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct Mcp {
    tenants: Tenants,
    running: RunningCalls,
    #[debug(skip)]
    service: Service,
}

impl SessionMessage {
    fn of(message: ClientJsonRpcMessage) -> Option<Self> {
        match message {
            ClientJsonRpcMessage::Request(JsonRpcRequest {
                request: ClientRequest::InitializeRequest(_),
                ..
            }) => Some(Self::Initialize),
            ClientJsonRpcMessage::Notification(JsonRpcNotification {
                notification: ClientNotification::CancelledNotification(cancelled),
                ..
            }) => cancelled.params.request_id.map(Self::Cancelled),
            _ => None,
        }
    }
}

impl Mcp {
    pub(crate) fn new(backend: Backend, tenants: Tenants, urls: &Urls) -> Self {
        // The key in a header, which no page of another site can set, protects from DNS rebinding
        // on any host name; the check of the origin comes on top.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_allowed_origins([origin(urls)])
            .enforce_origin_validation()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_BODY_BYTES);
        let running = backend.running.clone();
        let server = McpServer::new(backend);
        let service = Service::new(
            move || Ok(server.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        Self {
            tenants,
            running,
            service,
        }
    }

    /// Answers one request. Errors of HTTP have the body of the API's errors, those of the protocol
    /// are JSON-RPC errors.
    pub(crate) async fn respond(
        &self,
        request: Request<Body>,
        client: ClientAddress,
        peer: SocketAddr,
    ) -> Response<Body> {
        let answered = self.answer(request, client, peer).await;
        answered.unwrap_or_else(|response| *response)
    }

    async fn answer(
        &self,
        request: Request<Body>,
        client: ClientAddress,
        peer: SocketAddr,
    ) -> Result<Response<Body>, Box<Response<Body>>> {
        let (mut parts, body) = request.into_parts();
        let caller = self.authenticate(&parts, client, peer)?;
        let (body, message) = if parts.method == Method::POST {
            read(&parts, body).await?
        } else {
            (Bytes::new(), None)
        };
        // The library may log what it gets, and has no sessions.
        parts.headers.remove(API_KEY);
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(SESSION);
        parts.extensions.insert(caller.clone());
        let request = Request::from_parts(parts, Full::new(body));
        let response = self.service.handle(request).await;
        let mut response = with_error_body(response.map(Body::new)).await;
        match message.filter(|_| response.status().is_success()) {
            Some(SessionMessage::Initialize) => {
                let id = new_session().and_then(|id| HeaderValue::try_from(id).ok());
                response.headers_mut().extend(id.map(|id| (SESSION, id)));
            }
            Some(SessionMessage::Cancelled(id)) => {
                if let Some(key) = caller.call_key(&id) {
                    self.running.cancel(&key);
                }
            }
            None => {}
        }
        Ok(response)
    }

    fn authenticate(
        &self,
        parts: &Parts,
        client: ClientAddress,
        peer: SocketAddr,
    ) -> Result<Caller, Box<Response<Body>>> {
        let key = key(&parts.headers);
        let text = key.as_ref().and_then(|key| key.to_str().ok());
        let known = self.tenants.authenticate(text, Timestamp::now());
        let (known, key) = known
            .and_then(|known| Ok((known, key.ok_or(shared::tenants::TenantError::Unknown)?)))
            .map_err(|error| {
                let mut response = ApiError::from(error).into_response();
                if response.status() == StatusCode::UNAUTHORIZED {
                    let scheme = HeaderValue::from_static("Bearer");
                    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
                }
                Box::new(response)
            })?;
        let tenant = known.tenant.name.clone();
        Ok(Caller::new(key, tenant, client, peer, &parts.headers))
    }
}

/// The only origin of pages that may call: that of the gateway.
fn origin(urls: &Urls) -> String {
    let Urls { scheme, base, .. } = urls;
    let has_port = base.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit())
    });
    let port = match scheme {
        _ if has_port => "",
        Scheme::Http => ":80",
        Scheme::Https => ":443",
    };
    format!("{scheme}://{base}{port}")
}

/// Reads the API key. MCP clients can set a bearer token more easily than a header of their own.
fn key(headers: &HeaderMap) -> Option<HeaderValue> {
    if let Some(key) = headers.get(API_KEY) {
        return Some(key.clone());
    }
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    let key = HeaderValue::from_str(key.trim()).ok()?;
    is_bearer.then_some(key)
}

/// Reads a message and checks that it is one, if it is JSON. The library answers 415 to one that is
/// not.
async fn read(
    parts: &Parts,
    body: Body,
) -> Result<(Bytes, Option<SessionMessage>), Box<Response<Body>>> {
    let failed = |error: ApiError| Box::new(error.into_response());
    let body = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
    let body = body
        .map_err(|_| failed(ApiError::bad_request("the body did not arrive in time")))?
        .map_err(|error| {
            failed(if error.is::<LengthLimitError>() {
                ApiError::TooLarge
            } else {
                ApiError::bad_request("the body could not be read")
            })
        })?
        .to_bytes();
    if !is_json(&parts.headers) {
        return Ok((body, None));
    }
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&body) {
        let (line, column) = (error.line(), error.column());
        let text = format!("the body is not valid JSON at line {line} column {column}");
        return Err(Box::new(rpc_error(PARSE_ERROR, &text)));
    }
    if body.trim_ascii_start().starts_with(b"[") {
        let text = "batches are not supported: send one message per request";
        return Err(Box::new(rpc_error(INVALID_REQUEST, text)));
    }
    let Ok(message) = serde_json::from_slice(&body) else {
        let text = "the body is not a JSON-RPC message of the Model Context Protocol";
        return Err(Box::new(rpc_error(INVALID_REQUEST, text)));
    };
    Ok((body, SessionMessage::of(message)))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next());
    essence.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Response to a message whose id cannot be read.
fn rpc_error(code: i32, message: &str) -> Response<Body> {
    let error = json!({"code": code, "message": message});
    let body = axum::Json(json!({"jsonrpc": "2.0", "id": null, "error": error}));
    (StatusCode::BAD_REQUEST, body).into_response()
}

/// Gives an error that is plain text the body of the API's errors.
async fn with_error_body(response: Response<Body>) -> Response<Body> {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() || is_json(response.headers()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    // A text of the library, at most a line.
    let text = Limited::new(body, 4096).collect().await;
    let text = text.map(|text| String::from_utf8_lossy(&text.to_bytes()).into_owned());
    let error = ApiError::BadRequest(text.unwrap_or_default());
    let mut response = error_response(status, &error);
    if let Some(allowed) = parts.headers.get(http::header::ALLOW) {
        let allowed = allowed.clone();
        response.headers_mut().insert(http::header::ALLOW, allowed);
    }
    response
}
