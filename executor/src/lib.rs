//! Programs inside a sandbox: the supervisor (PID 1) and the action execution server. They are
//! one static binary, so that one copy on a shared volume works in any image.

use std::process::ExitCode;

use clap::Parser as _;

use self::cli::{Cli, Command};
use self::signals::Signals;

mod cli;
mod http_server;
mod install;
mod log;
mod open_path;
mod own_port;
mod serve;
mod signals;
mod supervise;
mod system;
mod termination_message;

#[cfg(any(test, feature = "fuzzing"))]
pub use serve::properties;

/// Runs the command line and returns the exit status.
pub fn run() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| end_with_usage(&error));
    // One thread: a sandbox may have a tenth of a core, and idle memory should stay small.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(dispatch(cli));
            // A blocked file operation must not delay the exit.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        if let Some(usage) = error.downcast_ref() {
            end_with_usage(usage);
        }
        eprintln!("sandbox-executor: {error:#}");
        termination_message::write_message(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Install { directory } => {
            install::install(&directory)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::MakeDirectory { directory } => {
            install::make_directory(&directory);
            Ok(ExitCode::SUCCESS)
        }
        Command::Hold => {
            Signals::new()?.received().await;
            Ok(ExitCode::SUCCESS)
        }
        Command::CheckRootOverlay { directory } => {
            supervise::check_root_overlay(&directory)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::CheckProcesses { directory } => {
            supervise::check_processes(&directory)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Supervise(options) => {
            system::hide_from_own_user();
            log::to_stderr(false);
            supervise::run(*options).await
        }
        Command::TreeRoot(options) => {
            system::hide_from_own_user();
            supervise::tree_root::run(&options).await
        }
        Command::Serve(options) => {
            log::to_stderr(options.logs_json());
            serve::run(*options).await
        }
    }
}

fn end_with_usage(error: &clap::Error) -> ! {
    if error.use_stderr() {
        termination_message::write_usage_error(error);
    }
    error.exit()
}
