//! Headers on their way through (RFC 9110 7.6.1): what belongs to one connection stays on it, and
//! what the client says about itself is replaced by what we know.

use std::net::SocketAddr;

use axum::body::Body;
use crds::contract::header::API_KEY;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use super::{ProxyError, Route};
use crate::urls::{Scheme, Urls};

/// `Trailer` is not among them: without it, trailers cannot be passed on.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
const X_API_KEY: HeaderName = HeaderName::from_static(API_KEY);
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// What only we may say of a client, and the key that no sandbox may see.
const OURS: [HeaderName; 8] = [
    X_API_KEY,
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PORT,
    X_FORWARDED_PREFIX,
    X_FORWARDED_PROTO,
    X_REAL_IP,
];

/// Refuses a request whose length two parties could see differently, and one whose body is coded in a
/// way that nobody would be told of: the coding of a transfer ends here (RFC 9112 6.1).
pub(super) fn check_framing(request: &Request<Body>) -> Result<(), ProxyError> {
    let headers = request.headers();
    if headers.contains_key(CONTENT_LENGTH) && headers.contains_key(TRANSFER_ENCODING) {
        return Err(ProxyError::BadRequest(
            "both Content-Length and Transfer-Encoding",
        ));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !codings.all(is_chunked) {
        return Err(ProxyError::BadRequest(
            "a Transfer-Encoding other than chunked",
        ));
    }
    Ok(())
}

/// Makes the head of a client's request one of ours. `Host` stays as the client wrote it: servers
/// in the sandbox check it and build links from it. A client of HTTP/1.0 may have named none, and
/// then it is that of `urls`: the address of the Pod is nothing that a link could be made of.
pub(super) fn to_upstream(
    parts: &mut Parts,
    route: &Route,
    peer: SocketAddr,
    urls: &Urls,
) -> Result<(), ProxyError> {
    name_host(parts, &urls.base)?;
    parts.uri = Uri::from(tail(&parts.uri, route)?);
    parts.version = http::Version::HTTP_11;
    parts.extensions.clear();
    let headers = &mut parts.headers;
    let takes_trailers = takes_trailers(headers);
    strip(headers);
    join_cookies(headers);
    // We have answered the expectation ourselves by reading the body.
    headers.remove(EXPECT);
    remove_ours(headers);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    forwarded(headers, route, peer, urls.scheme);
    Ok(())
}

/// Makes the headers of a sandbox's answer ours.
pub(super) fn to_client(headers: &mut HeaderMap) {
    strip(headers);
}

/// Trailers, of either direction. hyper itself refuses those that are about length and framing.
pub(super) fn in_trailers(trailers: &mut HeaderMap) {
    strip(trailers);
    remove_ours(trailers);
}

/// HTTP/2 and absolute targets name the host in the target.
fn name_host(parts: &mut Parts, base: &str) -> Result<(), ProxyError> {
    if !parts.headers.contains_key(HOST) {
        let host = parts.uri.authority().map_or(base, Authority::as_str);
        let host = HeaderValue::from_str(host);
        let host = host.map_err(|_| ProxyError::BadRequest("Host is missing"))?;
        parts.headers.insert(HOST, host);
    }
    Ok(())
}

/// Also by the names that many servers take for the same (RFC 3875 4.1.18).
fn remove_ours(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> = headers.keys().filter(|n| is_ours(n)).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

fn is_ours(name: &HeaderName) -> bool {
    let hyphened = |b: u8| if b == b'_' { b'-' } else { b };
    OURS.iter().any(|ours| {
        let (ours, name) = (ours.as_str().bytes(), name.as_str().bytes());
        ours.len() == name.len() && name.map(hyphened).eq(ours)
    })
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(TE).iter();
    let mut codings = lines.flat_map(|line| line.as_bytes().split(|b| *b == b','));
    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// HTTP/2 may split what HTTP/1.1 wants in one line (RFC 9113 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<_> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if lines.len() < 2 {
        return;
    }
    if let Ok(line) = HeaderValue::from_bytes(&lines.join(b"; ".as_slice())) {
        headers.insert(COOKIE, line);
    }
}

/// What the sandbox sees of path and query. Nothing in it is decoded, merged or resolved.
fn tail(uri: &Uri, route: &Route) -> Result<PathAndQuery, ProxyError> {
    let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let len = route.prefix.as_ref().map_or(0, |prefix| prefix.len);
    let tail = whole.get(len..).unwrap_or_default();
    let tail = if tail.starts_with('/') || whole == "*" {
        tail.to_owned()
    } else {
        format!("/{tail}")
    };
    PathAndQuery::try_from(tail).map_err(|_| ProxyError::BadRequest("the path is malformed"))
}

fn forwarded(headers: &mut HeaderMap, route: &Route, peer: SocketAddr, scheme: Scheme) {
    let address = peer.ip().to_canonical().to_string();
    if let Ok(address) = HeaderValue::from_str(&address) {
        headers.insert(X_FORWARDED_FOR, address);
    }
    let proto = match scheme {
        Scheme::Http => HeaderValue::from_static("http"),
        Scheme::Https => HeaderValue::from_static("https"),
    };
    headers.insert(X_FORWARDED_PROTO, proto);
    if let Some(host) = headers.get(HOST).cloned() {
        headers.insert(X_FORWARDED_HOST, host);
    }
    let taken_away = route.prefix.as_ref().filter(|prefix| !prefix.kept);
    if let Some(prefix) = taken_away.and_then(|p| HeaderValue::from_str(&p.text).ok()) {
        headers.insert(X_FORWARDED_PREFIX, prefix);
    }
}

/// Takes away the headers that are about one connection, those that `Connection` names included.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|b| *b == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in named {
        // A client may not make us drop what the answer depends on.
        if name != HOST && name != CONTENT_LENGTH {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}
