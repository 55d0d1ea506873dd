//! What runs inside a sandbox: the supervisor (PID 1) and the action execution server.
//!
//! One static binary with three commands, so that one copy in a shared volume serves any image.

use std::process::ExitCode;

pub mod cli;
mod http_server;
mod install;
mod last_words;
mod serve;
mod supervise;
mod system;

#[cfg(any(test, feature = "fuzzing"))]
pub use serve::properties;

pub use last_words::leave_usage;

/// Runs the chosen command and turns its outcome into an exit status.
pub fn run(cli: cli::Cli) -> ExitCode {
    // One thread: a sandbox may have a tenth of a core, and idle memory is what pools pay for.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(dispatch(cli));
            // A blocked file operation must not hold up the exit.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("sandbox-executor: {error:#}");
        last_words::leave(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

async fn dispatch(cli: cli::Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        cli::Command::Install { directory } => {
            install::install(&directory)?;
            Ok(ExitCode::SUCCESS)
        }
        cli::Command::MakeDirectory { directory } => {
            install::make_directory(&directory);
            Ok(ExitCode::SUCCESS)
        }
        cli::Command::Supervise(options) => {
            log_to_stderr();
            supervise::run(options).await
        }
        cli::Command::Serve(options) => {
            log_to_stderr();
            serve::run(*options).await
        }
    }
}

fn log_to_stderr() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}
