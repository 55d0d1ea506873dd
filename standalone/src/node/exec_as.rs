//! Inner step of a container start: switches to the container's user and executes its command.
//!
//! bubblewrap cannot switch users without a user namespace, so this binary is mounted into every
//! container and run there as `exec-as`. It runs before any thread exists and ends in `execve`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

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

/// Parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExecStep {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Vec<u32>,
    capabilities: u64,
    no_new_privs: bool,
    gate: bool,
    /// Descriptor of a user namespace to enter as its root, before bubblewrap.
    user_namespace: Option<u32>,
    directory: Option<PathBuf>,
    argv: Vec<OsString>,
}

/// The command cannot be executed.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("exec-as: bad argument {0:?}")]
    Argument(OsString),
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

/// Runs `exec-as`; `args` are those after the subcommand: `[--uid U --gid G] [--groups A,B] [--caps
/// HEX] [--no-new-privs] [--gate] [--cwd DIR] -- ARGV…`. With `--gate`, standard input is a socket:
/// the step sends a byte when the container is set up and waits for one before it executes the
/// command.
///
/// Returns the exit code only if the command cannot be executed.
pub fn exec_as(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let error = match parse(args).and_then(ExecStep::run) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    eprintln!("sandbox-node: {error}");
    match error {
        ExecError::Exec(_, source) if source.kind() == std::io::ErrorKind::NotFound => {
            ExitCode::from(NOT_FOUND)
        }
        _ => ExitCode::from(NOT_EXECUTABLE),
    }
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<ExecStep, ExecError> {
    let mut args = args.into_iter();
    let mut step = ExecStep::default();
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| ExecError::Argument(flag.clone()));
        match flag.to_str() {
            Some("--uid") => step.uid = Some(number(&value()?)?),
            Some("--gid") => step.gid = Some(number(&value()?)?),
            Some("--groups") => step.groups = numbers(&value()?)?,
            Some("--caps") => step.capabilities = hexadecimal(&value()?)?,
            Some("--no-new-privs") => step.no_new_privs = true,
            Some("--gate") => step.gate = true,
            Some("--user-namespace") => step.user_namespace = Some(number(&value()?)?),
            Some("--cwd") => step.directory = Some(value()?.into()),
            Some("--") => step.argv = args.by_ref().collect(),
            _ => return Err(ExecError::Argument(flag)),
        }
    }
    Ok(step)
}

fn number(value: &OsStr) -> Result<u32, ExecError> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| ExecError::Argument(value.to_owned()))
}

fn numbers(value: &OsStr) -> Result<Vec<u32>, ExecError> {
    let text = value.to_str().unwrap_or_default();
    text.split(',').map(|part| number(part.as_ref())).collect()
}

fn hexadecimal(value: &OsStr) -> Result<u64, ExecError> {
    let number = value
        .to_str()
        .and_then(|text| u64::from_str_radix(text, 16).ok());
    number.ok_or_else(|| ExecError::Argument(value.to_owned()))
}

impl ExecStep {
    fn run(self) -> Result<std::convert::Infallible, ExecError> {
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
        if let Some(directory) = &self.directory {
            // Container runtimes create a missing working directory as root.
            let _ = std::fs::create_dir_all(directory);
        }
        if let Some(uid) = self.uid {
            self.switch(uid)?;
        }
        if self.no_new_privs {
            set_no_new_privs(true).map_err(privileges("set no_new_privs"))?;
        }
        self.enter_directory()?;
        Err(execute(program, arguments))
    }

    fn enter_directory(&self) -> Result<(), ExecError> {
        let directory = self.directory.as_deref().unwrap_or(Path::new("/"));
        std::env::set_current_dir(directory)
            .map_err(|error| ExecError::Directory(directory.to_owned(), error))
    }

    fn switch(&self, uid: u32) -> Result<(), ExecError> {
        let keep = CapabilitySet::from_bits_retain(self.capabilities);
        drop_bounding(keep)?;
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        setgroups(&groups).map_err(privileges("set groups"))?;
        setgid(Gid::from_raw(self.gid.unwrap_or(uid))).map_err(privileges("set the group"))?;
        setuid(Uid::from_raw(uid)).map_err(privileges("set the user"))?;
        clear_ambient_capability_set().map_err(privileges("clear ambient capabilities"))?;
        let held = if uid == 0 {
            keep
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
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let numbers: Vec<i32> = numbers.filter(|number| *number > 2).collect();
    for number in numbers {
        let _ = close(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ExecStep, ExecError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn parse_keeps_arguments_of_command() {
        let step = parsed("--uid 7 --gid 8 --groups 1,2 --caps c0 --cwd /w -- ls --uid 9").unwrap();
        let expected = ExecStep {
            uid: Some(7),
            gid: Some(8),
            groups: vec![1, 2],
            capabilities: 0xc0,
            no_new_privs: false,
            gate: false,
            user_namespace: None,
            directory: Some("/w".into()),
            argv: vec!["ls".into(), "--uid".into(), "9".into()],
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn malformed_input_is_rejected() {
        assert!(parsed("--uid").is_err());
        assert!(parsed("--uid x -- ls").is_err());
        assert!(parsed("ls").is_err());
        assert!(parsed("").unwrap().run().is_err());
    }
}
