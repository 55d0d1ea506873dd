//! Headers on their way through (RFC 9110 7.6.1): what belongs to one connection stays on it, and
//! what the client says about itself is replaced by what we know.

use std::net::SocketAddr;

use axum::body::Body;
use crds::contract::header::API_KEY;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use super::{ProxyError, Route};
use crate::urls::Scheme;

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
const X_API_KEY: HeaderName = HeaderName::from_static(API_KEY);
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Refuses a request whose length two parties could see differently.
pub(super) fn check_framing(request: &Request<Body>) -> Result<(), ProxyError> {
    let headers = request.headers();
    if headers.contains_key(CONTENT_LENGTH) && headers.contains_key(TRANSFER_ENCODING) {
        return Err(ProxyError::BadRequest(
            "both Content-Length and Transfer-Encoding",
        ));
    }
    Ok(())
}

/// Makes the head of a client's request one of ours. `Host` stays as the client wrote it: servers
/// in the sandbox check it and build links from it.
pub(super) fn to_upstream(
    parts: &mut Parts,
    route: &Route,
    peer: SocketAddr,
    scheme: Scheme,
) -> Result<(), ProxyError> {
    parts.uri = Uri::from(tail(&parts.uri, route)?);
    parts.version = http::Version::HTTP_11;
    parts.extensions.clear();
    let headers = &mut parts.headers;
    strip(headers);
    // We have answered the expectation ourselves by reading the body.
    for name in [X_API_KEY, EXPECT, FORWARDED, X_FORWARDED_PORT] {
        headers.remove(name);
    }
    forwarded(headers, route, peer, scheme);
    Ok(())
}

/// Makes the headers of a sandbox's answer ours.
pub(super) fn to_client(headers: &mut HeaderMap) {
    strip(headers);
}

/// What the sandbox sees of path and query. Nothing in it is decoded, merged or resolved.
fn tail(uri: &Uri, route: &Route) -> Result<PathAndQuery, ProxyError> {
    let whole = uri.path_and_query().cloned();
    let whole = whole.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let Some(prefix) = &route.prefix else {
        return Ok(whole);
    };
    let tail = whole.as_str().get(prefix.len()..).unwrap_or_default();
    let tail = if tail.starts_with('/') {
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
    set(headers, X_FORWARDED_HOST, headers.get(HOST).cloned());
    let prefix = route.prefix.as_ref();
    let prefix = prefix.and_then(|prefix| HeaderValue::from_str(prefix).ok());
    set(headers, X_FORWARDED_PREFIX, prefix);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
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
