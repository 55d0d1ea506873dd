//! A started Chromium, and a server of pages.

use std::path::PathBuf;
use std::process::Stdio;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use browser::cdp::attach_pipe;
use browser::chromium::{self, LaunchOptions};
use browser::tabs::Tabs;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Child;

/// Ends with the test.
pub(crate) struct Chromium {
    pub(crate) tabs: Tabs,
    _directory: TempDir,
    _process: Child,
}

pub(crate) fn program() -> PathBuf {
    chromium::find(|name| std::env::var_os(name))
        .expect("Chromium is missing: hack/install browser")
}

impl Chromium {
    /// With a process for each site: frames of other sites are targets of their own.
    pub(crate) async fn start() -> Self {
        Self::launch(true).await
    }

    pub(crate) async fn start_as_in_sandboxes() -> Self {
        Self::launch(false).await
    }

    async fn launch(isolates_sites: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = LaunchOptions {
            program: program(),
            profile: directory.path().join("profile"),
            isolates_sites,
        };
        let mut command = options.command();
        let pipe = attach_pipe(&mut command).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let process = command.spawn().unwrap();
        let downloads = directory.path().join("downloads");
        let tabs = Tabs::connect(pipe, &downloads).await.unwrap();
        Self {
            tabs,
            _directory: directory,
            _process: process,
        }
    }
}

/// Serves pages by path; returns the base URL.
pub(crate) async fn serve(pages: &[(&'static str, &'static str)]) -> String {
    let router = pages.iter().fold(Router::new(), |router, &(path, text)| {
        router.route(path, get(async move || Html(text)))
    });
    serve_router(router).await
}

pub(crate) async fn serve_router(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}
