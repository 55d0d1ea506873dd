//! The files of the console as clients get them.

use std::io::Read as _;

use axum::body::Body;
use flate2::read::GzDecoder;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use operator::gateway::ApiSettings;

use crate::support::gateway_fixture::GatewayFixture;
use testing::FakeApi;

fn fixture() -> GatewayFixture {
    let settings = ApiSettings {
        console: Some(true),
        ..ApiSettings::default()
    };
    GatewayFixture::of(&FakeApi::default(), settings)
}

async fn send(fixture: &GatewayFixture, line: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let (method, path) = line.split_once(' ').unwrap();
    let request = Request::builder().method(method).uri(path);
    let request = request.header("host", "api.example.com");
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    fixture.send(request.body(Body::empty()).unwrap()).await
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

async fn body(response: Response<Body>) -> Vec<u8> {
    response
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .into()
}

#[tokio::test]
async fn console_is_off_by_default() {
    let fixture = GatewayFixture::new();
    for line in ["GET /console", "GET /console/", "GET /console/index.html"] {
        assert_eq!(send(&fixture, line, &[]).await.status(), 404, "{line}");
    }
}

#[tokio::test]
async fn page_has_strict_headers_and_is_validated() {
    let fixture = fixture();
    let page = send(&fixture, "GET /console/", &[]).await;
    assert_eq!(page.status(), 200);
    let policy = header(&page, "content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self';",
        "style-src 'self';",
        "connect-src 'self';",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    for (name, value) in [
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-cache"),
        ("content-type", "text/html; charset=utf-8"),
    ] {
        assert_eq!(header(&page, name), value, "{name}");
    }
    let etag = header(&page, "etag").to_owned();
    for known in [
        &*etag,
        &format!("\"a\", {etag}"),
        etag.trim_start_matches("W/"),
    ] {
        let again = send(&fixture, "GET /console/", &[("if-none-match", known)]).await;
        assert_eq!(again.status(), 304, "{known}");
        assert!(body(again).await.is_empty());
    }
    let other = send(&fixture, "GET /console/", &[("if-none-match", "\"other\"")]).await;
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn files_of_the_page_exist_and_are_cached_for_good() {
    let fixture = fixture();
    let page = body(send(&fixture, "GET /console/", &[]).await).await;
    let page = String::from_utf8(page).unwrap();
    let references = page
        .split(['"'])
        .filter(|text| text.contains(".css") || text.contains(".js"));
    let references: Vec<_> = references.collect();
    assert_eq!(references.len(), 2, "{page}");
    for name in references {
        // Relative: the console also works below a path prefix.
        assert!(!name.starts_with('/') && !name.contains("://"), "{name}");
        let line = format!("GET /console/{name}");
        let plain = send(&fixture, &line, &[]).await;
        assert_eq!(plain.status(), 200, "{name}");
        assert!(header(&plain, "cache-control").contains("immutable"));
        assert_eq!(header(&plain, "content-encoding"), "");
        let plain = body(plain).await;

        let packed = send(&fixture, &line, &[("accept-encoding", "br, gzip;q=0.8")]).await;
        assert_eq!(header(&packed, "content-encoding"), "gzip");
        assert_eq!(header(&packed, "vary"), "Accept-Encoding");
        let packed = body(packed).await;
        assert!(packed.len() < plain.len() / 2);
        let mut unpacked = Vec::new();
        GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain);

        let unwanted = send(&fixture, &line, &[("accept-encoding", "gzip;q=0")]).await;
        assert_eq!(header(&unwanted, "content-encoding"), "");
    }
}

#[tokio::test]
async fn methods_and_unknown_paths_are_answered_as_in_the_api() {
    let fixture = fixture();
    let moved = send(
        &fixture,
        "GET /console",
        &[("x-forwarded-prefix", "//evil")],
    )
    .await;
    assert_eq!(moved.status(), 308);
    assert_eq!(header(&moved, "location"), "console/");
    assert_eq!(header(&moved, "cache-control"), "no-store");
    let head = send(&fixture, "HEAD /console/", &[]).await;
    assert_eq!(head.status(), 200);
    assert_ne!(header(&head, "etag"), "");
    for (line, status) in [
        ("POST /console/", 405),
        ("DELETE /console", 405),
        ("OPTIONS /console/", 204),
        ("GET /console/nothing", 404),
        ("GET /console/../index.html", 404),
        ("GET /consoles", 404),
    ] {
        let answer = send(&fixture, line, &[]).await;
        assert_eq!(answer.status(), status, "{line}");
        let has_allow = !header(&answer, "allow").is_empty();
        assert_eq!(has_allow, matches!(status, 204 | 405), "{line}");
    }
    // The path is free on the host of a sandbox.
    let id = "kqzvbnwmxatyploe";
    let request = Request::get("/console/").header("host", format!("{id}.rt.example.com"));
    let answer = fixture.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(header(&answer, "content-security-policy"), "");
}
