//! Action execution server: the HTTP endpoint of OpenHands V0 clients inside a sandbox.
//!
//! The port opens only after the shell has started, so that every accepted request can be served.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::ServeOptions;
use crate::http_server::{self, Limits};
use crate::system;

use self::executor::Executor;
use self::identity::Identity;
use self::process_tree::ProcessSet;
use self::shell::LaunchContext;

mod action;
mod activity;
mod api;
mod editor;
mod executor;
mod file_viewer;
mod files;
mod identity;
mod launch_dir;
mod mcp;
mod memory_monitor;
mod observation;
mod owner;
mod plugins;
mod private_dir;
mod process_group;
mod process_tree;
#[cfg(any(test, feature = "fuzzing"))]
pub mod properties;
mod python_environment;
mod python_repr;
mod resource_usage;
mod sandbox_setup;
mod settings;
mod shell;
mod transfer;
mod users;

const LIMITS: Limits = Limits {
    connections: 512,
    // Clients pool connections. A shorter limit would make their next call on an idle one fail.
    header_timeout: Duration::from_mins(5),
    grace: Duration::from_secs(2),
};

pub(crate) async fn run(options: ServeOptions) -> anyhow::Result<ExitCode> {
    resource_usage::open_io_counters();
    system::hide_from_own_user();
    options.check()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    process_tree::adopt_orphans()?;
    tokio::spawn(process_tree::reap_orphans());
    sandbox_setup::set_up(&options)?;
    let identity = Arc::new(Identity::resolve(&options.username, options.change_user())?);
    let start = LaunchContext {
        identity: Arc::clone(&identity),
        working_dir: options.working_dir.clone(),
        variables: python_environment::detect(Path::new("/"), std::env::var_os("PATH")),
    };
    let executor = Executor::start(start, &options).await?;

    let address = options.bind_address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let listener = http_server::bind(SocketAddr::new(address, options.port)).await?;
    let stop = CancellationToken::new();
    // A bind address means a shared network, and the viewer does not check a key.
    if options.bind_address.is_none() {
        let port = listener.local_addr()?.port();
        let url_file = options.viewer_url_file.clone();
        if let Err(error) = file_viewer::start(&identity, port, url_file, stop.clone()).await {
            tracing::warn!(%error, "cannot start the file viewer");
        }
    }
    http_server::announce(&listener)?;
    let _memory_log = options
        .logs_memory()
        .then(|| AbortOnDropHandle::new(tokio::spawn(memory_monitor::log_memory())));
    let plugins = Arc::clone(&executor);
    let plugins =
        AbortOnDropHandle::new(tokio::spawn(async move { plugins.plugins.start().await }));
    let router = api::router(Arc::clone(&executor), &options.session_api_key);
    let signals = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // Ends the running command, and with it the request that waits for its observation.
        stop.cancel();
        drop(plugins);
        executor.close().await;
    };
    tokio::join!(
        http_server::serve(listener, router, LIMITS, stop.clone()),
        signals
    );
    ProcessSet::Own.kill_all(&identity).await;
    private_dir::remove_all(&identity).await;
    Ok(ExitCode::SUCCESS)
}
