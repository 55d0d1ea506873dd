//! The port, over a socket.

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::kubernetes::health::Trouble;

async fn get(vitals: &Vitals, path: &str) -> (u16, String) {
    let answer = respond(&Method::GET, path, vitals);
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn readiness_names_what_is_missing() {
    let vitals = Vitals::default();
    let ready = (200, "ready\n".to_owned());
    assert_eq!(get(&vitals, "/readyz").await, ready);
    vitals
        .health
        .begin("sandboxes", "sandboxes.openhands.dev".into());
    vitals.health.failed("sandboxes", Trouble::NotInstalled);
    vitals.health.lacks("root key", "no root key".into());
    let (status, text) = get(&vitals, "/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(
        text,
        "no root key\nCRD sandboxes.openhands.dev is not installed\n"
    );
    // None of this is mended by a restart.
    assert_eq!(get(&vitals, "/livez").await, (200, "alive\n".into()));
    vitals.health.heard("sandboxes");
    vitals.health.listed("sandboxes");
    vitals.health.has("root key");
    assert_eq!(get(&vitals, "/readyz").await, ready);
}

#[tokio::test]
async fn liveness_names_what_is_stuck() {
    let vitals = Vitals::default();
    vitals.health.check(|| Some("stuck".into()));
    assert_eq!(get(&vitals, "/livez").await, (503, "stuck\n".into()));
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let vitals = Vitals::default();
    assert_eq!(get(&vitals, "/").await.0, 404);
    assert_eq!(respond(&Method::POST, "/livez", &vitals).status(), 405);
}

#[tokio::test]
async fn it_is_served_until_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let served = tokio::spawn(serve(listener, Arc::default(), shutdown.clone()));
    for (path, expected) in [("/livez", "alive"), ("/metrics", "# EOF")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(expected), "{answer}");
    }
    shutdown.cancel();
    served.await.unwrap();
}
