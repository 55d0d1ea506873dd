//! Dormant server (`docs/specs/executor.md`, section 1.12): shell and plugins of a warm Pod start
//! before its sandbox is known. The init message then turns it into the server of that sandbox.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crds::contract::control::Init;

use super::environment::Environment;
use super::executor::Executor;
use super::identity::Identity;
use super::own_plugin::OwnPlugin;
use super::port::Port;
use super::shell::LaunchContext;
use super::{Server, launch_context};
use crate::cli::ServeOptions;
use crate::log;
use crate::open_path::create_directory;
use crate::signals::Signals;

mod init_message;

/// Interval of commands without effect in the shell.
const TOUCH_INTERVAL: Duration = Duration::from_mins(1);

/// Options and context of the sandbox that an init message names.
struct Claim {
    options: ServeOptions,
    start: LaunchContext,
    own_plugins: Vec<OwnPlugin>,
}

/// Waits for the init message and returns the server of its sandbox; `None` after a signal.
///
/// # Errors
/// If there is no valid message, or that server cannot start.
pub(super) async fn wait(
    options: &ServeOptions,
    executor: Executor,
    signals: &mut Signals,
) -> anyhow::Result<Option<Server>> {
    let claimed = tokio::select! {
        () = signals.received() => Ok(None),
        claimed = claim(options, &executor) => claimed.map(Some),
    };
    let (claim, port) = match claimed {
        Ok(Some(claimed)) => claimed,
        other => {
            executor.close().await;
            return other.map(|_| None);
        }
    };
    let resuming = executor.resume(claim.start, &claim.options, claim.own_plugins);
    let executor = resuming.await?;
    Ok(Some(Server {
        options: claim.options,
        executor: Arc::new(executor),
        port,
    }))
}

/// Answers 503 until the init message.
async fn claim(options: &ServeOptions, executor: &Executor) -> anyhow::Result<(Claim, Port)> {
    // Their health shows errors later; a claim starts them again.
    executor.plugins.start().await;
    let port = Port::bind_dormant(options).await?;
    let mut message = pin!(init_message::read(tokio::io::stdin()));
    let init = loop {
        tokio::select! {
            message = &mut message => break message?,
            () = tokio::time::sleep(TOUCH_INTERVAL) => executor.touch_shell().await,
        }
    };
    let claim = prepare(init, &executor.launch_context.identity)?;
    let port = port.resume(&claim.options).await?;
    Ok((claim, port))
}

/// Does what precedes the shell in the start of the command of the message.
fn prepare(init: Init, before: &Arc<Identity>) -> anyhow::Result<Claim> {
    let options = ServeOptions::parse(&init.command, &init.environment)?;
    log::to_stderr(options.logs_json());
    enter(Path::new(&init.working_dir));
    options.check()?;
    let own_plugins = OwnPlugin::read_all(&options)?;
    let environment = Environment::new(init.environment);
    let mut start = launch_context(&options, environment, &own_plugins)?;
    if before.is_same_user(&start.identity) {
        // Shell and plugins compare it.
        start.identity = Arc::clone(before);
    }
    Ok(Claim {
        options,
        start,
        own_plugins,
    })
}

/// Changes to the directory, which is created if it is missing, or to `/`.
fn enter(directory: &Path) {
    let created = directory.is_dir() || create_directory(directory).is_ok();
    if !created || std::env::set_current_dir(directory).is_err() {
        let directory = directory.display();
        tracing::warn!(%directory, "cannot enter the working directory; using /");
        let _ = std::env::set_current_dir("/");
    }
}
