//! Reverse proxy to the servers of plugins of users' own, at `/plugins/NAME/` (`docs/plugins.md`).
//!
//! Bodies are streamed in both directions, and any upgrade becomes a tunnel. Requests count as
//! activity of the sandbox until their end.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{
    CONNECTION, EXPECT, HOST, LOCATION, RETRY_AFTER, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::access::{PLUGINS, X_FORWARDED_PREFIX, public_root};
use super::error::detail;
use crate::serve::activity::ActivityGuard;
use crate::serve::executor::Executor;
use crate::serve::local_http;
use crds::contract::header::PLUGIN;

/// Requests and tunnels at once, to all plugins.
const MAX_REQUESTS: usize = 256;
/// Headers of one hop (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

static SLOTS: Semaphore = Semaphore::const_new(MAX_REQUESTS);

/// Held until the response or the tunnel has ended.
type Guards = (SemaphorePermit<'static>, ActivityGuard);

/// Forwards a request below `/plugins/NAME`.
pub(super) async fn forward(State(executor): State<Arc<Executor>>, request: Request) -> Response {
    let path = request
        .uri()
        .path()
        .strip_prefix(PLUGINS)
        .unwrap_or_default();
    let (name, has_tail) = match path.split_once('/') {
        Some((name, _)) => (name.to_owned(), true),
        None => (path.to_owned(), false),
    };
    let Some(plugin) = executor.plugins.own(&name) else {
        let text = "this sandbox has no plugin of this name";
        return detail(StatusCode::NOT_FOUND, text);
    };
    if let Some(problem) = plugin.problem() {
        return unavailable(&problem);
    }
    let Some(address) = plugin.address() else {
        let text = format!("the plugin {name} has no port");
        return detail(StatusCode::NOT_FOUND, &text);
    };
    if !has_tail {
        // Relative links of its first page would lead beside it.
        let root = public_root(&name, request.headers());
        let to = tail(request.uri(), &name).map(|tail| format!("{root}{tail}"));
        let location = [(LOCATION, to.unwrap_or_default())];
        return (StatusCode::PERMANENT_REDIRECT, location).into_response();
    }
    let Ok(slot) = SLOTS.try_acquire() else {
        return unavailable("too many requests to plugins");
    };
    let guards = (slot, executor.activity.begin());
    let Ok((request, client)) = to_plugin(request, &name) else {
        return detail(StatusCode::BAD_REQUEST, "the path is malformed");
    };
    match local_http::send(address, request).await {
        Ok(response) => to_client(response, client, guards),
        Err(error) => {
            tracing::debug!(name, %error, "a plugin does not answer");
            let text = format!("the plugin {name} does not answer: {error}");
            detail(StatusCode::BAD_GATEWAY, &text)
        }
    }
}

fn unavailable(text: &str) -> Response {
    let mut response = detail(StatusCode::SERVICE_UNAVAILABLE, text);
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, second);
    response
}

/// Path and query below `/plugins/NAME`. They are not decoded or resolved.
fn tail(uri: &Uri, name: &str) -> Result<PathAndQuery, http::uri::InvalidUri> {
    let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let tail = whole.get(PLUGINS.len() + name.len()..).unwrap_or_default();
    let slash = if tail.starts_with('/') { "" } else { "/" };
    format!("{slash}{tail}").parse()
}

/// The request for the plugin, and the connection of a client that wants to switch protocols.
fn to_plugin(
    mut request: Request,
    name: &str,
) -> Result<(Request, Option<OnUpgrade>), http::uri::InvalidUri> {
    let protocol = request.headers().get(UPGRADE).cloned();
    let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
    let (mut parts, body) = request.into_parts();
    let root = HeaderValue::try_from(public_root(name, &parts.headers));
    let host = parts.uri.authority().map(ToString::to_string);
    parts.uri = tail(&parts.uri, name)?.into();
    parts.version = http::Version::HTTP_11;
    parts.extensions.clear();
    let headers = &mut parts.headers;
    strip_hop_by_hop(headers);
    for name in [EXPECT, HeaderName::from_static(PLUGIN), X_FORWARDED_PREFIX] {
        headers.remove(name);
    }
    if let Some(root) = root.ok().filter(|root| !root.is_empty()) {
        headers.insert(X_FORWARDED_PREFIX, root);
    }
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    if !headers.contains_key(HOST) {
        let host = host.and_then(|host| HeaderValue::try_from(host).ok());
        headers.insert(HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
    }
    Ok((Request::from_parts(parts, body), client))
}

fn to_client(
    mut response: http::Response<Incoming>,
    client: Option<OnUpgrade>,
    guards: Guards,
) -> Response {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else {
            return detail(StatusCode::BAD_GATEWAY, "the plugin has switched protocols");
        };
        let plugin = hyper::upgrade::on(&mut response);
        tokio::spawn(tunnel(client, plugin, guards));
        return response.map(|_| Body::empty());
    }
    strip_hop_by_hop(response.headers_mut());
    let body = |body: Incoming| {
        Body::new(body.map_frame(move |frame| {
            let _guards = &guards;
            frame
        }))
    };
    response.map(body)
}

/// Copies in both directions until both ends are closed.
async fn tunnel(client: OnUpgrade, plugin: OnUpgrade, _guards: Guards) {
    let copied = async {
        let (client, plugin) = tokio::try_join!(client, plugin)?;
        let (mut client, mut plugin) = (TokioIo::new(client), TokioIo::new(plugin));
        let copied = tokio::io::copy_bidirectional(&mut client, &mut plugin).await;
        Ok::<_, hyper::Error>(copied)
    };
    if let Err(error) = copied.await {
        tracing::debug!(%error, "a tunnel to a plugin was not opened");
    }
}

/// Removes headers of one hop, also those that `Connection` names.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let lines = headers.get_all(CONNECTION).iter();
    let named = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let named = named.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    let named: Vec<_> = named.filter(|name| *name != HOST).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}
