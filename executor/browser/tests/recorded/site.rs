//! Site of the saved pages: files, and what files cannot answer (as `hack/browsergym/drivers.py` has it).

use std::panic::resume_unwind;
use std::path::PathBuf;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use serde::Deserialize;

/// Page of Python's server.
const MISSING: &str = "<!DOCTYPE HTML><html lang=en><head><meta charset=utf-8>\
    <title>Error response</title></head><body><h1>Error response</h1><p>Error code: 404</p>\
    <p>Message: File not found.</p>\
    <p>Error code explanation: 404 - Nothing matches the given URI.</p></body></html>";

#[derive(Deserialize)]
struct Redirect {
    to: Option<String>,
}

pub(super) fn router(pages: PathBuf) -> Router {
    Router::new()
        .route("/redirect", get(redirect))
        .route("/status/{code}", get(status))
        .route("/download/{name}", get(download))
        .route("/empty", get(async || end_connection()))
        .fallback(get(file).post(echo))
        .with_state(pages)
}

/// Ends the connection without a response.
fn end_connection() -> Response {
    resume_unwind(Box::new("no response"))
}

async fn redirect(Query(query): Query<Redirect>) -> Response {
    match query.to {
        Some(to) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
        None => end_connection(),
    }
}

async fn status(Path(code): Path<u16>) -> Response {
    let status = StatusCode::from_u16(code).unwrap();
    let page = Html(format!("<title>{code}</title><h1>Status {code}</h1>"));
    match status {
        StatusCode::NO_CONTENT => status.into_response(),
        _ => (status, page).into_response(),
    }
}

async fn download(State(pages): State<PathBuf>, Path(name): Path<String>) -> Response {
    let content = std::fs::read(pages.join("files").join(&name)).unwrap();
    let disposition = format!("attachment; filename={name}");
    ([(header::CONTENT_DISPOSITION, disposition)], content).into_response()
}

async fn echo(body: String) -> Html<String> {
    let body = body.replace('&', "&amp;").replace('<', "&lt;");
    Html(format!("<title>Echo</title><h1>Received</h1><p>{body}</p>"))
}

async fn file(State(pages): State<PathBuf>, uri: Uri) -> Response {
    let path = pages.join(uri.path().trim_start_matches('/'));
    let kind = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("xhtml") => "application/xhtml+xml",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json",
        Some("xml") => "text/xml",
        Some("txt") => "text/plain; charset=utf-8",
        Some("zip") => "application/zip",
        _ => "application/octet-stream",
    };
    match std::fs::read(path) {
        Ok(content) => ([(header::CONTENT_TYPE, kind)], content).into_response(),
        Err(_) => (StatusCode::NOT_FOUND, Html(MISSING)).into_response(),
    }
}
