//! Binary of controller, gateway and administrative commands.

use std::process::ExitCode;

use clap::Parser as _;
use operator::args::Args;

#[tokio::main]
async fn main() -> ExitCode {
    match Args::parse().run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}
