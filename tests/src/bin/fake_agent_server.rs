//! A fake agent-server for sandboxes of tests: the same endpoints, with and without a key
//! (`docs/specs/runtime-api.md`, sections 3.9 and 4.8). It reports what reached it, keeps files,
//! streams events and exits on request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use futures::{SinkExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};
use tokio_util::io::{ReaderStream, StreamReader};

/// Every port that clients derive a URL for (`docs/specs/runtime-api.md`, section 4.1).
const PORTS: [(u16, &str); 4] = [
    (60000, "runtime"),
    (60001, "vscode"),
    (12000, "work-1"),
    (12001, "work-2"),
];
const WRONG_KEY: u16 = 4001;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if let Some(code) = std::env::args().skip_while(|a| a != "--exit").nth(1) {
        std::process::exit(code.parse().context("an exit code")?);
    }
    let mut servers = tokio::task::JoinSet::new();
    for (port, name) in PORTS {
        let listener = tokio::net::TcpListener::bind(("0.0.0.0", port)).await?;
        let router = if name == "runtime" {
            server()
        } else {
            other_port(name)
        };
        servers.spawn(async move { axum::serve(listener, router).await });
    }
    while let Some(ended) = servers.join_next().await {
        ended??;
    }
    Ok(())
}

fn other_port(name: &'static str) -> Router {
    Router::new().fallback(async move |request: Request| {
        Json(json!({"port": name, "path": request.uri().to_string()}))
    })
}

fn server() -> Router {
    let locked = Router::new()
        .route("/api/echo", any(echo))
        .route("/api/environment", get(environment))
        .route("/api/crash/{code}", post(crash))
        .route("/api/file/upload", post(upload))
        .route("/api/file/download", get(download))
        .route("/api/events/sse", get(events))
        .route("/api/{*rest}", any(echo))
        .layer(from_fn(check_key));
    let mut open = Router::new().route("/sockets/events/{id}", get(socket));
    for path in ["/", "/alive", "/health", "/ready", "/server_info"] {
        open = open.route(path, get(info));
    }
    open.merge(locked)
}

/// `IDLE_TIME` is what it says of itself, in seconds.
async fn info() -> Json<Value> {
    let idle = std::env::var("IDLE_TIME").ok().and_then(|t| t.parse().ok());
    let idle: f64 = idle.unwrap_or_default();
    Json(json!({"status": "ok", "uptime": 1.0, "idle_time": idle}))
}

fn key() -> String {
    std::env::var("SESSION_API_KEY").unwrap_or_default()
}

async fn check_key(request: Request, next: Next) -> Response {
    let given = request.headers().get("X-Session-API-Key");
    if given.is_some_and(|given| given.as_bytes() == key().as_bytes()) {
        return next.run(request).await;
    }
    let detail = Json(json!({"detail": "Unauthorized"}));
    (StatusCode::UNAUTHORIZED, detail).into_response()
}

/// All that arrived.
async fn echo(request: Request) -> Result<Json<Value>, StatusCode> {
    let (parts, body) = request.into_parts();
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &parts.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.entry(name.to_string()).or_default().push(value);
    }
    let body = to_bytes(body, usize::MAX).await;
    let body = body.map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(Json(json!({
        "method": parts.method.as_str(), "uri": parts.uri.to_string(), "headers": headers,
        "body": String::from_utf8_lossy(&body),
    })))
}

async fn environment() -> Json<BTreeMap<String, String>> {
    Json(std::env::vars().collect())
}

async fn crash(Path(code): Path<i32>) {
    std::process::exit(code);
}

type Fields = Query<BTreeMap<String, String>>;

async fn upload(Query(query): Fields, body: Body) -> Result<Json<Value>, StatusCode> {
    let path = query.get("path").ok_or(StatusCode::BAD_REQUEST)?;
    let data = body.into_data_stream().map_err(std::io::Error::other);
    write(path, StreamReader::new(data))
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(Json(json!({"success": true})))
}

async fn write(path: &str, mut content: impl AsyncBufRead + Unpin) -> std::io::Result<()> {
    let mut file = File::create(path).await?;
    tokio::io::copy_buf(&mut content, &mut file).await?;
    file.flush().await
}

async fn download(Query(query): Fields) -> Result<Body, StatusCode> {
    let path = query.get("path").ok_or(StatusCode::BAD_REQUEST)?;
    let file = File::open(path).await.map_err(|_| StatusCode::NOT_FOUND)?;
    Ok(Body::from_stream(ReaderStream::with_capacity(
        file,
        1 << 18,
    )))
}

/// Sends an event every `pause` milliseconds (default 100), until the client leaves or the file
/// `until` exists.
async fn events(Query(query): Fields) -> Result<Response, StatusCode> {
    let pause = query.get("pause").map_or(Ok(100), |text| text.parse());
    let pause = Duration::from_millis(pause.map_err(|_| StatusCode::BAD_REQUEST)?);
    let end = query.get("until").cloned();
    let events = stream::unfold(0_u32, move |number| {
        let end = end.clone();
        async move {
            tokio::time::sleep(pause).await;
            if end.is_some_and(|path| std::fs::exists(path).unwrap_or_default()) {
                return None;
            }
            let event = Bytes::from(format!("data: {number}\n\n"));
            Some((Ok::<_, Infallible>(event), number + 1))
        }
    });
    let kind = [(CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::from_stream(events)).into_response())
}

/// A WebSocket whose first frame has to hold the key; then it says so, and everything comes back.
async fn socket(mut request: Request) -> Response {
    let asked = request.headers().get("Sec-WebSocket-Key");
    let Some(accept) = asked.map(|asked| derive_accept_key(asked.as_bytes())) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let io = TokioIo::new(upgraded);
            let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            // Clients see the broken connection.
            let _ = converse(socket).await;
        }
    });
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Accept", accept.as_str()),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

async fn converse<S>(mut socket: WebSocketStream<S>) -> anyhow::Result<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let first = socket.next().await.context("a first frame")??;
    let auth: Value = serde_json::from_slice(&first.into_data()).unwrap_or_default();
    if auth["session_api_key"] != key() {
        let code = CloseCode::from(WRONG_KEY);
        let reason = "Authentication failed".into();
        return Ok(socket.close(Some(CloseFrame { code, reason })).await?);
    }
    socket.send(Message::text(r#"{"kind":"ready"}"#)).await?;
    while let Some(message) = socket.next().await {
        match message? {
            message @ (Message::Text(_) | Message::Binary(_)) => socket.send(message).await?,
            Message::Close(_) => break,
            _ => {}
        }
    }
    Ok(())
}
