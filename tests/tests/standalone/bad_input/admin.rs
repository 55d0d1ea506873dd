//! Malformed and unauthorized requests to the admin API.

use hyper::body::Bytes;
use serde_json::{Value, json};
use tests::clients::{Admin, HttpClient};

use super::{check_unharmed, send};
use crate::replay_admin::{PASSWORD, administered};

const CONFIG: &str = "/api/admin/warm-runtime-configs/a";

/// Fields of a config and values that they cannot have.
fn impossible() -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("image", Value::Null),
        ("image", json!("")),
        ("image", json!("x".repeat(5000))),
        ("environment", json!({"": "x"})),
        ("environment", json!({"A=B": "x"})),
        ("environment", json!({"A": "\u{0}"})),
        ("environment", json!({"A": 1})),
        ("working_dir", json!("not/absolute")),
        ("fuse_s3_mount", json!(true)),
        ("count", json!(1_000_000_000)),
    ];
    for field in ["run_as_user", "run_as_group", "fs_group", "count"] {
        let values = [
            json!("x"),
            json!(1.5),
            json!(-1),
            json!([]),
            json!(u64::MAX),
        ];
        all.extend(values.map(|value| (field, value)));
    }
    for field in ["image", "command", "environment", "working_dir"] {
        all.extend([json!(7), json!(true), json!([7])].map(|value| (field, value)));
    }
    all
}

#[tokio::test]
async fn a_config_that_cannot_be_is_refused() {
    let Some(fixture) = administered() else { return };
    let mut tool = Admin::new(fixture.api());
    tool.log_in(PASSWORD).await.unwrap();
    let good = json!({"image": "debian:12", "command": ["true"], "working_dir": "/workspace"});
    for (field, value) in impossible() {
        let mut config = good.clone();
        config[field] = value.clone();
        let body = Bytes::from(config.to_string());
        let status = send(&tool.wire, &fixture, "PUT", CONFIG, body).await;
        let shown: String = value.to_string().chars().take(60).collect();
        assert_eq!(status, 400, "{field} of {shown}");
    }
    for body in ["", "null", "[]", "{", "{}", "\"a\"", "\u{fffd}"] {
        let status = send(&tool.wire, &fixture, "PUT", CONFIG, Bytes::from(body)).await;
        assert_eq!(status, 400, "{body}");
    }
    for name in ["%00", "a%0Ab", &"x".repeat(129), "%ff"] {
        let path = format!("/api/admin/warm-runtime-configs/{name}");
        let body = Bytes::from(good.to_string());
        assert_eq!(
            send(&tool.wire, &fixture, "PUT", &path, body).await,
            400,
            "{name}"
        );
        let status = send(&tool.wire, &fixture, "DELETE", &path, Bytes::new()).await;
        assert!(matches!(status, 400 | 404), "{name}: {status}");
    }
    // Odd, and allowed.
    for name in ["v1_current", "a%2Fb", "a/b", "..", "%C3%BC", "a%20b"] {
        let path = format!("/api/admin/warm-runtime-configs/{name}");
        let body = Bytes::from(good.to_string());
        assert_eq!(
            send(&tool.wire, &fixture, "PUT", &path, body).await,
            200,
            "{name}"
        );
        let status = send(&tool.wire, &fixture, "DELETE", &path, Bytes::new()).await;
        assert_eq!(status, 200, "{name}");
    }
    check_unharmed(&fixture).await;
}

#[tokio::test]
async fn a_login_that_is_none_is_refused() {
    let Some(fixture) = administered() else { return };
    let anonymous = HttpClient::anonymous();
    let long = "a".repeat(1 << 20);
    for body in [
        json!({}),
        json!([]),
        json!({"challenge": 7, "hash": "00"}),
        json!({"challenge": "x", "hash": null}),
        json!({"challenge": "x", "hash": "00"}),
        json!({"challenge": "\u{0}", "hash": "zz"}),
        json!({"challenge": "ü.ü.ü", "hash": "ü"}),
        json!({"challenge": long, "hash": long}),
    ] {
        let body = Bytes::from(body.to_string());
        let status = send(&anonymous, &fixture, "POST", "/api/admin/login", body).await;
        assert!(matches!(status, 400 | 413), "{status}");
    }
    let tokens = [
        "",
        "x",
        "a.b.c",
        "e30.e30.e30",
        "....",
        &"a".repeat(16_000),
        fixture.key(),
    ];
    for token in tokens {
        let bearer = format!("Bearer {token}");
        let stranger = HttpClient::with_headers(&[("Authorization", &bearer)]);
        for (method, path) in [
            ("PUT", CONFIG),
            ("DELETE", CONFIG),
            ("GET", "/api/admin/api-keys"),
        ] {
            let status = send(&stranger, &fixture, method, path, Bytes::from_static(b"{}")).await;
            assert_eq!(status, 401, "{method} {path}");
        }
    }
    check_unharmed(&fixture).await;
}
