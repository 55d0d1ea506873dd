//! The port for probes and metrics, apart from everything clients reach: `/livez`, `/readyz` and
//! `/metrics`. It answers from memory alone, so it answers however bad things are, and it is the
//! last thing that ends.

#[cfg(test)]
mod tests;

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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::vitals::Vitals;

/// Connections at the same time: a few probes and scrapers.
const CONNECTIONS: usize = 32;
/// Longest life of a connection. Each serves one request.
const LONGEST: Duration = Duration::from_secs(10);
/// Pause after no connection could be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`.
pub async fn serve(listener: TcpListener, vitals: Arc<Vitals>, shutdown: CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(slot) = slots.clone().acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let served = serve_one(stream, vitals.clone());
                    connections.spawn(async move {
                        served.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted for administration");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(accepting).await;
}

async fn serve_one(stream: TcpStream, vitals: Arc<Vitals>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = respond(request.method(), request.uri().path(), &vitals);
        async { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LONGEST)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(LONGEST, connection).await {
        tracing::debug!(%error, "a connection for administration ended badly");
    }
}

fn respond(method: &Method, path: &str, vitals: &Vitals) -> Response<Body> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
    }
    match path {
        "/livez" => verdict("alive", &vitals.health.stuck()),
        "/readyz" => verdict("ready", &vitals.health.missing()),
        "/metrics" => measurements(vitals),
        _ => plain(
            StatusCode::NOT_FOUND,
            "there are /livez, /readyz and /metrics\n".into(),
        ),
    }
}

/// 200 with the word, or 503 with one line for each thing that is wrong.
fn verdict(good: &str, wrong: &[String]) -> Response<Body> {
    if wrong.is_empty() {
        return plain(StatusCode::OK, format!("{good}\n"));
    }
    plain(StatusCode::SERVICE_UNAVAILABLE, wrong.join("\n") + "\n")
}

fn measurements(vitals: &Vitals) -> Response<Body> {
    match vitals.metrics.encode() {
        Ok(text) => answer(StatusCode::OK, metrics::CONTENT_TYPE, text),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Body> {
    answer(status, "text/plain; charset=utf-8", text)
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
