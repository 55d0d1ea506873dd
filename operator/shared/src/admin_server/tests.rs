//! Tests of the admin server.

use std::net::SocketAddr;

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::kubernetes::health::WatchFailure;

/// Sends a request to the server and returns the whole answer.
async fn exchange(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

async fn get(diagnostics: &Diagnostics, path: &str) -> (u16, String) {
    let answer = respond(&Request::get(path).body(()).unwrap(), diagnostics);
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Value of the metric that says what `/readyz` says.
async fn ready_metric(diagnostics: &Diagnostics) -> String {
    let (_, text) = get(diagnostics, "/metrics").await;
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("sandbox_operator_ready "));
    values.next().unwrap().to_owned()
}

#[tokio::test]
async fn readyz_lists_failed_checks() {
    let diagnostics = Diagnostics::default();
    let ready = (200, "ready\n".to_owned());
    assert_eq!(get(&diagnostics, "/readyz").await, ready);
    let health = &diagnostics.health;
    health.add_watch("sandboxes", "sandboxes.openhands.dev".into());
    let unlisted = "sandboxes have not been listed yet\n".to_owned();
    assert_eq!(get(&diagnostics, "/readyz").await, (503, unlisted));
    health.add_watch("pods", "pods".into());
    health.watch_failed("sandboxes", WatchFailure::NotInstalled);
    health.watch_failed("pods", WatchFailure::Forbidden("pods is forbidden".into()));
    health.set_unmet("root key", "no root key".into());
    let failures = "no root key\npermission denied: list pods: pods is forbidden\n\
                    CRD sandboxes.openhands.dev is not installed\n";
    let answer = get(&diagnostics, "/readyz").await;
    assert_eq!(answer, (503, failures.to_owned()));
    assert_eq!(ready_metric(&diagnostics).await, "0");
    // A restart would not help, so liveness passes.
    assert_eq!(get(&diagnostics, "/livez").await, (200, "alive\n".into()));
    for resource in ["pods", "sandboxes"] {
        health.watch_heard(resource);
        health.watch_listed(resource);
    }
    health.clear_unmet("root key");
    assert_eq!(get(&diagnostics, "/readyz").await, ready);
    assert_eq!(ready_metric(&diagnostics).await, "1");
}

#[tokio::test]
async fn livez_lists_stuck_tasks() {
    let diagnostics = Diagnostics::default();
    diagnostics
        .health
        .add_liveness_check(|| Some("stuck".into()));
    assert_eq!(get(&diagnostics, "/livez").await, (503, "stuck\n".into()));
}

#[tokio::test]
async fn rejects_other_paths_and_methods() {
    let diagnostics = Diagnostics::default();
    assert_eq!(get(&diagnostics, "/").await.0, 404);
    assert_eq!(get(&diagnostics, "/traffic/ns/name").await.0, 404);
    let post = Request::post("/livez").body(()).unwrap();
    assert_eq!(respond(&post, &diagnostics).status(), 405);
}

#[tokio::test]
async fn admin_server_serves_until_shutdown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let served = tokio::spawn(serve(listener, Arc::default(), shutdown.clone()));
    for (path, expected) in [("/livez", "alive"), ("/metrics", "# EOF")] {
        let answer = exchange(address, path).await;
        assert!(answer.contains(expected), "{answer}");
    }
    // Clients that send nothing do not keep a probe out.
    let mut silent = Vec::new();
    for _ in 0..2 * MAX_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    exchange(address, "/livez").await;
    drop(silent);
    shutdown.cancel();
    served.await.unwrap();
}
