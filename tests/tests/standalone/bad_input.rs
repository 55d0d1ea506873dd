//! Responses of the runtime API to bad requests, for every endpoint: never a 5xx or a redirect, always
//! an object with `detail` (`docs/specs/runtime-api.md`, sections 0.4 and 1.1).

mod admin;
mod bodies;
mod paths;
mod requests;

use http::Method;
use hyper::body::Bytes;
use serde_json::Value;
use tests::clients::{HttpClient, Reply};

use crate::fixture::{CALL_TIMEOUT, Fixture, fixture};

/// Every endpoint of the API (`docs/specs/runtime-api.md`, section 1.2), with an id where one belongs.
const ENDPOINTS: [(&str, &str); 21] = [
    ("POST", "/start"),
    ("POST", "/stop"),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("GET", "/runtime/kqzvbnwmxatyploe"),
    ("GET", "/sessions/nobody"),
    ("GET", "/sessions/batch?ids=a&ids=b"),
    ("GET", "/list"),
    ("GET", "/runtime/list"),
    ("GET", "/registry_prefix"),
    ("GET", "/image_exists?image=a"),
    ("POST", "/build"),
    ("GET", "/build_status?build_id=1"),
    ("GET", "/api/warm-runtime-configs"),
    ("PUT", "/api/admin/warm-runtime-configs/a"),
    ("DELETE", "/api/admin/warm-runtime-configs/a"),
    ("GET", "/api/admin/challenge"),
    ("POST", "/api/admin/login"),
    ("GET", "/api/admin/api-keys"),
    ("GET", "/health"),
    ("GET", "/"),
];

/// Statuses that no client understands, or that are forbidden.
const FORBIDDEN: [u16; 4] = [402, 409, 422, 429];

/// Fails at anything that breaks a client.
fn check(what: &str, reply: &Reply) {
    let Reply {
        status,
        headers,
        body,
    } = reply;
    let text = String::from_utf8_lossy(&body[..body.len().min(300)]);
    let context = format!("{what}: {status} {text}");
    // The one that is allowed to say that it cannot (`docs/specs/runtime-api.md`, section 1.10).
    let no_builder = *status == 501 && what.contains("/build");
    assert!(*status < 500 || no_builder, "{context}");
    assert!(!(300..400).contains(status), "{context}");
    assert!(!FORBIDDEN.contains(status), "{context}");
    assert!(!headers.contains_key("set-cookie"), "{context}");
    if *status >= 400 && !what.starts_with("HEAD ") {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let detail = body["detail"].as_str();
        assert!(detail.is_some_and(|d| !d.is_empty()), "{context}");
        assert_eq!(headers["content-type"], "application/json", "{context}");
    }
}

/// Sends a request, checks the answer, which comes however large the body is, and gives its status.
async fn send(wire: &HttpClient, fixture: &Fixture, method: &str, path: &str, body: Bytes) -> u16 {
    let url = format!("{}{path}", fixture.api());
    let size = body.len();
    let method: Method = method.parse().unwrap();
    let reply = wire.send(method.clone(), &url, body, CALL_TIMEOUT).await;
    let shown: String = path.chars().take(200).collect();
    let what = format!("{method} {shown} with {size} bytes");
    let reply = reply.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    check(&what, &reply);
    reply.status
}

/// The installation has taken no harm, and has no sandbox.
async fn check_unharmed(fixture: &Fixture) {
    let wire = fixture.wire();
    let url = |path: &str| format!("{}{path}", fixture.api());
    let list = wire.try_get(&url("/list"), CALL_TIMEOUT).await.unwrap();
    assert_eq!(list.success().unwrap()["total"], 0);
    assert_eq!(
        wire.get(&url("/health")).await.status,
        200
    );
    let made = fixture
        .standalone
        .run("kubectl", &["get", "sbx", "-o", "name"]);
    assert_eq!(made, "");
}
