//! Inner step of a container start: switches to the container's user and executes its command.
//!
//! bubblewrap cannot switch users without a user namespace, so this binary is mounted into every
//! container and run there as `exec-as`. It runs before any thread exists and ends in `execve`.

use std::convert::Infallible;
use std::ffi::OsString;
use std::num::ParseIntError;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid, close, setgid, setgroups, setuid};
use rustix::io::Errno;
use rustix::stdio::{dup2_stdin, stdin};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Name of the internal subcommand.
pub const EXEC_AS: &str = "exec-as";

/// Exit codes of shells: found but not executable, and not found.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Arguments of the subcommand.
#[derive(Debug, Parser, PartialEq, Eq)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct ExecStep {
    #[arg(long)]
    uid: Option<u32>,
    #[arg(long)]
    gid: Option<u32>,
    #[arg(long, value_delimiter = ',')]
    groups: Vec<u32>,
    /// Hexadecimal.
    #[arg(long, default_value = "0", value_parser = capabilities)]
    caps: CapabilitySet,
    #[arg(long)]
    no_new_privs: bool,
    /// Standard input is a socket: the step sends a byte when the container is set up and waits for
    /// one before it executes the command.
    #[arg(long)]
    gate: bool,
    /// Descriptor of a user namespace to enter as its root, before bubblewrap.
    #[arg(long)]
    user_namespace: Option<u32>,
    #[arg(long, allow_hyphen_values = true)]
    cwd: Option<PathBuf>,
    #[arg(last = true, required = true)]
    argv: Vec<OsString>,
}

fn capabilities(text: &str) -> Result<CapabilitySet, ParseIntError> {
    u64::from_str_radix(text, 16).map(CapabilitySet::from_bits_retain)
}

/// The command cannot be executed.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("exec-as: {0}")]
    Arguments(#[from] clap::Error),
    #[error("exec-as: no command")]
    NoCommand,
    #[error("the node is gone: {0}")]
    Gate(std::io::Error),
    #[error("cannot {0}: {1}")]
    Privileges(&'static str, std::io::Error),
    #[error("cannot enter {0}: {1}")]
    Directory(PathBuf, std::io::Error),
    #[error("cannot execute {0:?}: {1}")]
    Exec(OsString, std::io::Error),
}

/// Runs `exec-as` with the arguments after the subcommand. Returns the exit code only if the command
/// cannot be executed.
pub fn exec_as(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let step = ExecStep::try_parse_from(args).map_err(ExecError::from);
    let Err(error) = step.and_then(ExecStep::run);
    eprintln!("sandbox-node: {error}");
    match error {
        ExecError::Exec(_, source) if source.kind() == std::io::ErrorKind::NotFound => {
            ExitCode::from(NOT_FOUND)
        }
        _ => ExitCode::from(NOT_EXECUTABLE),
    }
}

impl ExecStep {
    fn run(self) -> Result<Infallible, ExecError> {
        let (program, arguments) = self.argv.split_first().ok_or(ExecError::NoCommand)?;
        if self.gate {
            wait_for_start_gate().map_err(ExecError::Gate)?;
        }
        if let Some(namespace) = self.user_namespace {
            enter_user_namespace(namespace)?;
            // The descriptors are those of bubblewrap.
            return Err(execute(program, arguments));
        }
        close_inherited();
        if let Some(directory) = &self.cwd {
            // Container runtimes create a missing working directory as root.
            let _ = std::fs::create_dir_all(directory);
        }
        if let Some(uid) = self.uid {
            self.switch(uid)?;
        }
        if self.no_new_privs {
            set_no_new_privs(true).map_err(privileges("set no_new_privs"))?;
        }
        let directory = self.cwd.as_deref().unwrap_or(Path::new("/"));
        std::env::set_current_dir(directory)
            .map_err(|error| ExecError::Directory(directory.to_owned(), error))?;
        Err(execute(program, arguments))
    }

    fn switch(&self, uid: u32) -> Result<(), ExecError> {
        drop_bounding(self.caps)?;
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        setgroups(&groups).map_err(privileges("set groups"))?;
        setgid(Gid::from_raw(self.gid.unwrap_or(uid))).map_err(privileges("set the group"))?;
        setuid(Uid::from_raw(uid)).map_err(privileges("set the user"))?;
        clear_ambient_capability_set().map_err(privileges("clear ambient capabilities"))?;
        let held = if uid == 0 {
            self.caps
        } else {
            CapabilitySet::empty()
        };
        let sets = CapabilitySets {
            effective: held,
            permitted: held,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).map_err(privileges("set capabilities"))
    }
}

fn execute(program: &OsString, arguments: &[OsString]) -> ExecError {
    let error = Command::new(program).args(arguments).exec();
    ExecError::Exec(program.clone(), error)
}

/// Becomes root of the namespace. bubblewrap can only create namespaces with a single user.
fn enter_user_namespace(descriptor: u32) -> Result<(), ExecError> {
    let namespace = std::fs::File::open(format!("/proc/self/fd/{descriptor}"));
    let namespace = namespace.map_err(privileges("open the user namespace"))?;
    setns(namespace, CloneFlags::CLONE_NEWUSER).map_err(privileges("enter the user namespace"))?;
    setgroups(&[]).map_err(privileges("set groups"))?;
    setgid(Gid::from_raw(0)).map_err(privileges("set the group"))?;
    setuid(Uid::from_raw(0)).map_err(privileges("set the user"))
}

/// Reports to the node, waits for its permission, and replaces standard input by `/dev/null`.
fn wait_for_start_gate() -> std::io::Result<()> {
    let mut byte = [0];
    rustix::io::write(stdin(), b"+")?;
    if rustix::io::read(stdin(), &mut byte)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(())
}

fn privileges<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> ExecError {
    move |error| ExecError::Privileges(what, error.into())
}

/// Drops all other capabilities from the bounding set.
fn drop_bounding(keep: CapabilitySet) -> Result<(), ExecError> {
    for bit in (0..u64::BITS).map(|shift| 1 << shift) {
        let capability = CapabilitySet::from_bits_retain(bit);
        if keep.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // Beyond the last capability of this kernel.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(privileges("drop capabilities")(error)),
        }
    }
    Ok(())
}

/// Closes descriptors that were inherited without close-on-exec.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd");
    let open = open.into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        let _ = close(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ExecStep, clap::Error> {
        ExecStep::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn arguments_of_command_are_kept() {
        let step = parsed("--uid 7 --gid 8 --groups 1,2 --caps c0 --cwd -w -- ls --uid 9").unwrap();
        let expected = ExecStep {
            uid: Some(7),
            gid: Some(8),
            groups: vec![1, 2],
            caps: CapabilitySet::from_bits_retain(0xc0),
            no_new_privs: false,
            gate: false,
            user_namespace: None,
            cwd: Some("-w".into()),
            argv: vec!["ls".into(), "--uid".into(), "9".into()],
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn malformed_input_is_rejected() {
        let lines = "--uid; --uid x -- ls; --caps g -- ls; ls; ; --gate --";
        for line in lines.split(';') {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
