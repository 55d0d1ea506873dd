//! `sandbox-standalone`: Sandbox Operator on one machine, without a cluster.

use std::process::ExitCode;

use clap::Parser as _;
use standalone::args::{Args, Command};
use standalone::{app, images_command, node};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    // The node runs this binary in containers, where no other program is certain to exist.
    if args.next_if(|arg| arg == node::EXEC_AS).is_some() {
        return node::exec_as(args);
    }
    let args = Args::parse();
    let ran = match &args.command {
        None => app::run(&args),
        Some(Command::Images(command)) => images_command::run(&args, command),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-standalone: {error:#}");
            ExitCode::FAILURE
        }
    }
}
