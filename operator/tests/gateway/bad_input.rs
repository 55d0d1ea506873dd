//! Responses of the runtime API to bad requests, for every endpoint: never a 5xx or a redirect, always
//! an object with `detail` (`docs/specs/runtime-api.md`, sections 0.4 and 1.1).

use axum::body::Body;
use http::{HeaderMap, Request};
use operator::gateway::Tenants;
use serde_json::json;

use crate::support::gateway_fixture::{GatewayFixture, KEY, config, read};

/// Every endpoint of the API (`docs/specs/runtime-api.md`, section 1.2), with an id where one belongs.
const ENDPOINTS: [(&str, &str); 22] = [
    ("POST", "/start"),
    ("POST", "/stop"),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("GET", "/runtime/kqzvbnwmxatyploe"),
    ("GET", "/sessions/unknown"),
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
    ("GET", "/usage"),
    ("GET", "/health"),
    ("GET", "/"),
];

/// Statuses that no client understands, or that are forbidden.
const FORBIDDEN: [u16; 4] = [402, 409, 422, 429];

/// A sender of bad requests, to an installation that takes no harm.
struct Offender(GatewayFixture);

impl Offender {
    fn new() -> Self {
        Self(GatewayFixture::new())
    }

    /// Sends a request, checks the response, and gives its status.
    async fn send_with(
        &self,
        header: (&str, &str),
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> u16 {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "api.example.com");
        let request = request.header(header.0, header.1).body(body.into());
        let response = self.0.send(request.unwrap()).await;
        let headers = response.headers().clone();
        let what = format!("{method} {}", path.chars().take(200).collect::<String>());
        let (status, body) = match method {
            "HEAD" => (response.status().as_u16(), json!({"detail": "none"})),
            _ => read(response).await,
        };
        check(&what, status, &headers, body["detail"].as_str());
        status
    }

    async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> u16 {
        self.send_with(("x-api-key", KEY), method, path, body).await
    }

    /// As [`Offender::send`], for one of several statuses.
    async fn gets(&self, statuses: &[u16], method: &str, path: &str, body: &str) {
        let status = self.send(method, path, body.to_owned()).await;
        assert!(
            statuses.contains(&status),
            "{method} {path} {body}: {status}"
        );
    }
}

impl Drop for Offender {
    /// The installation has no sandbox.
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.0.api.objects().is_empty());
    }
}

/// Fails at anything that breaks a client.
fn check(what: &str, status: u16, headers: &HeaderMap, detail: Option<&str>) {
    let context = format!("{what}: {status} {detail:?}");
    // The one that is allowed to say that it cannot (`docs/specs/runtime-api.md`, section 1.10).
    let no_builder = status == 501 && what.contains("/build");
    assert!(status < 500 || no_builder, "{context}");
    assert!(!(300..400).contains(&status), "{context}");
    assert!(!FORBIDDEN.contains(&status), "{context}");
    assert!(!headers.contains_key("set-cookie"), "{context}");
    if status >= 400 {
        assert!(detail.is_some_and(|d| !d.is_empty()), "{context}");
        assert_eq!(headers["content-type"], "application/json", "{context}");
    }
}

/// Bodies out of which no endpoint can make anything.
fn hopeless() -> Vec<Vec<u8>> {
    const DEPTH: usize = 100_000;
    const TOO_LARGE: usize = 3 << 20;
    let texts: [&[u8]; 13] = [
        b"null",
        b"[]",
        b"7",
        b"\"text\"",
        b"true",
        b"{",
        b"{\"session_id\":",
        b"nonsense",
        b"\xff\xfe{}",
        b"{\"session_id\": \"\xff\", \"image\": \"i\"}",
        b"{\"session_id\": \"\\ud800\", \"image\": \"i\"}",
        b"{\"resource_factor\": 1e999, \"session_id\": \"s\", \"image\": \"i\"}",
        b"{\"session_id\": NaN, \"image\": \"i\"}",
    ];
    let (open, close, long) = ("[".repeat(DEPTH), "]".repeat(DEPTH), "s".repeat(TOO_LARGE));
    let environment = format!("{{\"A\": {open}{close}}}");
    let large = [
        format!("{{\"session_id\": \"s\", \"image\": \"i\", \"environment\": {environment}}}"),
        open,
        "{\"a\":".repeat(DEPTH),
        " ".repeat(TOO_LARGE),
        format!("{{\"session_id\": \"{long}\"}}"),
    ];
    let texts = texts.into_iter().map(<[u8]>::to_vec);
    texts.chain(large.map(String::into_bytes)).collect()
}

#[tokio::test(start_paused = true)]
async fn malformed_bodies_are_rejected_by_every_endpoint() {
    let offender = Offender::new();
    for body in hopeless() {
        for (method, path) in ENDPOINTS {
            let status = offender.send(method, path, body.clone()).await;
            // The other fields of a body are read by `/start` alone.
            let read = path == "/start" || !body.starts_with(b"{");
            if read && ["/start", "/stop", "/pause", "/resume"].contains(&path) {
                let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
                assert!(matches!(status, 400 | 413), "{path} of {shown}: {status}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_runtime_ids_are_rejected() {
    let offender = Offender::new();
    let long = "a".repeat(4096);
    let refused = json!([7, -1.5, true, [], ["a"], {"a": 1}]);
    let unknown = json!([
        "",
        "rt_123456",
        "None",
        "batch",
        "../list",
        "a/b",
        "\u{0}",
        "ü",
        "KQZVBNWMXATYPLOE",
        long,
    ]);
    for (ids, status) in [(refused, 400), (unknown, 404)] {
        for id in ids.as_array().unwrap() {
            let body = json!({"runtime_id": id}).to_string();
            for verb in ["/stop", "/pause", "/resume"] {
                offender.gets(&[status], "POST", verb, &body).await;
            }
        }
    }
}

/// Ids as they stand in a path or in a query.
const IDS: &str = "rt_123456 2xQbT9mWc0LrZkVn7YpA4e None null - * . .. %2e%2e %2F a%2Fb %00 %FF%FE %ff % %zz \
    a%20b %C3%BC ; a;b=c a:b @ kqzvbnwmxatyplo kqzvbnwmxatyploee KQZVBNWMXATYPLOE '%22%3Cscript%3E $(id) + a+b \
    ~ ! a,b a=b %25 %0d%0aX-Evil:1";

/// Paths that no endpoint has, or that are written in an odd way.
const NOWHERE: &str = "/nowhere /start/more /sessions /runtime /sessions/a/b/c /runtime/a/b /api /api/admin \
    /../list /./list /%6cist /list%2F /list;a /LIST /favicon.ico /.env /metrics/x /?a=b /list?% /list?=&&=";

#[tokio::test(start_paused = true)]
async fn malformed_ids_are_unknown() {
    let offender = Offender::new();
    let mut ids: Vec<_> = IDS.split(' ').map(ToOwned::to_owned).collect();
    ids.extend([255, 256, 257, 8000].map(|length| "a".repeat(length)));
    ids.push("%C3%BC".repeat(128));
    for id in ids {
        for path in [format!("/runtime/{id}"), format!("/sessions/{id}")] {
            offender.gets(&[400, 404], "GET", &path, "").await;
        }
        for query in [
            "/sessions/batch?ids=",
            "/image_exists?image=",
            "/build_status?build_id=",
        ] {
            offender.send("GET", &format!("{query}{id}"), "").await;
        }
        for method in ["PUT", "DELETE"] {
            let path = format!("/api/admin/warm-runtime-configs/{id}");
            offender.send(method, &path, "{}").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn extra_slashes_and_unknown_paths_are_handled() {
    let offender = Offender::new();
    for (method, path) in ENDPOINTS {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let plain = offender.send(method, &format!("{path}?{query}"), "").await;
        for more in [
            format!("/{path}"),
            format!("///{path}"),
            format!("{path}/"),
            format!("/{path}//"),
        ] {
            let path = format!("{more}?{query}");
            offender.gets(&[plain], method, &path, "").await;
        }
    }
    for path in NOWHERE.split_whitespace() {
        offender.send("GET", path, "").await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_method_is_answered() {
    let offender = Offender::new();
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
}

#[tokio::test(start_paused = true)]
async fn every_endpoint_requires_api_key() {
    let offender = Offender::new();
    let (bearer, with_more) = (format!("Bearer {KEY}"), format!("{KEY} x"));
    let long = "k".repeat(16_000);
    let keys = [
        "",
        "wrong",
        &KEY[1..],
        &with_more,
        &long,
        "null",
        "Bearer x",
    ];
    let headers = keys.map(|key| ("x-api-key", key)).into_iter();
    for header in headers.chain([("authorization", &*bearer)]) {
        for (method, path) in &ENDPOINTS[..9] {
            for body in ["not json", r#"{"session_id": "s", "image": "debian:12"}"#] {
                let status = offender.send_with(header, method, path, body).await;
                assert_eq!(status, 401, "{method} {path} {header:?}");
            }
        }
        assert_eq!(offender.send_with(header, "GET", "/health", "").await, 200);
    }
    let without_keys = GatewayFixture::synced(&offender.0.api, config(), Tenants::pending());
    assert_eq!(without_keys.get("/health").await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn content_type_is_ignored() {
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "ü/ü",
    ] {
        for (body, expected) in [("{\"runtime_id\": null}", 200), ("runtime_id=abc", 400)] {
            let request = Request::post("/stop").header("host", "api.example.com");
            let request = request
                .header("x-api-key", KEY)
                .header("content-type", kind);
            let request = request.body(Body::from(body)).unwrap();
            let (status, _) = read(GatewayFixture::new().send(request).await).await;
            assert_eq!(status, expected, "{kind} {body}");
        }
    }
}
