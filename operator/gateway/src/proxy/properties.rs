//! Properties of routing, which reads untrusted input: a request goes to the sandbox that its host
//! or path names, its path is unchanged, and no header carries a statement that only the gateway may
//! make. A violated property panics. The fuzzer searches for such inputs (`operator/fuzz`).

use std::net::SocketAddr;

use axum::body::Body;
use crds::names::is_runtime_id;
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, LOCATION, SET_COOKIE, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Version};

use super::headers;
use super::response_rewrite::PrefixRewriter;
use super::route::{Prefix, Route, by_name, by_path, host, is_port_name};
use crate::client_address::ClientAddress;
use shared::urls::{Scheme, UrlForm, Urls};

const BASE: &str = "rt.example.com";
const PEER: ([u8; 4], u16) = ([192, 0, 2, 1], 1);

/// Input: target, version (`1` or `2`), then one header per line.
pub fn route(input: &[u8]) {
    let Some(request) = read(input) else {
        return;
    };
    let Ok(named) = host(&request) else {
        return;
    };
    let by_host = named.as_deref().and_then(route_by_name);
    let path = request.uri().path().to_owned();
    let route = by_host.or_else(|| by_path(&path));
    let Some(route) = route else {
        return;
    };
    assert!(is_runtime_id(&route.id));
    if let Some(prefix) = &route.prefix {
        let (before, after) = path.split_at(prefix.len);
        assert!(after.is_empty() || after.starts_with('/'));
        assert_eq!(before.trim_start_matches('/'), &prefix.text[1..]);
    }
    check_upstream_request(&request, &route);
}

fn read(input: &[u8]) -> Option<Request<Body>> {
    let mut lines = input.split(|b| *b == b'\n');
    let (uri, version) = (lines.next()?, lines.next()?);
    let version = match version {
        b"2" => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    let request = Request::builder().uri(uri).version(version);
    let request = lines.take(64).fold(request, |request, line| {
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or_default();
        request.header(name, value.trim_ascii())
    });
    request.body(Body::empty()).ok()
}

/// A host routes to a sandbox only if it is a name of that sandbox.
fn route_by_name(host: &str) -> Option<Route> {
    assert_eq!(host, host.to_ascii_lowercase());
    assert!(!host.contains(['@', '/', '?', '#', ' ']));
    let route = by_name(host, BASE)?;
    let label = match &*route.port {
        "runtime" if !host.starts_with("runtime-") => route.id.clone(),
        port => format!("{port}-{}", route.id),
    };
    let forms = ['.', '-'].map(|dot| format!("{label}{dot}{BASE}"));
    assert!(forms.iter().any(|form| form == host), "{host}");
    Some(route)
}

fn check_upstream_request(request: &Request<Body>, route: &Route) {
    let (mut parts, before) = (head(request), head(request));
    let client = ClientAddress::of(SocketAddr::from(PEER), &before.headers, &[]);
    let urls = Urls {
        scheme: Scheme::Https,
        base: BASE.into(),
        form: UrlForm::Nested,
    };
    if headers::to_upstream(&mut parts, route, &client, &urls).is_err() {
        return;
    }
    check_target(&before, &parts, route);
    check_headers(&before.headers, &parts.headers);
    // No sandbox has a port with another kind of name.
    let answers = is_port_name(&route.port);
    if let Some(prefix) = route.prefix.as_ref().filter(|_| answers) {
        for kept in [false, true] {
            let prefix = Prefix {
                kept,
                ..prefix.clone()
            };
            check_rewrite(
                &before.headers,
                &PrefixRewriter::new(&prefix, &parts.headers),
            );
        }
    }
}

fn head(request: &Request<Body>) -> Parts {
    let mut copy = Request::new(());
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy.into_parts().0
}

/// Only the prefix of the path is removed, and nothing else is changed.
fn check_target(before: &Parts, after: &Parts, route: &Route) {
    assert!(after.uri.scheme().is_none() && after.uri.authority().is_none());
    assert_eq!(before.uri.query(), after.uri.query());
    let path = after.uri.path();
    assert!(path.starts_with('/') || path == "*", "{path}");
    let len = route.prefix.as_ref().map_or(0, |prefix| prefix.len);
    let tail = &before.uri.path()[len..];
    assert_eq!(path, if tail.is_empty() { "/" } else { tail });
}

fn check_headers(before: &HeaderMap, after: &HeaderMap) {
    let all = |headers: &HeaderMap, name: &str| -> Vec<HeaderValue> {
        headers.get_all(name).iter().cloned().collect()
    };
    for gone in [
        "x-api-key",
        "forwarded",
        "x-forwarded-port",
        "x-real-ip",
        "x_api_key",
        "x_forwarded_for",
        "expect",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "transfer-encoding",
        "upgrade",
    ] {
        assert!(!after.contains_key(gone), "{gone}");
    }
    for one in ["x-forwarded-for", "x-forwarded-proto"] {
        assert_eq!(all(after, one).len(), 1, "{one}");
    }
    assert_eq!(after["x-forwarded-for"], "192.0.2.1");
    assert_eq!(all(after, "x-forwarded-host"), all(after, HOST.as_str()));
    assert!(all(after, "x-forwarded-prefix").len() <= 1);
    assert!(all(after, COOKIE.as_str()).len() <= 1);
    let [connection, te] = [CONNECTION, TE].map(|name| all(after, name.as_str()));
    let passed = match (&*connection, &*te) {
        ([], []) => true,
        ([connection], [te]) => connection == "te" && te == "trailers",
        _ => false,
    };
    assert!(passed, "{connection:?} {te:?}");
    for named in named(before) {
        let ours = named.as_str().starts_with("x-forwarded-");
        let needed = [HOST, CONTENT_LENGTH, CONNECTION, TE].contains(&named);
        assert!(ours || needed || !after.contains_key(&named), "{named}");
    }
    assert_eq!(all(before, "content-length"), all(after, "content-length"));
}

/// Headers that `Connection` names.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|b| *b == b','));
    names
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}

/// The same headers as a response: links and cookies are moved below the prefix once.
fn check_rewrite(headers: &HeaderMap, base: &PrefixRewriter) {
    let mut once = headers.clone();
    base.apply(&mut once);
    let mut twice = once.clone();
    base.apply(&mut twice);
    assert_eq!(once, twice);
    let count = |headers: &HeaderMap, name| headers.get_all(name).iter().count();
    assert_eq!(count(headers, SET_COOKIE), count(&once, SET_COOKIE));
    assert!(count(&once, LOCATION) <= count(headers, LOCATION));
    for cookie in once.get_all(SET_COOKIE) {
        let text = String::from_utf8_lossy(cookie.as_bytes()).to_ascii_lowercase();
        let domain = |part: &str| part.trim_start().starts_with("domain=");
        assert!(!text.split(';').skip(1).any(domain), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn route_property_holds_for_all_seeds() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/route");
        let seeds: Vec<_> = std::fs::read_dir(seeds).unwrap().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            let seed = seed.unwrap().path();
            println!("{}", seed.display());
            super::route(&std::fs::read(seed).unwrap());
        }
    }
}
