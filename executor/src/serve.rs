//! Action execution server: the HTTP endpoint of OpenHands V0 clients inside a sandbox.
//!
//! The port opens only after the shell has started, so that every accepted request can be served.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fs::Mode;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::ServeOptions;
use crate::signals::Signals;
use crate::system;

use self::environment::Environment;
use self::executor::Executor;
use self::identity::Identity;
use self::own_plugin::OwnPlugin;
use self::port::Port;
use self::process_tree::ProcessSet;
use self::shell::LaunchContext;

mod action;
mod activity;
mod api;
mod dormant;
mod editor;
mod environment;
mod executor;
mod file_viewer;
mod files;
mod identity;
mod launch_dir;
mod local_http;
mod manifest;
mod mcp;
mod memory_monitor;
mod observation;
mod output_log;
mod output_tail;
mod own_plugin;
mod owner;
mod plugin_choice;
mod plugins;
mod port;
mod private_dir;
mod process_group;
mod process_tree;
#[cfg(any(test, feature = "fuzzing"))]
pub mod properties;
mod python_environment;
mod resource_usage;
mod sandbox_setup;
mod sandbox_usage;
mod settings;
mod shell;
mod terminals;
pub(crate) mod transfer;
mod users;

/// Server whose shell runs and whose port is bound.
#[derive(Debug)]
struct Server {
    options: ServeOptions,
    executor: Arc<Executor>,
    port: Port,
}

pub(crate) async fn run(mut options: ServeOptions) -> anyhow::Result<ExitCode> {
    resource_usage::open_io_counters();
    system::hide_from_own_user();
    options.check()?;
    let mut signals = Signals::new()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    process_tree::adopt_orphans()?;
    tokio::spawn(process_tree::reap_orphans());
    if options.dormant {
        options.defer_plugins();
    }
    let own_plugins = OwnPlugin::read_all(&options)?;
    let context = launch_context(&options, Environment::default(), &own_plugins)?;
    let identity = Arc::clone(&context.identity);
    let executor = Executor::start(context, &options, own_plugins).await?;
    let started = if options.dormant {
        Box::pin(dormant::wait(&options, executor, &mut signals)).await
    } else {
        Server::bind(options, executor).await.map(Some)
    };
    let (identity, outcome) = match started {
        Ok(Some(server)) => {
            let identity = Arc::clone(&server.executor.launch_context.identity);
            (identity, server.serve(&mut signals).await)
        }
        other => (identity, other.map(|_| ())),
    };
    ProcessSet::Own.kill_all(&identity).await;
    private_dir::remove_all(&identity).await;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Creates user and directory, and determines how programs start.
fn launch_context(
    options: &ServeOptions,
    environment: Environment,
    own_plugins: &[OwnPlugin],
) -> anyhow::Result<LaunchContext> {
    sandbox_setup::set_up(options)?;
    let environment = environment.with(own_plugins.iter().flat_map(OwnPlugin::provided));
    let identity = Identity::resolve(&options.username, options.change_user())?;
    Ok(LaunchContext {
        identity: Arc::new(identity),
        working_dir: options.working_dir.clone(),
        variables: python_environment::detect(Path::new("/"), environment.variable("PATH")),
        environment,
    })
}

impl Server {
    async fn bind(options: ServeOptions, executor: Executor) -> anyhow::Result<Self> {
        Ok(Self {
            port: Port::bind(&options).await?,
            executor: Arc::new(executor),
            options,
        })
    }

    /// Serves requests and starts the plugins, until a signal.
    async fn serve(self, signals: &mut Signals) -> anyhow::Result<()> {
        let (options, executor, stop) = (self.options, self.executor, self.port.stop.clone());
        // A bind address means a shared network, and the viewer does not check a key.
        if options.bind_address.is_none() {
            let identity = &executor.launch_context.identity;
            let (port, url_file) = (self.port.number, options.viewer_url_file.clone());
            if let Err(error) = file_viewer::start(identity, port, url_file, stop.clone()).await {
                tracing::warn!(%error, "cannot start the file viewer");
            }
        }
        let router = api::router(Arc::clone(&executor), &options.session_api_key);
        let serving = self.port.serve(router)?;
        let _memory_log = options
            .logs_memory()
            .then(|| AbortOnDropHandle::new(tokio::spawn(memory_monitor::log_memory())));
        let plugins = Arc::clone(&executor);
        let plugins =
            AbortOnDropHandle::new(tokio::spawn(async move { plugins.plugins.start().await }));
        signals.received().await;
        // Ends the running command, and with it the request that waits for its observation.
        stop.cancel();
        drop(plugins);
        executor.close().await;
        Ok(serving.await?)
    }
}
