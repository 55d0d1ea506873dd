//! The transport: keys, origins, invalid messages, and the id of a session.

use std::collections::HashSet;

use axum::body::Body;
use http::{Request, StatusCode};
use operator::gateway::ApiSettings;
use serde_json::{Value, json};

use crate::support::gateway_fixture::{GatewayFixture, KEY, read};
use crate::support::mcp_client::{bare_post, message, post};
use testing::FakeApi;

fn initialize(version: &str) -> Value {
    let client = json!({"name": "test", "version": "1"});
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client})
}

#[tokio::test]
async fn request_without_a_valid_key_gets_a_bearer_challenge() {
    let fixture = GatewayFixture::new();
    for (name, value) in [
        ("x-other", "1"),
        ("x-api-key", "wrong"),
        ("authorization", "Bearer wrong"),
        ("authorization", "Basic dGVuYW50LWtleTo="),
    ] {
        let request = bare_post().header(name, value);
        let response = fixture
            .send(request.body(message("ping", &json!({}))).unwrap())
            .await;
        assert_eq!(
            response.headers()["www-authenticate"],
            "Bearer",
            "{name}: {value}"
        );
        let (status, body) = read(response).await;
        assert_eq!(status, 401);
        assert!(body["detail"].is_string(), "{body}");
    }
}

#[tokio::test]
async fn key_is_accepted_in_either_header() {
    let fixture = GatewayFixture::new();
    let bearer = format!("bearer {KEY}");
    for (name, value) in [("x-api-key", KEY), ("authorization", &bearer)] {
        let request = bare_post().header(name, value);
        let request = request.body(message("tools/list", &json!({}))).unwrap();
        let (status, body) = read(fixture.send(request).await).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["result"]["tools"].as_array().unwrap().len(), 14);
    }
}

#[tokio::test]
async fn initialize_answers_a_supported_version_and_names_the_session() {
    let fixture = GatewayFixture::new();
    let mut sessions = HashSet::new();
    for (offered, chosen) in [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2025-03-26", "2025-11-25"),
    ] {
        let request = post()
            .body(message("initialize", &initialize(offered)))
            .unwrap();
        let response = fixture.send(request).await;
        let session = response.headers()["mcp-session-id"].to_str().unwrap();
        assert!(sessions.insert(session.to_owned()), "{session}");
        let (status, body) = read(response).await;
        assert_eq!(status, 200, "{body}");
        let result = &body["result"];
        assert_eq!(result["protocolVersion"], chosen, "{offered}");
        assert_eq!(result["capabilities"], json!({"tools": {}}));
        assert_eq!(result["serverInfo"]["name"], "sandbox-operator");
        assert!(result["instructions"].as_str().unwrap().contains("create"));
    }
}

#[tokio::test]
async fn another_replica_answers_without_initialize() {
    let (status, body) = GatewayFixture::new().mcp("ping", &json!({})).await;
    assert_eq!((status, &body["result"]), (200, &json!({})));
    let (status, body) = GatewayFixture::new().mcp("no/such", &json!({})).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (200, &json!(-32601)),
        "{body}"
    );
}

#[tokio::test]
async fn notification_is_accepted_without_an_answer() {
    let fixture = GatewayFixture::new();
    for method in ["notifications/initialized", "notifications/cancelled"] {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}});
        let request = post().body(Body::from(body.to_string())).unwrap();
        let (status, body) = read(fixture.send(request).await).await;
        assert_eq!((status, body), (202, Value::Null), "{method}");
    }
}

#[tokio::test]
async fn body_that_is_no_message_is_a_json_rpc_error() {
    let fixture = GatewayFixture::new();
    for (body, code) in [
        ("", -32700),
        ("{\"jsonrpc\"", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]"#, -32600),
        ("7", -32600),
        (r#"{"id": 1, "method": "ping"}"#, -32600),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "ping"}"#, -32600),
    ] {
        let request = post().body(Body::from(body)).unwrap();
        let (status, answer) = read(fixture.send(request).await).await;
        assert_eq!(status, 400, "{body}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
    }
    let deep = "[".repeat(100_000);
    let request = post().body(Body::from(deep)).unwrap();
    assert_eq!(
        fixture.send(request).await.status(),
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn bad_http_gets_the_error_body_of_the_api() {
    let fixture = GatewayFixture::new();
    let with = |request: http::request::Builder| request.header("x-api-key", KEY);
    let ping = || message("ping", &json!({}));
    let plain = || Request::post("/mcp").header("host", "a");
    let large = Body::from(vec![b' '; (2 << 20) + 1]);
    for (request, expected) in [
        (
            with(Request::get("/mcp").header("host", "a")).body(Body::empty()),
            405,
        ),
        (
            with(Request::delete("/mcp").header("host", "a")).body(Body::empty()),
            405,
        ),
        (
            with(plain())
                .header("accept", "application/json")
                .body(ping()),
            406,
        ),
        (
            with(plain())
                .header("accept", "application/json, text/event-stream")
                .header("content-type", "text/plain")
                .body(ping()),
            415,
        ),
        (post().body(large), 413),
    ] {
        let (status, body) = read(fixture.send(request.unwrap()).await).await;
        assert_eq!(status, expected, "{body}");
        assert!(
            body["detail"].as_str().is_some_and(|text| !text.is_empty()),
            "{body}"
        );
    }
}

#[tokio::test]
async fn page_of_another_origin_is_rejected() {
    let fixture = GatewayFixture::new();
    for (origin, expected) in [
        ("https://rt.example.com", 200),
        ("http://rt.example.com", 403),
        ("https://rt.example.com:444", 403),
        ("https://evil.example", 403),
        ("http://api.example.com", 403),
        ("null", 403),
    ] {
        let request = post().header("origin", origin);
        let request = request.body(message("ping", &json!({}))).unwrap();
        let (status, body) = read(fixture.send(request).await).await;
        assert_eq!(status, expected, "{origin}: {body}");
    }
}

#[tokio::test]
async fn path_is_unknown_when_the_endpoint_is_off() {
    let settings = ApiSettings {
        mcp: false,
        ..ApiSettings::default()
    };
    let fixture = GatewayFixture::of(&FakeApi::default(), settings);
    let (status, body) = fixture.mcp("ping", &json!({})).await;
    assert_eq!((status, &body["detail"]), (404, &json!("no such path")));
}
