//! What runs in a sandbox: the user's command, or the native executor in place of the Python one.

use crds::contract::path::EXECUTOR;
use crds::sandbox::{ExecutorMode, SandboxSpec};

/// Module of the Python action execution server.
const ACTION_SERVER: &str = "openhands.runtime.action_execution_server";
/// Module, and program, of the agent-server.
const AGENT_SERVER: [&str; 2] = ["openhands.agent_server", "openhands-agent-server"];

/// The command that the supervisor runs; `None` if the image's own entrypoint runs.
pub fn effective(spec: &SandboxSpec) -> Option<Vec<String>> {
    let command = spec.command.clone()?;
    let native = spec.executor != Some(ExecutorMode::Command);
    match action_server_arguments(&command) {
        Some(arguments) if native => {
            let mut swapped = vec![EXECUTOR.to_owned(), "serve".to_owned()];
            swapped.extend_from_slice(arguments);
            Some(swapped)
        }
        _ => Some(command),
    }
}

/// Whether the command is a server of OpenHands, which answers `/alive`.
pub fn is_sandbox_server(command: &[String]) -> bool {
    let is_agent = |word: &String| {
        let program = word.rsplit('/').next().unwrap_or(word);
        AGENT_SERVER.contains(&program)
    };
    action_server_arguments(command).is_some() || command.iter().any(is_agent)
}

/// What follows `-m openhands.runtime.action_execution_server`, however it is wrapped.
fn action_server_arguments(command: &[String]) -> Option<&[String]> {
    let at = command
        .windows(2)
        .position(|pair| pair[0] == "-m" && pair[1] == ACTION_SERVER)?;
    command.get(at + 2..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn spec(command: &str, executor: Option<ExecutorMode>) -> SandboxSpec {
        SandboxSpec {
            command: Some(words(command)),
            executor,
            ..SandboxSpec::default()
        }
    }

    const PYTHON: &str = "/openhands/micromamba/bin/micromamba run -n openhands poetry run python \
                          -u -m openhands.runtime.action_execution_server 60000 --working-dir \
                          /workspace --username openhands";

    #[test]
    fn the_python_server_is_replaced_with_its_arguments() {
        let native = effective(&spec(PYTHON, None)).unwrap();
        assert_eq!(
            native,
            words(&format!(
                "{EXECUTOR} serve 60000 --working-dir /workspace --username openhands"
            ))
        );
    }

    #[test]
    fn it_is_kept_on_request() {
        let kept = effective(&spec(PYTHON, Some(ExecutorMode::Command))).unwrap();
        assert_eq!(kept, words(PYTHON));
    }

    #[test]
    fn other_commands_stay_as_they_are() {
        for command in ["sleep infinity", "python -m http.server 60000"] {
            assert_eq!(effective(&spec(command, None)).unwrap(), words(command));
        }
        assert_eq!(effective(&SandboxSpec::default()), None);
    }

    #[test]
    fn servers_of_openhands_are_known() {
        assert!(is_sandbox_server(&words(PYTHON)));
        assert!(is_sandbox_server(&words(
            "/usr/local/bin/openhands-agent-server --port 60000"
        )));
        assert!(is_sandbox_server(&words(
            "python -m openhands.agent_server"
        )));
        assert!(!is_sandbox_server(&words("sleep infinity")));
    }
}
