//! Methods, keys and headers that are wrong.

use serde_json::json;
use tests::clients::HttpClient;

use super::{ENDPOINTS, Offender};
use crate::fixture::{CALL_TIMEOUT, fixture};

#[tokio::test]
async fn every_method_is_answered() {
    let Some(fixture) = fixture() else { return };
    let offender = Offender::new(&fixture);
    for (right, path) in ENDPOINTS {
        // The right method would do nothing with these ids.
        let plain = offender.send(right, path, "{}").await;
        for method in "GET POST PUT PATCH DELETE HEAD OPTIONS TRACE BREW".split(' ') {
            let status = offender.send(method, path, "{}").await;
            match method {
                "OPTIONS" => assert_eq!(status, 204, "{path}"),
                "HEAD" if right == "GET" => assert_eq!(status, plain, "{path}"),
                "TRACE" => assert!(status >= 400, "{path}"),
                _ => {}
            }
        }
    }
    offender.check_unharmed().await;
}

#[tokio::test]
async fn requests_without_valid_key_are_rejected() {
    let Some(fixture) = fixture() else { return };
    let mut offender = Offender::new(&fixture);
    let (key, long) = (fixture.key(), "k".repeat(16_000));
    let (with_more, bearer) = (format!("{key} x"), format!("Bearer {key}"));
    let keys = [
        "",
        "wrong",
        &key[1..],
        &with_more,
        &long,
        "null",
        "Bearer x",
    ];
    let mut strangers: Vec<_> = keys.iter().map(|key| HttpClient::new(key)).collect();
    strangers.push(HttpClient::anonymous());
    strangers.push(HttpClient::with_headers(&[("Authorization", &bearer)]));
    let body = json!({"session_id": "s", "image": "debian:12"}).to_string();
    for stranger in strangers {
        offender.wire = stranger;
        for (method, path) in &ENDPOINTS[..9] {
            let status = offender.send(method, path, body.clone()).await;
            // `/runtime/list` may be unknown to all.
            let refused = status == 401 || *path == "/runtime/list";
            assert!(refused, "{method} {path}: {status}");
        }
        offender.gets(&[200], "GET", "/health", "").await;
    }
    offender.check_unharmed().await;
}

#[tokio::test]
async fn content_type_is_ignored() {
    let Some(fixture) = fixture() else { return };
    let mut offender = Offender::new(&fixture);
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "ü/ü",
    ] {
        let headers = [("X-API-Key", fixture.key()), ("Content-Type", kind)];
        offender.wire = HttpClient::with_headers(&headers);
        offender
            .gets(&[200], "POST", "/stop", "{\"runtime_id\": null}")
            .await;
        offender
            .gets(&[400], "POST", "/stop", "runtime_id=abc")
            .await;
    }
}

#[tokio::test]
async fn unknown_sandbox_hosts_and_paths_are_not_found() {
    let Some(fixture) = fixture() else { return };
    let host = fixture.api().strip_prefix("http://").unwrap();
    let (id, upper) = ("kqzvbnwmxatyploe", "KQZVBNWMXATYPLOE");
    for url in [
        format!("http://{id}.{host}/alive"),
        format!("http://vscode-{id}.{host}/"),
        format!("http://nothing-{id}.{host}/"),
        format!("http://{host}/{id}/runtime/alive"),
        format!("http://{host}/{id}/nothing/alive"),
        format!("http://{host}/{id}/"),
        format!("http://{host}/{id}"),
        format!("http://{host}//{id}//runtime"),
        format!("http://x.{id}.{host}/alive"),
        format!("http://{upper}.{host}/alive"),
    ] {
        let reply = HttpClient::anonymous().try_get(&url, CALL_TIMEOUT).await;
        let reply = reply.unwrap();
        super::check(&format!("GET {url}"), &reply);
        assert!(matches!(reply.status, 401 | 404), "{url}: {}", reply.status);
    }
}
