//! Serves `/livez`, `/readyz`, `/metrics` and, in a gateway, `/traffic`. Responses come from
//! memory, so that they do not depend on the API server. The server is the last task that stops.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::diagnostics::Diagnostics;
use crate::metrics;

/// Maximum of concurrent connections: a few probes and scrapers.
const MAX_CONNECTIONS: usize = 32;
/// Timeout of a connection. Each serves one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Above the limit, a new connection replaces the oldest, so that slow clients cannot block probes.
pub async fn serve(
    listener: TcpListener,
    diagnostics: Arc<Diagnostics>,
    shutdown: CancellationToken,
) {
    let mut connections = JoinSet::new();
    let mut oldest: VecDeque<AbortHandle> = VecDeque::with_capacity(MAX_CONNECTIONS);
    let accept_loop = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    while connections.try_join_next().is_some() {}
                    oldest.retain(|connection| !connection.is_finished());
                    if oldest.len() >= MAX_CONNECTIONS
                        && let Some(connection) = oldest.pop_front()
                    {
                        connection.abort();
                    }
                    oldest.push_back(connections.spawn(serve_one(stream, diagnostics.clone())));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of the admin server");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(accept_loop).await;
}

async fn serve_one(stream: TcpStream, diagnostics: Arc<Diagnostics>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &diagnostics);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, connection).await {
        tracing::debug!(%error, "admin server connection closed with an error");
    }
}

fn respond<B>(request: &Request<B>, diagnostics: &Diagnostics) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET is allowed\n".into(),
        );
    }
    let path = request.uri().path();
    let traffic = diagnostics.traffic.get();
    if let Some(report) = traffic.and_then(|traffic| traffic.answer(path, request.headers())) {
        return match report {
            Ok(json) => text_response(StatusCode::OK, "application/json", json),
            Err(status) => plain(status, format!("{status}\n")),
        };
    }
    match path {
        "/livez" => check_response("alive", &diagnostics.health.liveness_failures(), &[]),
        "/readyz" => {
            let health = &diagnostics.health;
            check_response("ready", &health.readiness_failures(), &health.warnings())
        }
        "/metrics" => metrics_response(diagnostics),
        _ => plain(
            StatusCode::NOT_FOUND,
            "available paths: /livez, /readyz, /metrics\n".into(),
        ),
    }
}

/// 200 with the text `passed` and warnings, or 503 with one line per failure.
fn check_response(passed: &str, failures: &[String], warnings: &[String]) -> Response<Body> {
    if failures.is_empty() {
        let lines = std::iter::once(passed).chain(warnings.iter().map(String::as_str));
        return plain(StatusCode::OK, lines.collect::<Vec<_>>().join("\n") + "\n");
    }
    plain(StatusCode::SERVICE_UNAVAILABLE, failures.join("\n") + "\n")
}

pub fn metrics_response(diagnostics: &Diagnostics) -> Response<Body> {
    let failures = diagnostics.health.readiness_failures();
    diagnostics.metrics.record_readiness(failures.is_empty());
    match diagnostics.metrics.encode() {
        Ok(text) => text_response(StatusCode::OK, metrics::CONTENT_TYPE, text),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Body> {
    text_response(status, "text/plain; charset=utf-8", text)
}

fn text_response(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
