//! Binary `sandbox-executor`.

use std::process::ExitCode;

use clap::Parser as _;
use executor::cli::Cli;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => executor::run(cli),
        Err(error) => {
            if error.use_stderr() {
                executor::write_usage_error(&error);
            }
            error.exit()
        }
    }
}
