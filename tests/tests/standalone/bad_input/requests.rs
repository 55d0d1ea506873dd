//! Methods, keys and headers that are wrong.

use hyper::body::Bytes;
use serde_json::json;
use tests::clients::HttpClient;

use super::{ENDPOINTS, check_unharmed, send};
use crate::fixture::{CALL_TIMEOUT, Fixture, fixture};

#[tokio::test]
async fn every_method_is_answered() {
    let Some(fixture) = fixture() else { return };
    let wire = fixture.wire();
    let methods = [
        "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW",
    ];
    for (right, path) in ENDPOINTS {
        for method in methods {
            // The right method would do nothing with these ids.
            let status = send(&wire, &fixture, method, path, Bytes::from_static(b"{}")).await;
            let plain = send(&wire, &fixture, right, path, Bytes::from_static(b"{}")).await;
            match method {
                "OPTIONS" => assert_eq!(status, 204, "{path}"),
                "HEAD" if right == "GET" => assert_eq!(status, plain, "{path}"),
                "TRACE" => assert!(status >= 400, "{path}"),
                _ => {}
            }
        }
    }
    check_unharmed(&fixture).await;
}

#[tokio::test]
async fn without_its_key_nobody_is_told_anything() {
    let Some(fixture) = fixture() else { return };
    let nearly = &fixture.key()[1..];
    let with_more = format!("{} x", fixture.key());
    let long = "k".repeat(16_000);
    let keys = ["", "wrong", nearly, &with_more, &long, "null", "Bearer x"];
    let mut strangers: Vec<_> = keys.iter().map(|key| HttpClient::new(key)).collect();
    strangers.push(HttpClient::anonymous());
    strangers.push(HttpClient::with_headers(&[(
        "Authorization",
        &format!("Bearer {}", fixture.key()),
    )]));
    for stranger in &strangers {
        for (method, path) in &ENDPOINTS[..9] {
            let body = json!({"session_id": "s", "image": "debian:12"}).to_string();
            let status = send(stranger, &fixture, method, path, Bytes::from(body)).await;
            // `/runtime/list` may be unknown to all.
            assert!(
                status == 401 || *path == "/runtime/list",
                "{method} {path}: {status}"
            );
        }
        assert_eq!(
            send(stranger, &fixture, "GET", "/health", Bytes::new()).await,
            200
        );
    }
    check_unharmed(&fixture).await;
}

#[tokio::test]
async fn the_type_that_a_body_is_said_to_have_does_not_matter() {
    let Some(fixture) = fixture() else { return };
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "ü/ü",
    ] {
        let wire =
            HttpClient::with_headers(&[("X-API-Key", fixture.key()), ("Content-Type", kind)]);
        let nothing = Bytes::from_static(b"{\"runtime_id\": null}");
        assert_eq!(
            send(&wire, &fixture, "POST", "/stop", nothing).await,
            200,
            "{kind}"
        );
        let hopeless = Bytes::from_static(b"runtime_id=abc");
        assert_eq!(
            send(&wire, &fixture, "POST", "/stop", hopeless).await,
            400,
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_sandbox_of_any_odd_name_is_not_found() {
    let Some(fixture) = fixture() else { return };
    let anonymous = HttpClient::anonymous();
    let host = fixture.api().strip_prefix("http://").unwrap();
    let id = "kqzvbnwmxatyploe";
    let urls = [
        format!("http://{id}.{host}/alive"),
        format!("http://vscode-{id}.{host}/"),
        format!("http://nothing-{id}.{host}/"),
        format!("http://{host}/{id}/runtime/alive"),
        format!("http://{host}/{id}/nothing/alive"),
        format!("http://{host}/{id}/"),
        format!("http://{host}/{id}"),
        format!("http://{host}//{id}//runtime"),
        format!("http://x.{id}.{host}/alive"),
        format!("http://{}.{host}/alive", id.to_uppercase()),
    ];
    for url in urls {
        let reply = anonymous.try_get(&url, CALL_TIMEOUT).await.unwrap();
        super::check(&format!("GET {url}"), &reply);
        assert!(matches!(reply.status, 401 | 404), "{url}: {}", reply.status);
    }
}
