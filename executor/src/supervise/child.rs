//! Starts the command of an initialisation: environment, working directory, program, streams.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crds::contract::control::Init;
use crds::contract::variable;
use rustix::process::Pid;

/// What the C library searches when there is no `PATH`, and where images keep administration tools.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The supervisor's own variables. Not among them: the bind address, which servers obey.
const PRIVATE: [&str; 3] = [variable::POD_UID, variable::POD_IP, variable::CONTROL_KEY];

type Environment = BTreeMap<OsString, OsString>;

#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("the command is empty")]
    Empty,
    #[error("{program:?} was not found")]
    NotFound { program: String },
    #[error("{program:?} cannot be run")]
    NotExecutable {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl StartError {
    /// The status that a shell would end with.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Empty | Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
        }
    }
}

/// Starts the command in a process group of its own, detached from any input.
pub(super) fn start(init: &Init) -> Result<Pid, StartError> {
    let (name, arguments) = init.command.split_first().ok_or(StartError::Empty)?;
    let environment = environment(std::env::vars_os(), &init.environment);
    let directory = working_dir(&init.working_dir);
    let program = find(name, &environment, &directory)?;
    let spawned = input().and_then(|input| {
        Command::new(&program)
            .arg0(name)
            .args(arguments)
            .env_clear()
            .envs(&environment)
            .current_dir(&directory)
            .stdin(input)
            .process_group(0)
            .spawn()
    });
    let child = spawned.map_err(|source| StartError::NotExecutable { program, source })?;
    // The reaper waits for it by its number; a `Child` may be dropped without effect.
    Ok(Pid::from_child(&child))
}

/// The container's environment without the supervisor's part, under that of the initialisation.
fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
    given: &BTreeMap<String, String>,
) -> Environment {
    own.filter(|(name, _)| !PRIVATE.iter().any(|private| name == private))
        .chain(given.iter().map(|(k, v)| (k.into(), v.into())))
        .collect()
}

fn working_dir(wanted: &str) -> PathBuf {
    let path = PathBuf::from(wanted);
    match std::fs::create_dir_all(&path) {
        Ok(()) => path,
        Err(error) => {
            tracing::warn!(%error, directory = wanted, "cannot make the working directory, using /");
            PathBuf::from("/")
        }
    }
}

/// Looks the program up as a shell with this environment in this directory would.
fn find(name: &str, environment: &Environment, directory: &Path) -> Result<PathBuf, StartError> {
    let not_found = || StartError::NotFound {
        program: name.to_owned(),
    };
    if name.contains('/') {
        let program = directory.join(name);
        // A program that is there may still lack its interpreter: that is another error.
        return program.exists().then_some(program).ok_or_else(not_found);
    }
    let path = environment.get(&OsString::from("PATH"));
    let path = path.cloned().unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path)
        .map(|entry| directory.join(entry).join(name))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(not_found)
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// An empty input. An image may lack `/dev/null`; a pipe that nobody writes to reads the same.
fn input() -> io::Result<Stdio> {
    if let Ok(null) = File::open("/dev/null") {
        return Ok(null.into());
    }
    let (reader, _) = io::pipe()?;
    Ok(reader.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(k, v)| (k.into(), v.into())).collect()
    }

    #[test]
    fn the_supervisors_variables_are_not_passed_on() {
        let own = pairs(&[
            ("SANDBOX_POD_UID", "u"),
            ("SANDBOX_POD_IP", "i"),
            ("SANDBOX_CONTROL_KEY", "k"),
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
    fn a_missing_directory_is_made_and_an_impossible_one_is_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("workspace/project");
        assert_eq!(working_dir(&missing.display().to_string()), missing);
        assert!(missing.is_dir());
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let impossible = file.join("below").display().to_string();
        assert_eq!(working_dir(&impossible), Path::new("/"));
    }

    #[test]
    fn programs_are_found_on_the_path_of_the_result() {
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
