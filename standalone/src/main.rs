//! `sandbox-standalone`: Sandbox Operator on one machine, without a cluster.

use std::process::ExitCode;

use clap::Parser as _;
use standalone::{app, args::Args, node};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    // The process node starts this binary inside a container, where nothing else is at hand.
    if words.next_if(|word| word == node::EXEC_AS).is_some() {
        return node::exec_as(words);
    }
    match app::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-standalone: {error:#}");
            ExitCode::FAILURE
        }
    }
}
