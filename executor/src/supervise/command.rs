//! Start of the command of an init message: environment, working directory, program, streams.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crds::contract::control::Init;
use crds::contract::variable;
use rustix::process::Pid;
use rustix::thread::CapabilitySet;

use crate::open_path::create_directory;
use crate::system;

/// Search path without `PATH`: that of the C library, and directories of administration tools.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Subcommand of this binary that starts a program in a tree that can be saved.
const TREE_ROOT: &str = "tree-root";

type Environment = BTreeMap<OsString, OsString>;

#[derive(Debug, thiserror::Error)]
pub(super) enum CommandStartError {
    #[error("cannot begin with the snapshot: {0}")]
    Snapshot(String),
    #[error("the command is empty")]
    Empty,
    #[error("cannot create a pipe")]
    Pipe(#[source] io::Error),
    #[error("{program:?} was not found")]
    NotFound { program: String },
    #[error("{program:?} cannot be run")]
    NotExecutable {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl CommandStartError {
    /// Exit status that a shell would report.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Empty | Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } | Self::Pipe(_) | Self::Snapshot(_) => 126,
        }
    }
}

/// Capabilities of a program that the supervisor starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Privileges {
    /// Those of the container.
    Inherited,
    /// Without those that the supervisor has for itself.
    Without(CapabilitySet),
}

/// The way in which the supervisor starts a program.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) privileges: Privileges,
    /// File of this binary, whose `tree-root` starts the program, if processes are saved.
    pub(super) tree_root: Option<PathBuf>,
}

impl Launch {
    fn command(&self, program: &Path, name: &str) -> Command {
        let mut command = Command::new(self.tree_root.as_deref().unwrap_or(program));
        if self.tree_root.is_some() {
            command.arg(TREE_ROOT).arg(program).args(["--", name]);
        } else {
            command.arg0(name).process_group(0);
        }
        if let Privileges::Without(removed) = self.privileges {
            system::remove_capabilities(&mut command, removed);
        }
        command
    }
}

/// Starts the command of an init message.
pub(super) fn start(init: &Init, launch: &Launch) -> Result<Pid, CommandStartError> {
    spawn(
        &init.command,
        &init.working_dir,
        &init.environment,
        empty_stdin(),
        launch,
    )
}

/// Starts a program in its own process group, or in its own session below a `tree-root`.
pub(super) fn spawn(
    command: &[String],
    directory: &str,
    variables: &BTreeMap<String, String>,
    input: io::Result<Stdio>,
    launch: &Launch,
) -> Result<Pid, CommandStartError> {
    let (name, arguments) = command.split_first().ok_or(CommandStartError::Empty)?;
    let environment = environment(std::env::vars_os(), variables);
    let directory = working_dir(directory);
    let program = find(name, &environment, &directory)?;
    let spawned = input.and_then(|input| {
        let mut command = launch.command(&program, name);
        command
            .args(arguments)
            .env_clear()
            .envs(&environment)
            .current_dir(&directory)
            .stdin(input);
        command.spawn()
    });
    let child = spawned.map_err(|source| CommandStartError::NotExecutable { program, source })?;
    // The reaper waits for it by pid; dropping a `Child` has no effect.
    Ok(Pid::from_child(&child))
}

/// Environment of the container without the supervisor's variables, overridden by the message.
fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
    given: &BTreeMap<String, String>,
) -> Environment {
    own.filter(|(name, _)| !variable::SUPERVISOR.iter().any(|private| name == private))
        .chain(given.iter().map(|(k, v)| (k.into(), v.into())))
        .collect()
}

/// Creates the working directory. A command of an earlier container may have left links on the
/// volume, through which nothing is created. A directory that exists is only entered.
fn working_dir(wanted: &str) -> PathBuf {
    let path = PathBuf::from(wanted);
    if path.is_dir() {
        return path;
    }
    match create_directory(&path) {
        Ok(_) => path,
        Err(error) => {
            tracing::warn!(%error, wanted, "cannot create the working directory; using /");
            PathBuf::from("/")
        }
    }
}

/// Looks up the program as a shell with this environment and directory would.
fn find(
    name: &str,
    environment: &Environment,
    directory: &Path,
) -> Result<PathBuf, CommandStartError> {
    let not_found = || CommandStartError::NotFound {
        program: name.to_owned(),
    };
    if name.contains('/') {
        let program = directory.join(name);
        // An existing program may lack its interpreter, which is another error.
        return program.exists().then_some(program).ok_or_else(not_found);
    }
    let path = environment.get(&OsString::from("PATH"));
    let path = path.cloned().unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path)
        .map(|entry| directory.join(entry).join(name))
        .find(|candidate| system::is_executable(candidate))
        .ok_or_else(not_found)
}

/// Empty standard input. An image may lack `/dev/null`; a closed pipe reads the same.
pub(super) fn empty_stdin() -> io::Result<Stdio> {
    if let Ok(null) = File::open("/dev/null") {
        return Ok(null.into());
    }
    let (reader, _) = io::pipe()?;
    Ok(reader.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(k, v)| (k.into(), v.into())).collect()
    }

    #[test]
    fn supervisor_variables_are_not_inherited() {
        let own = pairs(&[
            ("SANDBOX_POD_UID", "u"),
            ("SANDBOX_POD_IP", "i"),
            ("SANDBOX_CONTROL_PUBLIC_KEY", "k"),
            ("SANDBOX_IDENTITY_KEY", "k"),
            ("SANDBOX_BIND_ADDRESS", "127.0.0.9"),
            ("SANDBOX_MINE", "1"),
            ("LANG", "C"),
        ]);
        let given = BTreeMap::from([("LANG".to_owned(), "de".to_owned())]);
        let expected = pairs(&[
            ("SANDBOX_BIND_ADDRESS", "127.0.0.9"),
            ("SANDBOX_MINE", "1"),
            ("LANG", "de"),
        ]);
        assert_eq!(
            environment(own.into_iter(), &given),
            expected.into_iter().collect()
        );
    }

    #[test]
    fn working_dir_is_created_or_falls_back_to_root() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("workspace/project");
        assert_eq!(working_dir(&missing.display().to_string()), missing);
        assert!(missing.is_dir());
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (planted, target) = (missing.join("link"), directory.path().join("target"));
        std::fs::create_dir(&target).unwrap();
        std::fs::set_permissions(&missing, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&target, &planted).unwrap();
        let through = planted.join("made").display().to_string();
        assert_eq!(working_dir(&through), Path::new("/"));
        assert!(!target.join("made").exists());
        let impossible = file.join("below").display().to_string();
        assert_eq!(working_dir(&impossible), Path::new("/"));
    }

    #[test]
    fn program_is_found_on_resulting_path() {
        let directory = tempfile::tempdir().unwrap();
        let tool = directory.path().join("bin/tool");
        std::fs::create_dir(directory.path().join("bin")).unwrap();
        std::fs::write(&tool, "").unwrap();
        let environment: Environment = pairs(&[("PATH", "/nowhere:bin")]).into_iter().collect();
        let look = || find("tool", &environment, directory.path());
        assert_eq!(look().unwrap_err().exit_code(), 127);
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(look().unwrap(), tool);
        let relative = |name| find(name, &environment, directory.path());
        assert_eq!(
            relative("./bin/tool").unwrap(),
            directory.path().join("./bin/tool")
        );
        assert_eq!(relative("./tool").unwrap_err().exit_code(), 127);
        assert_eq!(relative("/not/there").unwrap_err().exit_code(), 127);
    }
}
