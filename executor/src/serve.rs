//! The action execution server: what OpenHands V0 clients talk to inside a sandbox.
//!
//! The port opens only when the shell is up, so whoever reaches it is served.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::ServeOptions;
use crate::http_server::{self, Limits};

use self::executor::Executor;
use self::identity::Identity;
use self::processes::Family;
use self::settings::Settings;
use self::shell::Start;

mod action;
mod activity;
mod api;
mod children;
mod editor;
mod executor;
mod files;
mod group;
mod identity;
mod mcp;
mod observation;
mod plugins;
mod private;
mod processes;
#[cfg(any(test, feature = "fuzzing"))]
pub mod properties;
mod python;
mod resources;
mod set_up;
mod settings;
mod shell;
mod transfer;
mod users;
mod viewer;

const LIMITS: Limits = Limits {
    connections: 512,
    // Clients pool connections, and closing an idle one under them makes their next call fail.
    header_timeout: Duration::from_mins(5),
    grace: Duration::from_secs(2),
};

pub(crate) async fn run(options: ServeOptions) -> anyhow::Result<ExitCode> {
    let settings = Settings::check(options)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    children::adopt_orphans()?;
    tokio::spawn(children::reap_orphans());
    set_up::prepare(&settings)?;
    let identity = Arc::new(Identity::resolve(&settings)?);
    let start = Start {
        identity: Arc::clone(&identity),
        working_dir: settings.working_dir.clone(),
        max_memory_gib: settings.max_memory_gib,
    };
    let executor = Executor::start(start, &settings).await?;

    let address = settings
        .bind_address
        .unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let listener = http_server::bind(SocketAddr::new(address, settings.port)).await?;
    let stop = CancellationToken::new();
    // Its own address means that others share the network, and the viewer has no key.
    if settings.bind_address.is_none() {
        let port = listener.local_addr()?.port();
        let url_file = settings.viewer_url_file.clone();
        if let Err(error) = viewer::start(&identity, port, url_file, stop.clone()).await {
            tracing::warn!(%error, "there is no file viewer");
        }
    }
    http_server::announce(&listener)?;
    let plugins = Arc::clone(&executor);
    let plugins =
        AbortOnDropHandle::new(tokio::spawn(async move { plugins.plugins.start().await }));
    let router = api::router(Arc::clone(&executor), &settings.session_api_key);
    let signals = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // Ends the command under way, and with it the request that waits for it.
        stop.cancel();
        drop(plugins);
        executor.close().await;
    };
    tokio::join!(
        http_server::serve(listener, router, LIMITS, stop.clone()),
        signals
    );
    Family::Own.end(&identity).await;
    private::remove_all(&identity).await;
    Ok(ExitCode::SUCCESS)
}
