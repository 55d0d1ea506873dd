//! Remote tool server over HTTP. Each message is posted; its reply is the response or, with the
//! older transport, an event of a stream that was opened before.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::peer::{ConnectionEnd, Inbox, Peer, VERSION};
use super::sessions::Sessions;
use super::sse::Events;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a message and its complete response.
const POST_TIMEOUT: Duration = Duration::from_mins(11);
/// Messages in flight.
const MAX_POSTS: usize = 32;
/// Limit of a response.
const MAX_RESPONSE_BYTES: usize = 32 << 20;
const SESSION: &str = "mcp-session-id";

type Gone = watch::Sender<Option<ConnectionEnd>>;

/// Keeps the connection; dropping it closes the connection.
#[derive(Debug)]
pub(super) struct HttpConnection {
    _running: AbortOnDropHandle<()>,
}

/// HTTP client with or without TLS.
#[derive(Debug)]
enum HttpClient {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Secure(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl HttpClient {
    /// Blocks: reads the CA certificates of the image.
    fn new(is_secure: bool) -> io::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let builder = Client::builder(TokioExecutor::new());
        if !is_secure {
            return Ok(Self::Plain(builder.build(connector)));
        }
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
            .https_only()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self::Secure(builder.build(connector)))
    }

    fn request(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Secure(client) => client.request(request),
        }
    }
}

/// State that all requests share.
#[derive(Debug)]
struct HttpTransport {
    client: HttpClient,
    url: Uri,
    headers: BTreeMap<String, String>,
    session: Mutex<Option<HeaderValue>>,
    inbox: Inbox,
    gone: Gone,
}

/// # Errors
/// If the URL is `https` and the image has no CA certificates.
pub(super) async fn connect(
    url: &Uri,
    headers: &BTreeMap<String, String>,
    is_sse: bool,
    sessions: Sessions,
) -> io::Result<(Peer, HttpConnection)> {
    let is_secure = url.scheme_str() == Some("https");
    let client = tokio::task::spawn_blocking(move || HttpClient::new(is_secure)).await??;
    let (gone, watch) = watch::channel(None);
    let (peer, queue, inbox) = Peer::new(watch, sessions);
    let transport = Arc::new(HttpTransport {
        client,
        url: url.clone(),
        headers: headers.clone(),
        session: Mutex::default(),
        inbox,
        gone,
    });
    let running = if is_sse {
        tokio::spawn(transport.run_with_stream(queue))
    } else {
        let url = transport.url.clone();
        tokio::spawn(transport.run(queue, url))
    };
    let running = AbortOnDropHandle::new(running);
    Ok((peer, HttpConnection { _running: running }))
}

impl HttpTransport {
    /// Posts queued messages concurrently, so that a slow tool does not delay others.
    async fn run(self: Arc<Self>, mut queue: mpsc::Receiver<Value>, url: Uri) {
        let slots = Arc::new(Semaphore::new(MAX_POSTS));
        let mut posts = tokio::task::JoinSet::new();
        while let Some(message) = queue.recv().await {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            while posts.try_join_next().is_some() {}
            let (transport, url) = (Arc::clone(&self), url.clone());
            posts.spawn(async move {
                let _slot = slot;
                let id = message.get("id").cloned();
                let posted =
                    tokio::time::timeout(POST_TIMEOUT, transport.post(&message, &url)).await;
                let problem = match posted {
                    Ok(Ok(())) => return,
                    Ok(Err(problem)) => problem,
                    Err(_) => "no answer".to_owned(),
                };
                let error = json!({"code": -32000, "message": problem});
                transport
                    .inbox
                    .take(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            });
        }
    }

    async fn post(&self, message: &Value, url: &Uri) -> Result<(), String> {
        let response = self.request(Method::POST, url, message.to_string()).await?;
        if let Some(session) = response.headers().get(SESSION) {
            *self.session.lock() = Some(session.clone());
        }
        let status = response.status();
        if status == StatusCode::NOT_FOUND && self.session.lock().is_some() {
            let _ = self
                .gone
                .send(Some(ConnectionEnd::now("the session has ended")));
        }
        if !status.is_success() {
            return Err(format!("HTTP status {status}"));
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            return self.follow(response, |_| {}).await;
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        // Some servers respond to notifications with plain text.
        if let Ok(message) = serde_json::from_slice(&body) {
            self.inbox.take(message);
        }
        Ok(())
    }

    async fn request(
        &self,
        method: Method,
        url: &Uri,
        body: String,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(session) = self.session.lock().clone() {
            request = request.header(SESSION, session);
            request = request.header("mcp-protocol-version", VERSION);
        }
        request = request
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header(header::CONTENT_TYPE, "application/json");
        let request = request
            .body(Full::from(body))
            .map_err(|error| error.to_string())?;
        let response = self.client.request(request).await;
        response.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!(
                "cannot reach it: {}",
                cause.unwrap_or_else(|| error.to_string())
            )
        })
    }

    /// Reads the messages of an event stream and passes the data of `endpoint` events to `other`.
    async fn follow(
        &self,
        response: Response<Incoming>,
        mut other: impl FnMut(&str),
    ) -> Result<(), String> {
        let mut body = response.into_body();
        let mut events = Events::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            for event in events.push(data).ok_or("an event is too long")? {
                match event.kind.as_str() {
                    "" | "message" => {
                        if let Ok(message) = serde_json::from_str(&event.data) {
                            self.inbox.take(message);
                        }
                    }
                    "endpoint" => other(&event.data),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Runs the older transport: the first event of the stream is the URL for messages.
    async fn run_with_stream(self: Arc<Self>, queue: mpsc::Receiver<Value>) {
        let mut queue = Some(queue);
        let mut posting = None;
        let outcome = match self.request(Method::GET, &self.url, String::new()).await {
            Ok(response) if response.status().is_success() => {
                let stream = self.follow(response, |place| {
                    if let (Some(url), Some(queue)) = (resolve(&self.url, place), queue.take()) {
                        let running = Arc::clone(&self).run(queue, url);
                        posting = Some(AbortOnDropHandle::new(tokio::spawn(running)));
                    }
                });
                stream.await
            }
            Ok(response) => Err(format!("HTTP status {}", response.status())),
            Err(problem) => Err(problem),
        };
        let problem = outcome.err();
        let problem = problem.unwrap_or_else(|| "the stream has ended".to_owned());
        let _ = self.gone.send(Some(ConnectionEnd::now(problem)));
    }
}

/// Resolves the URL for messages. Returns `None` if it is on another server.
fn resolve(base: &Uri, place: &str) -> Option<Uri> {
    let place = place.trim();
    if place.contains("://") {
        let uri: Uri = place.parse().ok()?;
        let same = (uri.scheme(), uri.authority()) == (base.scheme(), base.authority());
        return same.then_some(uri);
    }
    let path = if place.starts_with('/') {
        place.to_owned()
    } else {
        let (directory, _) = base.path().rsplit_once('/').unwrap_or_default();
        format!("{directory}/{place}")
    };
    let parts = Uri::builder()
        .scheme(base.scheme()?.clone())
        .authority(base.authority()?.clone());
    parts.path_and_query(path).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_rejects_other_servers() {
        let base: Uri = "http://h:1/a/sse".parse().unwrap();
        let resolve = |place| resolve(&base, place).map(|uri| uri.to_string());
        assert_eq!(resolve("/m?x=1").unwrap(), "http://h:1/m?x=1");
        assert_eq!(resolve("m/?x=1").unwrap(), "http://h:1/a/m/?x=1");
        assert_eq!(resolve("http://h:1/m").unwrap(), "http://h:1/m");
        assert_eq!(resolve("http://other/m"), None);
    }
}
