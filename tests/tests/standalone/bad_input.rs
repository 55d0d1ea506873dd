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

use crate::fixture::{CALL_TIMEOUT, Fixture};

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

/// A sender of bad requests, to an installation that takes no harm.
struct Offender<'a> {
    fixture: &'a Fixture,
    wire: HttpClient,
}

impl<'a> Offender<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        let wire = fixture.wire();
        Self { fixture, wire }
    }

    /// Sends a request, checks the answer, which comes however large the body is, and gives its status.
    async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> u16 {
        let (body, url) = (body.into(), self.fixture.url(path));
        let shown: String = path.chars().take(200).collect();
        let what = format!("{method} {shown} with {} bytes", body.len());
        let method: Method = method.parse().unwrap();
        let reply = self.wire.send(method, &url, body, CALL_TIMEOUT).await;
        let reply = reply.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        check(&what, &reply);
        reply.status
    }

    /// As [`Offender::send`], for one of several statuses.
    async fn gets(&self, statuses: &[u16], method: &str, path: &str, body: impl Into<Bytes>) {
        let body = body.into();
        let shown = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
        let status = self.send(method, path, body).await;
        assert!(
            statuses.contains(&status),
            "{method} {path} {shown}: {status}"
        );
    }

    /// The installation has taken no harm, and has no sandbox.
    async fn check_unharmed(self) {
        assert_eq!(self.fixture.get("/list").await["total"], 0);
        self.fixture.get("/health").await;
        assert_eq!(self.fixture.kubectl("get sbx -o name"), "");
    }
}

/// Fails at anything that breaks a client.
fn check(
    what: &str,
    Reply {
        status,
        headers,
        body,
    }: &Reply,
) {
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
