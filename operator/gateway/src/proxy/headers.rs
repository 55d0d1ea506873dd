//! Headers of proxied requests and responses (RFC 9110, section 7.6.1). Hop-by-hop headers are
//! removed, and the gateway's statements about the client replace the client's own.

use axum::body::Body;
use crds::contract::header::{API_KEY, PLUGIN};
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use super::{ProxyError, Route};
use crate::client_address::{ClientAddress, X_FORWARDED_FOR};
use shared::urls::{Scheme, Urls};

/// `Trailer` is not among them, because trailers are passed on.
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
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Headers that only the gateway may set, and the API key that no sandbox may see.
const PROXY_OWNED_HEADERS: [HeaderName; 9] = [
    X_API_KEY,
    HeaderName::from_static(PLUGIN),
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PORT,
    X_FORWARDED_PREFIX,
    X_FORWARDED_PROTO,
    X_REAL_IP,
];

/// Rejects a request with an ambiguous length, or with a transfer coding besides `chunked`, which
/// ends at this hop (RFC 9112, section 6.1).
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

/// Makes the upstream request head. `Host` stays as the client wrote it, because servers check it
/// and build links from it. An HTTP/1.0 request without `Host` gets the host of `urls`.
pub(super) fn to_upstream(
    parts: &mut Parts,
    route: &Route,
    client: &ClientAddress,
    urls: &Urls,
) -> Result<(), ProxyError> {
    set_host(parts, &urls.base)?;
    parts.uri = Uri::from(upstream_path(&parts.uri, route)?);
    parts.version = http::Version::HTTP_11;
    parts.extensions.clear();
    let headers = &mut parts.headers;
    let takes_trailers = takes_trailers(headers);
    strip_hop_by_hop(headers);
    join_cookies(headers);
    // Reading the body answers the expectation.
    headers.remove(EXPECT);
    remove_proxy_owned(headers);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    set_forwarded(headers, route, client, urls.scheme);
    Ok(())
}

/// Announces a body without a length: hyper sends no body with GET and HEAD otherwise.
pub(super) fn set_body_framing(headers: &mut HeaderMap, has_body: bool) {
    if has_body && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

pub(super) fn to_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
}

/// Filters trailers of either direction. hyper rejects those about length and framing.
pub(super) fn filter_trailers(trailers: &mut HeaderMap) {
    strip_hop_by_hop(trailers);
    remove_proxy_owned(trailers);
}

/// HTTP/2 and absolute targets name the host in the target.
fn set_host(parts: &mut Parts, base: &str) -> Result<(), ProxyError> {
    if !parts.headers.contains_key(HOST) {
        let host = parts.uri.authority().map_or(base, Authority::as_str);
        let host = HeaderValue::from_str(host);
        let host = host.map_err(|_| ProxyError::BadRequest("Host is missing"))?;
        parts.headers.insert(HOST, host);
    }
    Ok(())
}

/// Removes names with underscores too: many servers treat them as equal (RFC 3875, section 4.1.18).
fn remove_proxy_owned(headers: &mut HeaderMap) {
    let owned: Vec<HeaderName> = headers
        .keys()
        .filter(|n| is_proxy_owned(n))
        .cloned()
        .collect();
    for name in owned {
        headers.remove(name);
    }
}

fn is_proxy_owned(name: &HeaderName) -> bool {
    let with_hyphens = |b: u8| if b == b'_' { b'-' } else { b };
    PROXY_OWNED_HEADERS.iter().any(|owned| {
        let (owned, name) = (owned.as_str().bytes(), name.as_str().bytes());
        owned.len() == name.len() && name.map(with_hyphens).eq(owned)
    })
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    tokens(headers, &TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// HTTP/2 may split cookies that HTTP/1.1 needs in one line (RFC 9113, section 8.2.3).
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

/// Path and query that the sandbox sees. They are not decoded, merged or resolved.
fn upstream_path(uri: &Uri, route: &Route) -> Result<PathAndQuery, ProxyError> {
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

fn set_forwarded(headers: &mut HeaderMap, route: &Route, client: &ClientAddress, scheme: Scheme) {
    if let Some(addresses) = client.header() {
        headers.insert(X_FORWARDED_FOR, addresses);
    }
    let proto = match scheme {
        Scheme::Http => HeaderValue::from_static("http"),
        Scheme::Https => HeaderValue::from_static("https"),
    };
    headers.insert(X_FORWARDED_PROTO, proto);
    if let Some(host) = headers.get(HOST).cloned() {
        headers.insert(X_FORWARDED_HOST, host);
    }
    let removed = route.prefix.as_ref().filter(|prefix| !prefix.kept);
    if let Some(prefix) = removed.and_then(|p| HeaderValue::from_str(&p.text).ok()) {
        headers.insert(X_FORWARDED_PREFIX, prefix);
    }
}

/// Members of a header that is a list.
pub(super) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    let tokens = lines.flat_map(|line| line.as_bytes().split(|b| *b == b','));
    tokens.map(<[u8]>::trim_ascii)
}

/// Removes hop-by-hop headers, including those named by `Connection`.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named = tokens(headers, &CONNECTION);
    let named: Vec<_> = named
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect();
    for name in named {
        // A client cannot remove headers that routing and framing need.
        if name != HOST && name != CONTENT_LENGTH {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}
