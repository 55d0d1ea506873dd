//! Methods, keys and headers that are wrong.

use hyper::body::Bytes;
use serde_json::json;
use tests::clients::Wire;

use super::{ENDPOINTS, check_unharmed, send};
use crate::stage::{LIMIT, Stage};

#[tokio::test]
async fn every_method_is_answered() {
    let Some(stage) = Stage::set("bad input to standalone") else {
        return;
    };
    let wire = stage.wire();
    let methods = [
        "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW",
    ];
    for (right, path) in ENDPOINTS {
        for method in methods {
            // Whatever a right method would do with these ids is nothing.
            let status = send(&wire, &stage, method, path, Bytes::from_static(b"{}")).await;
            let plain = send(&wire, &stage, right, path, Bytes::from_static(b"{}")).await;
            match method {
                "OPTIONS" => assert_eq!(status, 204, "{path}"),
                "HEAD" if right == "GET" => assert_eq!(status, plain, "{path}"),
                "TRACE" => assert!(status >= 400, "{path}"),
                _ => {}
            }
        }
    }
    check_unharmed(&stage).await;
}

#[tokio::test]
async fn without_its_key_nobody_is_told_anything() {
    let Some(stage) = Stage::set("bad input to standalone") else {
        return;
    };
    let nearly = &stage.key()[1..];
    let with_more = format!("{} x", stage.key());
    let long = "k".repeat(16_000);
    let keys = ["", "wrong", nearly, &with_more, &long, "null", "Bearer x"];
    let mut strangers: Vec<_> = keys.iter().map(|key| Wire::new(key)).collect();
    strangers.push(Wire::with_headers(&[]));
    strangers.push(Wire::with_headers(&[(
        "Authorization",
        &format!("Bearer {}", stage.key()),
    )]));
    for stranger in &strangers {
        for (method, path) in &ENDPOINTS[..9] {
            let body = json!({"session_id": "s", "image": "debian:12"}).to_string();
            let status = send(stranger, &stage, method, path, Bytes::from(body)).await;
            // `/runtime/list` may be unknown to everybody.
            assert!(
                status == 401 || *path == "/runtime/list",
                "{method} {path}: {status}"
            );
        }
        assert_eq!(
            send(stranger, &stage, "GET", "/health", Bytes::new()).await,
            200
        );
    }
    check_unharmed(&stage).await;
}

#[tokio::test]
async fn the_type_that_a_body_is_said_to_have_does_not_matter() {
    let Some(stage) = Stage::set("bad input to standalone") else {
        return;
    };
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "ü/ü",
    ] {
        let wire = Wire::with_headers(&[("X-API-Key", stage.key()), ("Content-Type", kind)]);
        let nothing = Bytes::from_static(b"{\"runtime_id\": null}");
        assert_eq!(
            send(&wire, &stage, "POST", "/stop", nothing).await,
            200,
            "{kind}"
        );
        let hopeless = Bytes::from_static(b"runtime_id=abc");
        assert_eq!(
            send(&wire, &stage, "POST", "/stop", hopeless).await,
            400,
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_sandbox_of_any_odd_name_is_not_found() {
    let Some(stage) = Stage::set("bad input to standalone") else {
        return;
    };
    let anonymous = Wire::with_headers(&[]);
    let host = stage.api().strip_prefix("http://").unwrap();
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
        let reply = anonymous.get(&url, LIMIT).await.unwrap();
        super::check(&format!("GET {url}"), &reply);
        assert!(matches!(reply.status, 401 | 404), "{url}: {}", reply.status);
    }
}
