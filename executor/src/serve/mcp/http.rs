//! Remote tool server over HTTP. Each message is posted; its reply is the response or, with the
//! older transport, an event of a stream that was opened before.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::config::RemoteServer;
use super::peer::{ConnectionEnd, Inbox, Peer, VERSION};
use super::sessions::Sessions;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a message and its complete response.
const POST_TIMEOUT: Duration = Duration::from_mins(11);
const MAX_POSTS: usize = 32;
const MAX_RESPONSE_BYTES: usize = 32 << 20;
const MAX_EVENT_BYTES: usize = 32 << 20;
const SESSION: &str = "mcp-session-id";

type Gone = watch::Sender<Option<ConnectionEnd>>;

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Creates a client. Blocks: reads the CA certificates of the image if the server needs TLS.
fn client(is_secure: bool) -> io::Result<HttpClient> {
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.enforce_http(false);
    let provider = rustls::crypto::ring::default_provider();
    let connector = HttpsConnectorBuilder::new();
    let connector = if is_secure {
        connector
            .with_provider_and_native_roots(provider)?
            .https_only()
    } else {
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        connector.with_tls_config(config).https_or_http()
    };
    let connector = connector.enable_http1().wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

#[derive(Debug)]
struct HttpTransport {
    client: HttpClient,
    url: Uri,
    headers: HeaderMap,
    session: Mutex<Option<HeaderValue>>,
    inbox: Inbox,
    gone: Gone,
}

/// Fails if the URL is `https` and the image has no CA certificates.
pub(super) async fn connect(
    server: &RemoteServer,
    sessions: Sessions,
) -> io::Result<(Peer, AbortOnDropHandle<()>)> {
    let is_secure = server.url.scheme() == Some(&Scheme::HTTPS);
    let client = tokio::task::spawn_blocking(move || client(is_secure)).await??;
    let (gone, watch) = watch::channel(None);
    let (peer, queue, inbox) = Peer::new(watch, sessions);
    let transport = Arc::new(HttpTransport {
        client,
        url: server.url.clone(),
        headers: server.headers.clone(),
        session: Mutex::default(),
        inbox,
        gone,
    });
    let running = if server.is_sse {
        tokio::spawn(transport.run_with_stream(queue))
    } else {
        tokio::spawn(transport.run(queue, server.url.clone()))
    };
    Ok((peer, AbortOnDropHandle::new(running)))
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
                let posting = transport.post(&message, &url);
                let posted = tokio::time::timeout(POST_TIMEOUT, posting).await;
                if let Err(problem) = posted.unwrap_or_else(|_| Err("no answer".to_owned())) {
                    let error = json!({"code": -32000, "message": problem});
                    let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
                    transport.inbox.take(answer);
                }
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
            let end = ConnectionEnd::now("the session has ended");
            let _ = self.gone.send(Some(end));
        }
        if !status.is_success() {
            return Err(format!("HTTP status {status}"));
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            return self.follow(response, |_| {}).await;
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
        let body = body.await.map_err(|error| error.to_string())?.to_bytes();
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
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = url.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        if let Some(session) = self.session.lock().clone() {
            headers.append(SESSION, session);
            headers.append("mcp-protocol-version", HeaderValue::from_static(VERSION));
        }
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.append(header::ACCEPT, accept);
        let json = HeaderValue::from_static("application/json");
        headers.append(header::CONTENT_TYPE, json);
        self.client.request(request).await.map_err(|error| {
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
        let problem = outcome
            .err()
            .unwrap_or_else(|| "the stream has ended".to_owned());
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

/// Server-sent event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Event {
    kind: String,
    data: String,
}

/// Incremental parser of an event stream.
#[derive(Debug, Default)]
struct Events {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
}

impl Events {
    /// Adds bytes and returns complete events, or `None` if an event exceeds the limit.
    fn push(&mut self, bytes: &[u8]) -> Option<Vec<Event>> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(piece);
            if self.line.len() + self.event.data.len() > MAX_EVENT_BYTES {
                return None;
            }
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                complete.extend(self.take(line.trim_end_matches(['\r', '\n'])));
            }
        }
        Some(complete)
    }

    fn take(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
        None
    }
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

    #[test]
    fn events_are_joined_from_chunks() {
        let text = ": ping\r\n\r\nevent: endpoint\r\ndata: /m\r\n\r\nid: 1\ndata:a\ndata: b\n\nevent: x\n\n";
        let event = |kind: &str, data: &str| Event {
            kind: kind.to_owned(),
            data: data.to_owned(),
        };
        let expected = [event("endpoint", "/m"), event("", "a\nb")];
        for size in [1, 3, text.len()] {
            let mut events = Events::default();
            let pieces = text.as_bytes().chunks(size);
            let found: Vec<_> = pieces
                .flat_map(|piece| events.push(piece).unwrap())
                .collect();
            assert_eq!(found, expected);
        }
        let long = vec![b'x'; MAX_EVENT_BYTES + 1];
        assert!(Events::default().push(&long).is_none());
    }
}
