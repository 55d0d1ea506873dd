//! Root of a process tree that can be saved: the subreaper of its command, so that daemons stay in
//! the tree. It passes signals on and ends with the status of the command.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::Pid;

use super::handle;
use super::reaper::{self, Reaper};
use crate::cli::TreeRootOptions;
use crate::termination_message;

/// Exit status for a program that cannot be run, as a shell reports it.
const NOT_EXECUTABLE: u8 = 126;

pub(crate) async fn run(options: &TreeRootOptions) -> anyhow::Result<ExitCode> {
    // The session is a part of the tree.
    rustix::process::setsid()?;
    let mut reaper = Reaper::new()?;
    let (name, arguments) = match options.words.split_first() {
        Some((name, arguments)) => (name.as_os_str(), arguments),
        None => (options.program.as_os_str(), &[][..]),
    };
    let mut command = Command::new(&options.program);
    command.arg0(name).args(arguments).process_group(0);
    let child = match command.spawn() {
        // The reaper waits for it by pid; dropping a `Child` has no effect.
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            let detail = format!("{} cannot be run: {error}", options.program.display());
            eprintln!("sandbox-executor: {detail}");
            termination_message::write_message(&detail);
            return Ok(ExitCode::from(NOT_EXECUTABLE));
        }
    };
    drop(command);
    // The writer of a pipe must see when the command has closed it.
    if let Ok(null) = File::open("/dev/null") {
        rustix::stdio::dup2_stdin(null)?;
    }
    loop {
        if let Some(code) = handle(reaper.next_event().await, child) {
            reaper::kill_all_children();
            return Ok(ExitCode::from(code));
        }
    }
}
