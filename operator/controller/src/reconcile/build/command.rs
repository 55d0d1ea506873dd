//! The command of a sandbox. The Python action execution server is replaced by the native executor.
//!
//! A command is replaced only if every argument is recognized: an unknown wrapper, flag or module
//! could mean something that the native executor does not implement.

pub(crate) mod plugins;
mod python_launcher;

use crds::contract::path::EXECUTOR;
use crds::sandbox::{ExecutorMode, SandboxSpec};

use python_launcher::PythonLaunch;

/// Modules of the Python action execution server; the second one is that of releases before 0.12.
const ACTION_SERVERS: [&str; 2] = [
    "openhands.runtime.action_execution_server",
    "openhands.runtime.client.client",
];
/// Module and program of the agent-server.
const AGENT_SERVER: [&str; 2] = ["openhands.agent_server", "openhands-agent-server"];
/// Flags of the Python server that the native one accepts (`docs/specs/executor.md`, section 1.1).
const KNOWN_FLAGS: [&str; 7] = [
    "--working-dir",
    "--plugins",
    "--username",
    "--user-id",
    "--browsergym-eval-env",
    "--enable-browser",
    "--no-enable-browser",
];

/// The command that the supervisor runs; `None` if the entrypoint of the image runs. `native` is
/// the setting `--native-executor`: without it no command is replaced.
pub fn effective_command(spec: &SandboxSpec, native: bool) -> Option<Vec<String>> {
    let mut command = executor_command(spec, native).or_else(|| spec.command.clone())?;
    if runs_executor(&command) {
        plugins::add(&mut command, &spec.plugins);
    }
    Some(command)
}

/// The command with the native executor in place of the Python server, if it is replaced.
fn executor_command(spec: &SandboxSpec, native: bool) -> Option<Vec<String>> {
    let is_allowed = native && spec.executor != Some(ExecutorMode::Command);
    native_command(spec.command.as_deref()?).filter(|_| is_allowed)
}

/// Returns whether the command is the native executor, also behind `env`.
fn runs_executor(command: &[String]) -> bool {
    command.windows(2).any(|words| words == [EXECUTOR, "serve"])
}

/// Returns whether the command is a server of OpenHands, which answers `/alive`.
pub fn is_sandbox_server(command: &[String]) -> bool {
    is_native(command) || is_action_server(command) || is_agent_server(command)
}

/// Number of the session key of the next Pod. A server with a single key keeps the first one: its
/// clients never ask for another (`docs/specs/runtime-api.md`, section 4.8).
pub fn key_rotation(spec: &SandboxSpec) -> u32 {
    let command = spec.command.as_deref().unwrap_or_default();
    if is_native(command) || is_action_server(command) {
        return 0;
    }
    spec.key_rotation.unwrap_or(0)
}

/// Returns whether the command is the native executor.
pub fn is_native(command: &[String]) -> bool {
    command.first().is_some_and(|program| program == EXECUTOR)
}

/// Returns whether the command is the agent-server.
pub fn is_agent_server(command: &[String]) -> bool {
    let is_agent = |word: &String| {
        let program = word.rsplit('/').next().unwrap_or(word);
        AGENT_SERVER.contains(&program)
    };
    command.iter().any(is_agent)
}

/// Returns whether an argument mentions the Python server, also within a shell command line.
fn is_action_server(command: &[String]) -> bool {
    let mentions = |word: &String| ACTION_SERVERS.iter().any(|server| word.contains(server));
    command.iter().any(mentions)
}

/// The command with the native executor in place of the Python server and its wrappers.
fn native_command(command: &[String]) -> Option<Vec<String>> {
    let launch = PythonLaunch::read(command)?;
    if !ACTION_SERVERS.contains(&launch.module) || !has_known_flags_only(launch.arguments) {
        return None;
    }
    let mut words = launch.environment.to_vec();
    words.extend([EXECUTOR.to_owned(), "serve".to_owned()]);
    words.extend_from_slice(launch.arguments);
    Some(words)
}

fn has_known_flags_only(arguments: &[String]) -> bool {
    let known = |word: &String| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        !word.starts_with('-') || KNOWN_FLAGS.contains(&name)
    };
    arguments.iter().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::words;

    const ACTION_SERVER: &str = ACTION_SERVERS[0];

    /// The command of a spec in an installation with the native executor.
    fn effective(command: &str) -> Vec<String> {
        effective_command(&spec(command, None), true).unwrap()
    }

    fn spec(command: &str, executor: Option<ExecutorMode>) -> SandboxSpec {
        SandboxSpec {
            command: Some(words(command)),
            executor,
            ..SandboxSpec::default()
        }
    }

    const ARGUMENTS: &str = "60000 --working-dir /workspace --plugins agent_skills jupyter \
                             --username openhands --user-id 1000 --no-enable-browser";

    fn python() -> String {
        let wrapper = "/openhands/micromamba/bin/micromamba run -n openhands poetry run";
        format!("{wrapper} python -u -m {ACTION_SERVER} {ARGUMENTS}")
    }

    fn native() -> Vec<String> {
        words(&format!("{EXECUTOR} serve {ARGUMENTS}"))
    }

    #[test]
    fn python_server_is_replaced_and_keeps_its_arguments() {
        assert_eq!(effective(&python()), native());
        let variables = "/usr/bin/env -u DEBUG LOG_JSON=0 A=b=c";
        let command = format!("{variables} python -u -m {ACTION_SERVER} {ARGUMENTS}");
        let expected = [words(variables), native()].concat();
        assert_eq!(effective(&command), expected);
    }

    #[test]
    fn python_server_of_every_release_is_replaced() {
        for server in ACTION_SERVERS {
            let command = format!("poetry run python -u -m {server} {ARGUMENTS}");
            assert_eq!(effective(&command), native());
            assert!(is_sandbox_server(&words(&command)));
        }
    }

    #[test]
    fn python_server_is_replaced_behind_every_known_wrapper() {
        for wrapper in [
            "python",
            "python3 -u -B",
            "/openhands/poetry/bin/python3.12 -X utf8 -u",
            "poetry run python -u",
            "poetry -C /openhands/code run python",
            "conda run --no-capture-output --name openhands python",
            "mamba run -p /env python -W ignore",
            "nice -n -20 /openhands/micromamba/bin/micromamba run -n openhands poetry run python",
            "tini -- python",
        ] {
            let command = format!("{wrapper} -m {ACTION_SERVER} {ARGUMENTS}");
            assert_eq!(effective(&command), native(), "{wrapper}");
        }
    }

    #[test]
    fn unrecognized_command_is_not_replaced() {
        for command in [
            "sleep infinity".to_owned(),
            "python -m http.server 60000".to_owned(),
            "python -m openhands.agent_server --port 60000".to_owned(),
            format!("echo -m {ACTION_SERVER} 60000"),
            format!("strace -f python -m {ACTION_SERVER} 60000"),
            format!("python -c pass -m {ACTION_SERVER} 60000"),
            format!("python -m {ACTION_SERVER} 60000 --from-the-future"),
            "micromamba run -n".to_owned(),
            format!("env -S python -m {ACTION_SERVER} 60000"),
            "python -m".to_owned(),
        ] {
            assert_eq!(effective(&command), words(&command));
        }
        assert_eq!(effective_command(&SandboxSpec::default(), true), None);
    }

    #[test]
    fn python_server_is_kept_by_spec_or_installation_setting() {
        use ExecutorMode::{Command, Native};
        for (executor, installation) in
            [(Some(Command), true), (None, false), (Some(Native), false)]
        {
            let kept = effective_command(&spec(&python(), executor), installation);
            assert_eq!(kept, Some(words(&python())), "{executor:?}");
        }
    }

    #[test]
    fn openhands_servers_are_recognized() {
        for (command, known) in [
            (python().as_str(), true),
            ("/usr/local/bin/openhands-agent-server --port 60000", true),
            ("python -m openhands.agent_server", true),
            ("/opt/sandbox/bin/sandbox-executor serve 60000", true),
            (
                "sh -c openhands.runtime.action_execution_server&&exit",
                true,
            ),
            ("sleep infinity", false),
        ] {
            assert_eq!(is_sandbox_server(&words(command)), known, "{command}");
        }
    }

    #[test]
    fn server_with_single_key_ignores_key_rotation() {
        for (command, rotation) in [
            (Some(&*python()), 0),
            (Some(&*format!("{EXECUTOR} serve 60000")), 0),
            (Some("openhands-agent-server --port 60000"), 3),
            (None, 3),
        ] {
            let spec = SandboxSpec {
                command: command.map(words),
                key_rotation: Some(3),
                ..SandboxSpec::default()
            };
            assert_eq!(key_rotation(&spec), rotation, "{command:?}");
        }
    }
}
