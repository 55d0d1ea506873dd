//! The file viewer (spec 2.9): pages that show a picture or a document of the sandbox to its own
//! browser. It listens on the loopback interface only, has no key, and reads with the rights of the
//! sandbox user, so that it shows nobody inside more than they may see anyway.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::page::{Kind, Refusal};
use super::identity::Identity;
use super::private;
use crate::http_server::{self, Limits};

mod page;

const LIMITS: Limits = Limits {
    connections: 16,
    header_timeout: Duration::from_secs(30),
    grace: Duration::from_millis(100),
};
/// Ports above the server's that may be taken, and how many are tried.
const RANGE: u16 = 1024;
const TRIES: usize = 10;
/// Bytes of a file that is shown.
const MAX_FILE: u64 = 32 << 20;
/// Pages that are put together at once.
const MAX_PAGES: usize = 2;

#[derive(Debug)]
struct Viewer {
    identity: Arc<Identity>,
    slots: Semaphore,
}

/// Listens near the server's port and says where in a file that agents know. Without a free port
/// or that file there is no viewer.
pub(super) async fn start(
    identity: &Arc<Identity>,
    port: u16,
    url_file: PathBuf,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = bind(port).await?;
    let url = format!("http://localhost:{}", listener.local_addr()?.port());
    // In a directory of everybody: with rights that no link can abuse.
    identity.run(move || write(&url_file, &url)).await??;
    let viewer = Arc::new(Viewer {
        identity: Arc::clone(identity),
        slots: Semaphore::new(MAX_PAGES),
    });
    tokio::spawn(http_server::serve(listener, router(viewer), LIMITS, stop));
    Ok(())
}

async fn bind(port: u16) -> io::Result<TcpListener> {
    let width = RANGE.min(u16::MAX - port);
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..TRIES {
        let random = u16::from_le_bytes([private::random()?[0], private::random()?[1]]);
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

fn write(path: &Path, url: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644);
    options.open(path)?.write_all(url.as_bytes())
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

#[derive(Debug, Deserialize)]
struct Wanted {
    #[serde(default)]
    path: String,
}

async fn view(
    State(viewer): State<Arc<Viewer>>,
    Query(Wanted { path }): Query<Wanted>,
) -> Response {
    let status = |refusal: &Refusal| match refusal {
        Refusal::Relative | Refusal::Directory => StatusCode::BAD_REQUEST,
        Refusal::Missing => StatusCode::NOT_FOUND,
        Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    match viewer.show(&path).await {
        Ok(page) => Html(page).into_response(),
        Err(refusal) => (status(&refusal), Html(refusal.page(&path))).into_response(),
    }
}

impl Viewer {
    async fn show(&self, path: &str) -> Result<String, Refusal> {
        let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
        let _slot = self.slots.acquire().await.map_err(|error| failed(&error))?;
        let wanted = PathBuf::from(path);
        let read = self.identity.run(move || read(&wanted));
        let (kind, content) = read.await.map_err(|error| failed(&error))??;
        Ok(page::page(path, kind, &STANDARD.encode(content)))
    }
}

/// Blocks, and has the rights of the thread that calls it.
fn read(path: &Path) -> Result<(Kind, Vec<u8>), Refusal> {
    if !path.is_absolute() {
        return Err(Refusal::Relative);
    }
    if !path.exists() {
        return Err(Refusal::Missing);
    }
    if path.is_dir() {
        return Err(Refusal::Directory);
    }
    let kind = Kind::of(path)?;
    let failed = |text: String| Refusal::Failed(text);
    let found = path
        .metadata()
        .map_err(|error| failed(super::files::describe(&error, path)))?;
    if found.len() > MAX_FILE {
        return Err(failed(format!(
            "The file is larger than {} MiB",
            MAX_FILE >> 20
        )));
    }
    let content = super::files::bytes(path).map_err(|error| failed(error.to_string()))?;
    Ok((kind, content))
}
