//! Access to the server: the session key, and for the pages of plugins a cookie in its place.
//!
//! A browser cannot add a header to a page or a WebSocket that it opens. So a link with the key sets
//! a cookie that proves it, for one plugin (`docs/plugins.md`). Handlers of plugins see neither.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use data_encoding::HEXLOWER;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN, UPGRADE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use parking_lot::RwLock;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::error::detail;
use super::mcp;
use crate::serve::executor::Executor;
use crds::contract::header::{PLUGIN, SESSION_API_KEY};

/// Paths that need no key.
const PUBLIC_PATHS: [&str; 2] = ["/alive", "/server_info"];
/// Paths of plugins begin with it.
pub(super) const PLUGINS: &str = "/plugins/";
/// Paths of terminals begin with it.
const TERMINALS: &str = "/terminals/";
/// Paths of connections to terminals end with it.
const CONNECT: &str = "/connect";
/// Parameter of a link that opens a plugin or a terminal in a browser.
const PARAMETER: &str = "session_api_key";
const COOKIE_NAME: &str = "sandbox_plugin";
pub(super) const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const REFRESH: HeaderName = HeaderName::from_static("refresh");

/// The session key, and the plugins that need none.
#[derive(Debug)]
pub(super) struct Access {
    key: RwLock<SessionKey>,
    executor: Arc<Executor>,
}

/// An empty one disables all checks.
#[derive(Clone, derive_more::Debug)]
#[debug("SessionKey")]
struct SessionKey(Arc<str>);

/// Mark of a WebSocket whose link has the key.
#[derive(Debug, Clone, Copy)]
struct KeyInLink;

/// Secrets that a request had.
#[derive(Debug, Default)]
struct Presented {
    header: bool,
    link: bool,
    cookie: bool,
}

impl SessionKey {
    fn is_key(&self, given: Option<&[u8]>) -> bool {
        given.is_some_and(|given| given.ct_eq(self.0.as_bytes()).into())
    }

    fn is_bearer(&self, given: &HeaderValue) -> bool {
        self.is_key(given.as_bytes().strip_prefix(b"Bearer "))
    }

    /// Value of the cookie, from which the key cannot be found.
    fn cookie(&self, plugin: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.as_bytes());
        let text = format!("cookie of plugin {plugin}");
        HEXLOWER.encode(hmac::sign(&key, text.as_bytes()).as_ref())
    }

    /// Removes the secrets from a request to a plugin.
    fn take(&self, plugin: &str, headers: &mut HeaderMap, uri: &mut Uri) -> Presented {
        let session_key = headers.remove(SESSION_API_KEY);
        let mut presented = Presented {
            header: self.is_key(session_key.as_ref().map(HeaderValue::as_bytes)),
            ..Presented::default()
        };
        // Another one is the plugin's.
        if headers
            .get(AUTHORIZATION)
            .is_some_and(|given| self.is_bearer(given))
        {
            headers.remove(AUTHORIZATION);
            presented.header = true;
        }
        if let Some(given) = take_parameter(uri) {
            presented.link = self.is_key(Some(given.as_bytes()));
        }
        let expected = self.cookie(plugin);
        for given in take_cookies(headers) {
            presented.cookie |= bool::from(given.ct_eq(expected.as_bytes()));
        }
        presented
    }

    /// Sets the cookie and leads to the address without the key, which would be in the history.
    fn remember(&self, plugin: &str, headers: &HeaderMap, uri: &Uri) -> Response {
        let root = public_root(plugin, headers);
        let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let tail = whole
            .get(PLUGINS.len() + plugin.len()..)
            .unwrap_or_default();
        // With two slashes at its beginning it would lead to another host.
        let to = format!("{root}/{}", tail.trim_start_matches(['/', '\\']));
        let https = |proto: &HeaderValue| proto.as_bytes().eq_ignore_ascii_case(b"https");
        let is_https = headers.get(X_FORWARDED_PROTO).is_some_and(https);
        let cookie = format!(
            "{COOKIE_NAME}={}; Path={}; HttpOnly; SameSite=Strict{}",
            self.cookie(plugin),
            if root.is_empty() { "/" } else { &root },
            if is_https { "; Secure" } else { "" },
        );
        // A redirect of a foreign page's link would not carry the cookie; a page's own step does.
        let is_foreign = headers
            .get(SEC_FETCH_SITE)
            .is_some_and(|site| site == "cross-site");
        let (status, name, value) = if is_foreign {
            (StatusCode::OK, REFRESH, format!("0; url={to}"))
        } else {
            (StatusCode::SEE_OTHER, header::LOCATION, to)
        };
        let headers = [
            (name, value),
            (header::SET_COOKIE, cookie),
            (header::CACHE_CONTROL, "no-store".to_owned()),
            (header::REFERRER_POLICY, "no-referrer".to_owned()),
        ];
        (status, headers).into_response()
    }
}

impl Access {
    pub(super) fn new(key: &str, executor: Arc<Executor>) -> Self {
        let key = RwLock::new(SessionKey(key.into()));
        Self { key, executor }
    }

    /// Replaces the session key. `false` if there is none, so that anyone could ask for it.
    pub(super) fn replace_key(&self, key: &str) -> bool {
        let mut present = self.key.write();
        let has_key = !present.0.is_empty();
        if has_key {
            present.0 = key.into();
        }
        has_key
    }

    fn key(&self) -> SessionKey {
        self.key.read().clone()
    }

    async fn plugin(&self, plugin: &str, mut request: Request, next: Next) -> Response {
        let key = self.key();
        let mut headers = std::mem::take(request.headers_mut());
        let presented = key.take(plugin, &mut headers, request.uri_mut());
        let is_upgrade = headers.contains_key(UPGRADE);
        let is_get = request.method() == Method::GET && !is_upgrade;
        let is_head = request.method() == Method::HEAD && !is_upgrade;
        // The browser sends the cookie also with what a foreign page does.
        let is_trusted = presented.cookie && (is_get || is_head || is_same_origin(&headers));
        let is_open = key.0.is_empty() || self.executor.plugins.is_public(plugin);
        if presented.link && is_get && !is_open {
            return key.remember(plugin, &headers, request.uri());
        }
        // A program that can only be given a URL cannot follow a redirect with a cookie.
        let is_link_upgrade = presented.link && is_upgrade;
        if !(is_open || presented.header || is_trusted || is_link_upgrade) {
            return detail(StatusCode::FORBIDDEN, "Invalid API Key");
        }
        *request.headers_mut() = headers;
        next.run(request).await
    }
}

/// Requires the key for all paths but `PUBLIC_PATHS`, also unknown ones.
pub(super) async fn authorize(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(plugin) = plugin(request.uri().path()).map(str::to_owned) {
        return access.plugin(&plugin, request, next).await;
    }
    let key = access.key();
    if is_terminal_connection(&request) {
        let given = take_parameter(request.uri_mut());
        let is_key = key.is_key(given.as_ref().map(String::as_bytes));
        if is_key && !key.0.is_empty() {
            request.extensions_mut().insert(KeyInLink);
            return next.run(request).await;
        }
    }
    let path = request.uri().path();
    let headers = request.headers();
    let session_key = headers.get(SESSION_API_KEY).map(HeaderValue::as_bytes);
    let is_open = key.0.is_empty() || PUBLIC_PATHS.contains(&path);
    if is_open || key.is_key(session_key) {
        return next.run(request).await;
    }
    match headers.get(AUTHORIZATION) {
        Some(given) if mcp::is_transport(path) => {
            if key.is_bearer(given) {
                next.run(request).await
            } else {
                mcp::invalid_token()
            }
        }
        _ => detail(StatusCode::FORBIDDEN, "Invalid API Key"),
    }
}

/// Browsers can open nothing else of a terminal without a header, so a link with the key is good for nothing else.
fn is_terminal_connection(request: &Request) -> bool {
    let path = request.uri().path();
    request.method() == Method::GET
        && request.headers().contains_key(UPGRADE)
        && path.starts_with(TERMINALS)
        && path.ends_with(CONNECT)
}

/// Name of the plugin that a path belongs to.
fn plugin(path: &str) -> Option<&str> {
    path.strip_prefix(PLUGINS)?.split('/').next()
}

/// Path of the root of a plugin as its clients see it, without the slash at its end.
pub(super) fn public_root(plugin: &str, headers: &HeaderMap) -> String {
    let prefix = headers.get(X_FORWARDED_PREFIX).map(HeaderValue::to_str);
    let prefix = prefix.and_then(Result::ok).unwrap_or_default();
    // The gateway has the plugin below that prefix, or as a host of its own.
    let is_own = headers.get(PLUGIN).is_some_and(|asked| asked == plugin);
    let below = if is_own {
        ""
    } else {
        &format!("{PLUGINS}{plugin}")
    };
    format!("{}{below}", prefix.trim_end_matches('/'))
}

/// Returns whether a browser says that the request comes from a page of the same host.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| HeaderValue::to_str(value).ok())
    };
    let origin = text(ORIGIN).and_then(|origin| origin.split_once("://"));
    let hosts = [origin.map(|(_, host)| host), text(HOST)];
    let [origin, host] = hosts.map(|host| host?.parse::<Authority>().ok());
    origin.is_some() && origin == host
}

/// Rejects connections that a page of another host opens, except with the key in the link. Programs
/// send no origin.
pub(super) struct SameOrigin;

impl<S: Send + Sync> FromRequestParts<S> for SameOrigin {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let headers = &parts.headers;
        let has_key = parts.extensions.get::<KeyInLink>().is_some();
        if has_key || !headers.contains_key(ORIGIN) || is_same_origin(headers) {
            return Ok(Self);
        }
        Err(detail(StatusCode::FORBIDDEN, "the page is of another host"))
    }
}

/// Removes the key from the query and returns it.
fn take_parameter(uri: &mut Uri) -> Option<String> {
    let query = uri.query()?;
    let (mut kept, mut found) = (Vec::new(), None);
    for pair in query.split('&') {
        match value_of_parameter(pair) {
            Some(value) => found = Some(value),
            None => kept.push(pair),
        }
    }
    let found = found?;
    let mark = if kept.is_empty() { "" } else { "?" };
    let target = format!("{}{mark}{}", uri.path(), kept.join("&"));
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = target.parse().ok();
    *uri = Uri::from_parts(parts).unwrap_or_default();
    Some(found)
}

/// Value of the parameter, if this is it.
fn value_of_parameter(pair: &str) -> Option<String> {
    let uri = format!("/?{pair}").parse().ok()?;
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&uri).ok()?;
    let mut pairs = pairs.into_iter();
    pairs.find_map(|(name, value)| (name == PARAMETER).then_some(value))
}

/// Removes the cookie of plugins and returns its values.
fn take_cookies(headers: &mut HeaderMap) -> Vec<Vec<u8>> {
    let (mut kept, mut found) = (Vec::new(), Vec::new());
    for line in headers.get_all(COOKIE) {
        for pair in line.as_bytes().split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            let value = pair.strip_prefix(COOKIE_NAME.as_bytes());
            match value.and_then(|value| value.strip_prefix(b"=")) {
                Some(value) => found.push(value.to_owned()),
                None => kept.push(pair),
            }
        }
    }
    if !found.is_empty() {
        let line = HeaderValue::from_bytes(&kept.join(&b"; "[..]));
        headers.remove(COOKIE);
        if let Some(line) = line.ok().filter(|line| !line.is_empty()) {
            headers.insert(COOKIE, line);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().cloned();
        let pairs = pairs.map(|(name, value)| (name, HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn secrets_are_taken_out_of_a_request() {
        let access = SessionKey("k&y".into());
        let mut given = headers(&[
            (HeaderName::from_static(SESSION_API_KEY), "other"),
            (AUTHORIZATION, "Bearer k&y"),
            (COOKIE, "a=1; sandbox_plugin=x; b=2"),
        ]);
        let mut uri: Uri = "/plugins/p/a?b=1&session_api_key=k%26y&c".parse().unwrap();
        let presented = access.take("p", &mut given, &mut uri);
        assert!(presented.header && presented.link && !presented.cookie);
        assert_eq!(given, headers(&[(COOKIE, "a=1; b=2")]));
        assert_eq!(uri, "/plugins/p/a?b=1&c");
    }

    #[test]
    fn cookie_belongs_to_one_plugin() {
        let access = SessionKey("key".into());
        let line = format!("{COOKIE_NAME}={}", access.cookie("a"));
        let mut given = HeaderMap::from_iter([(COOKIE, line.parse().unwrap())]);
        let mut uri = Uri::from_static("/");
        let presented = access.take("b", &mut given.clone(), &mut uri);
        assert!(!presented.cookie);
        assert!(access.take("a", &mut given, &mut uri).cookie);
        assert!(given.is_empty());
    }

    #[test]
    fn origin_must_be_the_host() {
        let is_same = |origin, host| is_same_origin(&headers(&[(ORIGIN, origin), (HOST, host)]));
        assert!(is_same("https://A.b:1", "a.b:1"));
        assert!(!is_same("https://a.b", "a.b:1"));
        assert!(!is_same("null", "null"));
        assert!(!is_same_origin(&headers(&[(HOST, "a")])));
    }

    #[test]
    fn redirects_stay_on_the_host() {
        let access = SessionKey("key".into());
        let to = |uri: &str, headers: &HeaderMap| {
            let response = access.remember("p", headers, &uri.parse().unwrap());
            response.headers()[header::LOCATION]
                .to_str()
                .unwrap()
                .to_owned()
        };
        let own_host = headers(&[(HeaderName::from_static(PLUGIN), "p")]);
        assert_eq!(to("/plugins/p//evil.com/a?b", &own_host), "/evil.com/a?b");
        assert_eq!(to("/plugins/p", &own_host), "/");
        let below = headers(&[(X_FORWARDED_PREFIX, "/id/runtime")]);
        assert_eq!(to("/plugins/p/a", &below), "/id/runtime/plugins/p/a");
    }
}
