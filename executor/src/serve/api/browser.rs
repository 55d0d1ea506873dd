//! Browser of the sandbox for people and programs outside: a live view, and the `DevTools` protocol
//! as Playwright and Puppeteer expect it (`docs/browser.md`). Each is off unless `--plugins` asks.

use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use browser::tabs::{Tabs, TargetId};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::json;

use super::access::{SameOrigin, public_root};
use super::error::detail;
use crate::serve::executor::Executor;
use crate::serve::plugins::browser::Browser;

mod relay;
mod view;

/// Longest message of a client: scripts that it evaluates, files that it uploads.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
const NAME: &str = "browser";
/// The page loads nothing but its own socket.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    connect-src 'self'; frame-ancestors 'none'";

pub(super) fn router() -> Router<Arc<Executor>> {
    let at = |path: &str| format!("/plugins/{NAME}{path}");
    Router::new()
        .route(&at("/"), get(page))
        .route(&at("/view"), get(watch))
        .route(&at("/json"), get(list))
        .route(&at("/json/"), get(list))
        .route(&at("/json/list"), get(list))
        .route(&at("/json/list/"), get(list))
        .route(&at("/json/version"), get(version))
        .route(&at("/json/version/"), get(version))
        .route(&at("/devtools/browser/{id}"), get(connect_browser))
        .route(&at("/devtools/page/{id}"), get(connect_page))
}

/// A part of the browser that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    View,
    Cdp,
}

/// The browser, if the part is on. Does not start it.
fn browser(executor: &Executor, part: Part) -> Option<&Browser> {
    let browser = executor.plugins.browser.as_ref();
    browser.filter(|browser| match part {
        Part::View => browser.settings.offers_view,
        Part::Cdp => browser.settings.offers_cdp,
    })
}

fn not_offered(part: Part) -> Response {
    let option = match part {
        Part::View => "view",
        Part::Cdp => "cdp",
    };
    let text = format!("not offered: --plugins {NAME}:{option} offers it");
    detail(StatusCode::NOT_FOUND, &text)
}

/// The tabs of the running browser; it is started if necessary.
async fn tabs(executor: &Executor, part: Part) -> Result<Tabs, Response> {
    let browser = browser(executor, part).ok_or_else(|| not_offered(part))?;
    let tabs = browser.tabs().await;
    tabs.ok_or_else(|| {
        detail(
            StatusCode::SERVICE_UNAVAILABLE,
            "the browser does not start",
        )
    })
}

async fn page(State(executor): State<Arc<Executor>>) -> Response {
    if browser(&executor, Part::View).is_none() {
        return not_offered(Part::View);
    }
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let text = include_str!("../plugins/browser/view.html");
    (headers, Html(text)).into_response()
}

async fn watch(
    State(executor): State<Arc<Executor>>,
    _: SameOrigin,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Response> {
    if browser(&executor, Part::View).is_none() {
        return Err(not_offered(Part::View));
    }
    let serve = async move |socket: WebSocket| view::serve(&executor, socket).await;
    let upgrade = upgrade.max_message_size(view::MAX_INPUT_BYTES);
    Ok(upgrade.on_upgrade(serve))
}

async fn version(
    State(executor): State<Arc<Executor>>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let tabs = tabs(&executor, Part::Cdp).await?;
    let described = tabs.version().await.map_err(unavailable)?;
    Ok(Json(json!({
        "Browser": described.product,
        "Protocol-Version": described.protocol_version,
        "User-Agent": described.user_agent,
        "V8-Version": described.js_version,
        "webSocketDebuggerUrl": format!("{}/devtools/browser/sandbox", socket_base(&headers)),
    }))
    .into_response())
}

async fn list(
    State(executor): State<Arc<Executor>>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let tabs = tabs(&executor, Part::Cdp).await?;
    let base = socket_base(&headers);
    let pages = tabs.list().into_iter().map(|tab| {
        json!({
            "id": tab.id,
            "type": "page",
            "title": tab.title,
            "url": tab.url,
            "webSocketDebuggerUrl": format!("{base}/devtools/page/{}", tab.id),
        })
    });
    Ok(Json(pages.collect::<Vec<_>>()).into_response())
}

async fn connect_browser(
    State(executor): State<Arc<Executor>>,
    Path(_): Path<String>,
    _: SameOrigin,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Response> {
    connect(executor, None, upgrade).await
}

async fn connect_page(
    State(executor): State<Arc<Executor>>,
    Path(id): Path<String>,
    _: SameOrigin,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Response> {
    connect(executor, Some(TargetId::from(id.as_str())), upgrade).await
}

async fn connect(
    executor: Arc<Executor>,
    tab: Option<TargetId>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Response> {
    let tabs = tabs(&executor, Part::Cdp).await?;
    if tab.as_ref().is_some_and(|tab| tabs.get(tab).is_none()) {
        return Err(detail(StatusCode::NOT_FOUND, "no such page"));
    }
    let relay = tabs.relay(tab.as_ref()).await.map_err(unavailable)?;
    let serve = async move |socket: WebSocket| relay::serve(&executor, relay, socket).await;
    Ok(upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .on_upgrade(serve))
}

fn unavailable(error: impl std::fmt::Display) -> Response {
    detail(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
}

/// `ws://HOST/PREFIX` as the client sees this server.
fn socket_base(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).map(HeaderValue::to_str)?.ok();
    let scheme = match text("x-forwarded-proto") {
        Some("https") => "wss",
        _ => "ws",
    };
    let host = text("x-forwarded-host")
        .or_else(|| text("host"))
        .unwrap_or_default();
    format!("{scheme}://{host}{}", public_root(NAME, headers))
}

/// Ends a socket whose browser has ended.
async fn close(mut socket: WebSocket) {
    let _ = socket.send(Message::Close(None)).await;
}
