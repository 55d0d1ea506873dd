//! The server behind every target: responses, streams, and echoes after an upgrade.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::split;
use tokio::net::TcpListener;

/// Size of a response in bytes.
pub(crate) const RESPONSE_BYTES: usize = 1024;
/// Size of a large body in bytes.
pub(crate) const LARGE_BODY_BYTES: usize = 1 << 30;
const CHUNK_BYTES: usize = 64 * 1024;

/// First argument of the process.
pub(crate) const ROLE: &str = "server";

/// Runs the process.
pub(crate) async fn run() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{} x", listener.local_addr()?);
    accept(listener).await
}

/// Runs the server in this process.
pub(crate) async fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async {
        if let Err(error) = accept(listener).await {
            eprintln!("server stopped: {error}");
        }
    });
    Ok(address)
}

async fn accept(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that has already left does not end the server.
        let _ = stream.set_nodelay(true);
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .with_upgrades();
        tokio::spawn(connection);
    }
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if request.headers().contains_key(UPGRADE) {
        return Ok(echo(&mut request));
    }
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let body = match &*path {
        "/down" => {
            let chunk = Bytes::from(vec![b'x'; CHUNK_BYTES]);
            let chunks = (0..LARGE_BODY_BYTES / CHUNK_BYTES)
                .map(move |_| Ok::<_, Infallible>(chunk.clone()));
            Body::from_stream(stream::iter(chunks))
        }
        _ => Body::from(Bytes::from_static(&[b'x'; RESPONSE_BYTES])),
    };
    Ok(Response::new(body))
}

fn echo(request: &mut Request<Incoming>) -> Response<Body> {
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else {
            return;
        };
        let (mut read, mut write) = split(TokioIo::new(upgraded));
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, http::HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, http::HeaderValue::from_static("websocket"));
    response
}
