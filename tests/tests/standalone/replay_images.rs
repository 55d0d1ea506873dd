//! V0 without an image of its own (`docs/specs/runtime-api.md`, sections 1.10 and 3.2, step 3), at a server that builds none.

use http::Method;
use hyper::body::Bytes;
use serde_json::json;
use tests::clients::{ClientException, HttpClient};

use crate::fixture::{CALL_TIMEOUT, connected, fixture, fixture_with};

/// A build context as it is sent: tens of MiB.
const CONTEXT: usize = 40 << 20;

#[tokio::test]
async fn unnamed_image_is_assumed_to_exist_and_started() {
    let prefix = ["--registry-prefix", "registry.example.com/agents/"];
    let args = [&["--url-form", "nested"], &prefix[..]].concat();
    let Some(fixture) = fixture_with(&args) else {
        return;
    };
    let mut config = fixture.v0("s");
    config.image = None;
    let mut client = connected(config).await;
    assert_eq!(client.run("echo here").await.unwrap(), "here");
    let image = "registry.example.com/agents/runtime:oh_v0.62.0_source";
    let calls = client.wire.calls();
    let expected = [
        "GET /sessions/s 404".to_owned(),
        "GET /registry_prefix 200".to_owned(),
        format!("GET /image_exists?image={image} 200"),
        "POST /start 201".to_owned(),
    ];
    assert_eq!(calls[..4], expected);
    let id = client.id();
    let stored = fixture.kubectl(&format!("get sbx {id} -o jsonpath={{.spec.image}}"));
    assert_eq!(stored, image);
    client.close().await.unwrap();
}

#[tokio::test]
async fn build_is_rejected_with_a_detail_after_the_whole_upload() {
    let Some(fixture) = fixture() else { return };
    let form = "multipart/form-data; boundary=b";
    let wire = HttpClient::with_headers(&[("X-API-Key", fixture.key()), ("Content-Type", form)]);
    let head = "--b\r\nContent-Disposition: form-data; name=\"context\"; \
        filename=\"context.tar.gz\"\r\n\r\n";
    let end = "\r\n--b\r\nContent-Disposition: form-data; name=\"target_image\"\r\n\r\n\
        registry.example.com/agents/runtime:x\r\n--b--\r\n";
    let body = [head.as_bytes(), &vec![b'A'; CONTEXT], end.as_bytes()].concat();
    let url = format!("{}/build", fixture.api());
    let build = wire.send(Method::POST, &url, Bytes::from(body), CALL_TIMEOUT);
    let ClientException::Http { status, detail } = build.await.unwrap().error() else {
        panic!("no answer of HTTP");
    };
    assert_eq!(status, 501);
    // It is told what to do instead.
    assert!(detail.is_some_and(|detail| detail.contains("runtime_container_image")));
    let unknown = wire.get(&format!("{url}_status?build_id=1")).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body["detail"].is_string());
    // A stranger is not even listened to, and is told so all the same.
    let stranger = HttpClient::new("wrong");
    let body = json!({"context": "A".repeat(CONTEXT)}).to_string();
    let refused = stranger.send(Method::POST, &url, body.into(), CALL_TIMEOUT);
    assert_eq!(refused.await.unwrap().status, 401);
}
