//! File viewer (`docs/specs/executor.md`, section 2.9): pages that show an image or a PDF of the
//! sandbox to a browser inside it.
//!
//! It listens on loopback without a key and reads as the sandbox user, so that a process inside
//! gains no access.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::page::ViewError;
use super::files;
use super::identity::Identity;
use super::private_dir;
use crate::http_server::{self, Limits};

mod page;

const LIMITS: Limits = Limits {
    connections: 16,
    header_timeout: Duration::from_secs(30),
    grace: Duration::from_millis(100),
};
/// The port is one of the next `PORT_RANGE` ones after the server's.
const PORT_RANGE: u16 = 1024;
const MAX_BIND_ATTEMPTS: usize = 10;
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Pages that are rendered concurrently.
const MAX_PAGES: usize = 2;

#[derive(Debug)]
struct Viewer {
    identity: Arc<Identity>,
    slots: Semaphore,
}

/// Listens near the server's port and writes the URL to a file that agents read. Fails if no port
/// is free or the file cannot be written.
pub(super) async fn start(
    identity: &Arc<Identity>,
    port: u16,
    url_file: PathBuf,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = bind(port).await?;
    let url = format!("http://localhost:{}", listener.local_addr()?.port());
    // The directory may be world-writable: written as the user, so that a link cannot be abused.
    identity
        .run(move || std::fs::write(url_file, url))
        .await??;
    let viewer = Arc::new(Viewer {
        identity: Arc::clone(identity),
        slots: Semaphore::new(MAX_PAGES),
    });
    tokio::spawn(http_server::serve(listener, router(viewer), LIMITS, stop));
    Ok(())
}

async fn bind(port: u16) -> io::Result<TcpListener> {
    let width = PORT_RANGE.min(u16::MAX - port);
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..MAX_BIND_ATTEMPTS {
        let [low, high, ..] = private_dir::random()?;
        let random = u16::from_le_bytes([low, high]);
        let candidate = match width {
            0 => 0,
            width => port + 1 + random % width,
        };
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), candidate);
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn router(viewer: Arc<Viewer>) -> Router {
    Router::new()
        .route(
            "/",
            get(async || Json(json!({"status": "File viewer server is running"}))),
        )
        .route("/view", get(view))
        .route("/pdf.min.mjs", get(async || script(page::PDF)))
        .route(
            "/pdf.worker.min.mjs",
            get(async || script(page::PDF_WORKER)),
        )
        .with_state(viewer)
}

fn script(packed: &'static [u8]) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript"),
        (header::CONTENT_ENCODING, "gzip"),
    ];
    (headers, packed).into_response()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ViewQuery {
    path: String,
}

async fn view(
    State(viewer): State<Arc<Viewer>>,
    Query(ViewQuery { path }): Query<ViewQuery>,
) -> Response {
    match viewer.show(&path).await {
        Ok(page) => Html(page).into_response(),
        Err(error) => {
            let (status, page) = error.page(&path);
            (status, Html(page)).into_response()
        }
    }
}

impl Viewer {
    async fn show(&self, path: &str) -> Result<String, ViewError> {
        let failed = |error: &dyn std::fmt::Display| ViewError::Failed(error.to_string());
        let _slot = self.slots.acquire().await.map_err(|error| failed(&error))?;
        let wanted = PathBuf::from(path);
        let read = self.identity.run(move || read(&wanted));
        let (media_type, content) = read.await.map_err(|error| failed(&error))??;
        Ok(page::page(path, media_type, &STANDARD.encode(content)))
    }
}

/// Reads a file. Blocks, and uses the credentials of the calling thread.
fn read(path: &Path) -> Result<(&'static str, Vec<u8>), ViewError> {
    if !path.is_absolute() {
        return Err(ViewError::Relative);
    }
    if !path.exists() {
        return Err(ViewError::Missing);
    }
    if path.is_dir() {
        return Err(ViewError::Directory);
    }
    let media_type = page::media_type(path)?;
    let system = |error| ViewError::Failed(files::describe(&error, path));
    if path.metadata().map_err(system)?.len() > MAX_FILE_BYTES {
        let text = format!("The file is larger than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(ViewError::Failed(text));
    }
    let content = files::bytes(path).map_err(|error| ViewError::Failed(error.to_string()))?;
    Ok((media_type, content))
}
