//! Inner step of a container start: switches to the container's user and executes its command. The
//! same step runs further commands in a container, after [`join`].
//!
//! bubblewrap cannot switch users without a user namespace, so this binary is mounted into every
//! container and run there as `exec-as`. It runs before any thread exists and ends in `execve`.

mod join;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::num::ParseIntError;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Uid, close, setgid, setgroups, setuid};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Signal, ioctl_tiocsctty, set_parent_process_death_signal, setsid};
use rustix::stdio::{dup2_stdin, stdin};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use self::join::{confine, enter};

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
    /// Descriptor of the first process of a container to enter, before the command is run there.
    #[arg(long)]
    join: Option<i32>,
    /// The container to enter has a user namespace.
    #[arg(long)]
    join_user: bool,
    #[arg(long)]
    cgroup: Vec<PathBuf>,
    /// The command leads a session, with standard input as its terminal if it is one.
    #[arg(long)]
    session: bool,
    /// Standard input is a socket: the step sends a byte when the container is set up and waits for
    /// one before it executes the command.
    #[arg(long)]
    gate: bool,
    /// Descriptor of a user namespace to enter as its root, before bubblewrap.
    #[arg(long)]
    user_namespace: Option<u32>,
    /// Nothing in that user namespace may create others, whose capabilities would reach far more of
    /// the kernel: no filter denies it.
    #[arg(long)]
    deny_user_namespaces: bool,
    #[arg(long, allow_hyphen_values = true)]
    cwd: Option<PathBuf>,
    #[arg(last = true, required = true)]
    argv: Vec<OsString>,
}

fn capabilities(text: &str) -> Result<CapabilitySet, ParseIntError> {
    u64::from_str_radix(text, 16).map(CapabilitySet::from_bits_retain)
}

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

/// Runs `exec-as` with its arguments. Returns only if the command cannot be executed.
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
            if self.deny_user_namespaces {
                std::fs::write("/proc/sys/user/max_user_namespaces", "0")
                    .map_err(privileges("deny user namespaces"))?;
            }
            // The descriptors are those of bubblewrap.
            return Err(execute(program, arguments));
        }
        if let Some(init) = self.join {
            let entered = enter(init, self.join_user, &self.cgroup);
            entered.map_err(privileges("enter the container"))?;
            self.switch()?;
            confine().map_err(privileges("install the system call filter"))?;
            return Err(run_and_exit(program, arguments));
        }
        close_inherited();
        if self.gate && self.caps.contains(CapabilitySet::SYS_ADMIN) {
            mount_cgroup().map_err(privileges("mount the cgroup"))?;
        }
        if let Some(directory) = &self.cwd {
            // Container runtimes create a missing working directory as root.
            let _ = std::fs::create_dir_all(directory);
        }
        if self.uid.is_some() {
            self.switch()?;
        }
        if self.session {
            lead_session().map_err(privileges("lead a session"))?;
        }
        let directory = self.cwd.as_deref().unwrap_or(Path::new("/"));
        std::env::set_current_dir(directory)
            .map_err(|error| ExecError::Directory(directory.to_owned(), error))?;
        Err(execute(program, arguments))
    }

    /// Switches the user, if one is given, and drops capabilities.
    fn switch(&self) -> Result<(), ExecError> {
        drop_bounding(self.caps)?;
        if let Some(uid) = self.uid {
            let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            setgroups(&groups).map_err(privileges("set groups"))?;
            setgid(Gid::from_raw(self.gid.unwrap_or(uid))).map_err(privileges("set the group"))?;
            setuid(Uid::from_raw(uid)).map_err(privileges("set the user"))?;
        }
        clear_ambient_capability_set().map_err(privileges("clear ambient capabilities"))?;
        let held = if self.uid == Some(0) {
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

fn run_and_exit(program: &OsString, arguments: &[OsString]) -> ExecError {
    match Command::new(program).args(arguments).status() {
        Ok(status) => std::process::exit(
            status
                .code()
                .or(status.signal().map(|signal| 128 + signal))
                .unwrap_or(255),
        ),
        Err(error) => ExecError::Exec(program.clone(), error),
    }
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

/// Mounts the container's own cgroup, which runtimes of nested containers look for. Its files belong
/// to the host's root, so that no limit can be changed.
fn mount_cgroup() -> std::io::Result<()> {
    const TARGET: &str = "/sys/fs/cgroup";
    // bubblewrap made one before the node moved the container to its cgroup.
    unshare(CloneFlags::CLONE_NEWCGROUP)?;
    std::fs::create_dir_all(TARGET)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("cgroup2", TARGET, "cgroup2", flags, None)?)
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

fn lead_session() -> std::io::Result<()> {
    setsid()?;
    if stdin().is_terminal() {
        ioctl_tiocsctty(stdin())?;
    }
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
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
            join: None,
            join_user: false,
            cgroup: vec![],
            session: false,
            gate: false,
            user_namespace: None,
            deny_user_namespaces: false,
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
