//! The binary of every sandbox: `install`, `supervise` and `serve`.

use std::process::ExitCode;

use clap::Parser as _;
use executor::cli::Cli;

fn main() -> ExitCode {
    executor::run(Cli::parse())
}
