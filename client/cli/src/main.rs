//! The command `sandbox`, which is also the kubectl plugin `kubectl sandbox`.

mod args;
mod commands;
mod connect;
mod console;
mod copy;
mod failure;
mod installation;
mod kubernetes;
mod names;
mod output;
mod progress;
mod table;
mod text;
mod timeline;

use std::process::ExitCode;

use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(commands::run(cli));
            progress::clear();
            // Blocked reads of a terminal must not hold up the end.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(Failure::from(error)),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.is_intended() {
                output::note(&format!("error: {failure}"));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
