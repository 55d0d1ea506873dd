//! The last step into a container: becomes the container's user and executes its command.
//!
//! bubblewrap can drop capabilities but not switch users without a user namespace, so the
//! standalone binary is bound into every container and called there as `exec-as`. It runs before
//! any thread exists and ends in `execve`; it is not meant for people.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::unistd::{Gid, Uid, close, setgid, setgroups, setuid};
use rustix::io::Errno;
use rustix::stdio::{dup2_stdin, stdin};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Name of the subcommand, first word after the program.
pub const EXEC_AS: &str = "exec-as";

/// Exit codes as shells give them: found but not executable, and not found.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What to become and to execute.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Vec<u32>,
    capabilities: u64,
    no_new_privs: bool,
    gate: bool,
    directory: Option<PathBuf>,
    argv: Vec<OsString>,
}

/// Why the command could not be executed.
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

/// Runs `exec-as`; `args` are those after the subcommand:
/// `[--uid U --gid G] [--groups A,B] [--caps HEX] [--no-new-privs] [--gate] [--cwd DIR] -- ARGV…`.
/// With `--gate`, standard input is a socket: a byte goes out when the container stands, and one
/// must come in before the command is executed.
///
/// Returns only if the command could not be executed, with the exit code to end with.
pub fn exec_as(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let error = match parse(args).and_then(Step::run) {
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

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Step, ExecError> {
    let mut args = args.into_iter();
    let mut step = Step::default();
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| ExecError::Argument(flag.clone()));
        match flag.to_str() {
            Some("--uid") => step.uid = Some(number(&value()?)?),
            Some("--gid") => step.gid = Some(number(&value()?)?),
            Some("--groups") => step.groups = numbers(&value()?)?,
            Some("--caps") => step.capabilities = hexadecimal(&value()?)?,
            Some("--no-new-privs") => step.no_new_privs = true,
            Some("--gate") => step.gate = true,
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

impl Step {
    fn run(self) -> Result<std::convert::Infallible, ExecError> {
        let (program, arguments) = self.argv.split_first().ok_or(ExecError::NoCommand)?;
        if self.gate {
            pass_gate().map_err(ExecError::Gate)?;
        }
        close_inherited();
        if let Some(directory) = &self.directory {
            // Container runtimes make a missing working directory, as root.
            let _ = std::fs::create_dir_all(directory);
        }
        if let Some(uid) = self.uid {
            self.switch(uid)?;
        }
        if self.no_new_privs {
            set_no_new_privs(true).map_err(privileges("set no_new_privs"))?;
        }
        self.enter_directory()?;
        let error = Command::new(program).args(arguments).exec();
        Err(ExecError::Exec(program.clone(), error))
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

/// Reports to the node, waits for its word, and leaves an empty standard input.
fn pass_gate() -> std::io::Result<()> {
    let mut word = [0];
    rustix::io::write(stdin(), b"+")?;
    if rustix::io::read(stdin(), &mut word)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(())
}

fn privileges<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> ExecError {
    move |error| ExecError::Privileges(what, error.into())
}

/// Takes everything but `keep` out of reach of this process and all its children.
fn drop_bounding(keep: CapabilitySet) -> Result<(), ExecError> {
    for bit in (0..u64::BITS).map(|shift| 1 << shift) {
        let capability = CapabilitySet::from_bits_retain(bit);
        if keep.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // Beyond the last capability that this kernel knows.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(privileges("drop capabilities")(error)),
        }
    }
    Ok(())
}

/// Descriptors that whoever started the node forgot to mark close-on-exec stay outside.
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

    fn parsed(line: &str) -> Result<Step, ExecError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_of_the_command_stay_untouched() {
        let step = parsed("--uid 7 --gid 8 --groups 1,2 --caps c0 --cwd /w -- ls --uid 9").unwrap();
        let expected = Step {
            uid: Some(7),
            gid: Some(8),
            groups: vec![1, 2],
            capabilities: 0xc0,
            no_new_privs: false,
            gate: false,
            directory: Some("/w".into()),
            argv: vec!["ls".into(), "--uid".into(), "9".into()],
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parsed("--uid").is_err());
        assert!(parsed("--uid x -- ls").is_err());
        assert!(parsed("ls").is_err());
        assert!(parsed("").unwrap().run().is_err());
    }
}
