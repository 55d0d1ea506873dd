//! Ids that are none, paths that lead nowhere, and slashes too many.

use hyper::body::Bytes;
use serde_json::json;

use super::{ENDPOINTS, check_unharmed, send};
use crate::fixture::{CALL_TIMEOUT, Fixture, fixture};

/// Ids as they stand in a path or in a query.
fn ids() -> Vec<String> {
    let odd = [
        "rt_123456",
        "2xQbT9mWc0LrZkVn7YpA4e",
        "None",
        "null",
        "-",
        "*",
        ".",
        "..",
        "%2e%2e",
        "%2F",
        "a%2Fb",
        "%00",
        "%FF%FE",
        "%ff",
        "%",
        "%zz",
        "a%20b",
        "%C3%BC",
        ";",
        "a;b=c",
        "a:b",
        "@",
        "kqzvbnwmxatyplo",
        "kqzvbnwmxatyploee",
        "KQZVBNWMXATYPLOE",
        "'%22%3Cscript%3E",
        "$(id)",
        "+",
        "a+b",
        "~",
        "!",
        "a,b",
        "a=b",
        "%25",
        "%0d%0aX-Evil:1",
    ];
    let mut all: Vec<_> = odd.map(ToOwned::to_owned).into();
    all.extend([255, 256, 257, 8000].map(|length| "a".repeat(length)));
    all.push("%C3%BC".repeat(128));
    all
}

#[tokio::test]
async fn odd_ids_are_unknown_and_nothing_worse() {
    let Some(fixture) = fixture() else { return };
    let wire = fixture.wire();
    let empty = Bytes::new;
    for id in ids() {
        for path in [format!("/runtime/{id}"), format!("/sessions/{id}")] {
            let status = send(&wire, &fixture, "GET", &path, empty()).await;
            assert!(matches!(status, 400 | 404), "{path}: {status}");
        }
        for query in [
            "/sessions/batch?ids=",
            "/image_exists?image=",
            "/build_status?build_id=",
        ] {
            send(&wire, &fixture, "GET", &format!("{query}{id}"), empty()).await;
        }
        for method in ["PUT", "DELETE"] {
            let path = format!("/api/admin/warm-runtime-configs/{id}");
            send(&wire, &fixture, method, &path, Bytes::from_static(b"{}")).await;
        }
    }
    check_unharmed(&fixture).await;
}

#[tokio::test]
async fn slashes_too_many_and_paths_of_nothing() {
    let Some(fixture) = fixture() else { return };
    let wire = fixture.wire();
    for (method, path) in ENDPOINTS {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let plain = send(
            &wire,
            &fixture,
            method,
            &format!("{path}?{query}"),
            Bytes::new(),
        )
        .await;
        for more in [
            format!("/{path}"),
            format!("///{path}"),
            format!("{path}/"),
            format!("/{path}//"),
        ] {
            let answered = send(
                &wire,
                &fixture,
                method,
                &format!("{more}?{query}"),
                Bytes::new(),
            )
            .await;
            assert_eq!(answered, plain, "{method} {more}");
        }
    }
    let nowhere = [
        "/nowhere",
        "/start/more",
        "/sessions",
        "/runtime",
        "/sessions/a/b/c",
        "/runtime/a/b",
        "/api",
        "/api/admin",
        "/../list",
        "/./list",
        "/%6cist",
        "/list%2F",
        "/list;a",
        "/LIST",
        "/favicon.ico",
        "/.env",
        "/metrics/x",
        "/?a=b",
        "/list?%",
        "/list?=&&=",
    ];
    for path in nowhere {
        send(&wire, &fixture, "GET", path, Bytes::new()).await;
    }
    check_unharmed(&fixture).await;
}

#[tokio::test]
async fn a_session_of_any_name_up_to_256_bytes_can_be_started_and_found() {
    let Some(fixture) = fixture() else { return };
    let wire = fixture.wire();
    let names = [
        ("rt_123456", "rt_123456"),
        ("2xQbT9mWc0LrZkVn7YpA4e", "2xQbT9mWc0LrZkVn7YpA4e"),
        ("None", "None"),
        ("astropy__astropy-12907", "astropy__astropy-12907"),
        ("a b/ü?#%", "a%20b%2F%C3%BC%3F%23%25"),
        ("..", "%2e%2e"),
        (&"x".repeat(256), &"x".repeat(256)),
    ];
    for (name, encoded) in names {
        let body = json!({"session_id": name, "image": "debian:12", "command": ["sleep", "60"]});
        let (status, started) = fixture.post("start", &body).await;
        assert_eq!(status, 201, "{name}: {started}");
        for path in [
            format!("/sessions/{encoded}"),
            format!("/sessions/batch?ids={encoded}"),
        ] {
            let url = format!("{}{path}", fixture.api());
            let found = wire.get(&url).await.success();
            let found = found.get(0).unwrap_or(&found);
            assert_eq!(found["session_id"], name);
            assert_eq!(found["runtime_id"], started["runtime_id"]);
        }
    }
}
