//! Environment of the server: that of its process, overridden by the init message of a server that
//! was dormant. Changing the process's own one would not be safe while other threads run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::process::Command as StdCommand;
use std::sync::Arc;

use crds::contract::variable;
use tokio::process::Command;

/// Variables that commands must not see.
const SESSION_KEYS: [&str; 2] = [variable::SESSION_API_KEY, variable::OH_SESSION_API_KEYS_0];

/// Variables that bash, its start-up files or Python read when they start, or treat specially.
const READ_AT_START: &str = " COLUMNS CONDA_PREFIX DIRSTACK ENV EPOCHREALTIME EPOCHSECONDS EUID \
    FUNCNAME FUNCNEST GLOBIGNORE GROUPS HOME HOSTNAME HOSTTYPE IFS INPUTRC LANG LANGUAGE LINENO LINES \
    MACHTYPE OLDPWD OPTARG OPTERR OPTIND OSTYPE PATH POSIXLY_CORRECT PPID PROMPT_COMMAND \
    PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 PWD RANDOM SANDBOX_SHELL SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM TMOUT \
    TMPDIR TZ UID VIRTUAL_ENV ";
/// Beginnings of further ones.
const READ_AT_START_PREFIXES: [&str; 9] = [
    "BASH", "COMP_", "IPYTHON", "JUPYTER", "LC_", "LD_", "MALLOC_", "MPL", "PYTHON",
];

/// Variables for a program that runs already. Not printed: they may hold secrets.
pub(super) type EnvironmentChanges = BTreeMap<String, OsString>;

#[derive(Clone, Default)]
pub(super) struct Environment(Arc<BTreeMap<String, String>>);

impl Environment {
    pub(super) fn new(mut variables: BTreeMap<String, String>) -> Self {
        variables.retain(|name, _| !SESSION_KEYS.contains(&name.as_str()));
        Self(Arc::new(variables))
    }

    /// This environment with further variables, which have precedence.
    pub(super) fn with(self, further: impl Iterator<Item = (String, String)>) -> Self {
        let own = Arc::unwrap_or_clone(self.0).into_iter();
        Self::new(own.chain(further).collect())
    }

    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        let given = self.0.get(name).map(OsString::from);
        given.or_else(|| std::env::var_os(name))
    }

    /// Gives a command this environment, without the session key.
    pub(super) fn apply_to(&self, command: &mut Command) {
        command.envs(self.0.iter());
        for name in SESSION_KEYS {
            command.env_remove(name);
        }
    }
}

/// Has no values: some are secret.
impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Environment({} variables)", self.0.len())
    }
}

/// Variables that differ. `None` if one of them cannot be changed in a running program.
pub(super) fn changes(before: &StdCommand, after: &StdCommand) -> Option<EnvironmentChanges> {
    let given = after.get_envs();
    let given = given.filter_map(|(name, value)| Some((name, value?)));
    let changed = given.filter(|(name, value)| value_in(before, name).as_deref() != Some(*value));
    let pairs = changed.map(|(name, value)| {
        let name = name.to_str().filter(|name| can_be_changed(name))?;
        Some((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

fn value_in(command: &StdCommand, name: &OsStr) -> Option<OsString> {
    let given = command.get_envs().find(|(given, _)| *given == name);
    given.map_or_else(
        || std::env::var_os(name),
        |(_, value)| Some(value?.to_owned()),
    )
}

fn can_be_changed(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_with = |start: &&str| name.starts_with(*start);
    name.bytes().all(is_part)
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && !READ_AT_START.contains(&format!(" {name} "))
        && !READ_AT_START_PREFIXES.iter().any(starts_with)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Command {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).into(), (*value).into()));
        let mut command = Command::new("");
        Environment::new(variables.collect()).apply_to(&mut command);
        command
    }

    #[test]
    fn changes_are_those_of_variables_that_differ() {
        let before = with(&[("SAME", "1"), ("OTHER", "1")]);
        let after = with(&[
            ("SAME", "1"),
            ("OTHER", "2"),
            ("NEW", "3"),
            ("SESSION_API_KEY", "secret"),
            ("PATH", std::env::var("PATH").unwrap().as_str()),
        ]);
        let changes = changes(before.as_std(), after.as_std()).unwrap();
        let expected = [("NEW", "3"), ("OTHER", "2")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.into()));
        assert_eq!(changes, expected.into());
    }

    #[test]
    fn programs_start_again_when_they_read_the_variable_at_their_start() {
        let before = with(&[]);
        for name in ["PATH", "UID", "PYTHONPATH", "a.b", "1", "PS1", "TERM"] {
            let after = with(&[(name, "x")]);
            assert_eq!(changes(before.as_std(), after.as_std()), None, "{name}");
        }
    }
}
