//! The program that runs while the Pod is dormant, and its handover to the sandbox
//! (`docs/specs/supervisor.md`, section 10).

mod agent_server;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::IpAddr;

use crds::contract::control::Init;
use crds::contract::path::EXECUTOR;
use crds::contract::prestart::{Handover, Prestart};
use crds::contract::variable;
use rustix::process::Pid;
use tokio_util::task::AbortOnDropHandle;

use self::agent_server::{AgentServer, AgentServerError};
use super::command::{self, CommandStartError, empty_stdin};
use super::command_state::CommandState;
use super::probe;

type Variables = BTreeMap<String, String>;

/// The running program.
#[derive(Debug)]
pub(super) struct Prestarted {
    prestart: Prestart,
    pub(super) child: Pid,
    channel: Channel,
    _probing: AbortOnDropHandle<()>,
}

/// The way to the program.
#[derive(Debug)]
enum Channel {
    StandardInput(io::PipeWriter),
    AgentServer(AgentServer),
    None,
}

#[derive(Debug, thiserror::Error)]
enum HandoverError {
    #[error("the sandbox has another command, working directory or environment")]
    Other,
    #[error("cannot write to it: {0}")]
    Write(#[from] io::Error),
    #[error(transparent)]
    AgentServer(#[from] AgentServerError),
}

impl Prestarted {
    /// Starts the program. `state` says that it is not warm until its probe passes.
    pub(super) fn start(
        prestart: Prestart,
        address: IpAddr,
        state: &CommandState,
    ) -> Result<Self, CommandStartError> {
        let mut variables = prestart.environment.clone();
        let (channel, input) = match prestart.handover {
            Handover::Executor => {
                let pipe = io::pipe().map_err(CommandStartError::Pipe)?;
                (Channel::StandardInput(pipe.1), Ok(pipe.0.into()))
            }
            Handover::AgentServer => {
                let server = AgentServer::new(address, &prestart, &mut variables);
                (Channel::AgentServer(server), empty_stdin())
            }
            Handover::Command => (Channel::None, empty_stdin()),
        };
        let child = command::spawn(&prestart.command, &prestart.working_dir, &variables, input)?;
        let probing = warm_up(address, prestart.clone(), state.clone());
        Ok(Self {
            prestart,
            child,
            channel,
            _probing: AbortOnDropHandle::new(tokio::spawn(probing)),
        })
    }

    /// Gives the init message to the program. `None` if the program cannot serve the sandbox.
    pub(super) async fn hand_over(self, init: &Init) -> Option<Pid> {
        let child = self.child;
        match self.deliver(init).await {
            Ok(()) => Some(child),
            Err(error) => {
                tracing::info!(%error, "the prestarted program is replaced");
                None
            }
        }
    }

    async fn deliver(self, init: &Init) -> Result<(), HandoverError> {
        if !fits(&self.prestart, init) {
            return Err(HandoverError::Other);
        }
        match self.channel {
            Channel::StandardInput(mut pipe) => {
                let mut line = serde_json::to_vec(init).map_err(io::Error::other)?;
                line.push(b'\n');
                // A line may exceed the pipe, and the program may have stopped reading.
                let written = tokio::task::spawn_blocking(move || pipe.write_all(&line));
                Ok(written.await.map_err(io::Error::other)??)
            }
            Channel::AgentServer(server) => Ok(server.initialize(init).await?),
            Channel::None => Ok(()),
        }
    }
}

/// Reports when the program is warm, then keeps it so.
async fn warm_up(address: IpAddr, prestart: Prestart, state: CommandState) {
    state.report_warmth(Some("the prestarted program is starting".to_owned()));
    let report = |problem| state.report_warmth(Some(problem));
    probe::wait_until_passed(address, &prestart.probe, report).await;
    state.report_warmth(None);
    probe::keep_warm(address, &prestart.probe).await;
}

/// Returns whether the program can become the command of this message.
fn fits(prestart: &Prestart, init: &Init) -> bool {
    let same = prestart.command == init.command && prestart.working_dir == init.working_dir;
    let (own, wanted) = (&prestart.environment, &init.environment);
    // A variable that the program has cannot be taken from it.
    let keeps = |(name, value): (&String, &String)| value.is_empty() || wanted.contains_key(name);
    own.iter().all(keeps)
        && match prestart.handover {
            Handover::Executor => init
                .command
                .starts_with(&[EXECUTOR, "serve"].map(Into::into)),
            Handover::AgentServer => same,
            Handover::Command => same && differences(own, wanted).next().is_none(),
        }
}

/// Variables that the program lacks, except for those that differ between all sandboxes.
fn differences<'a>(
    own: &'a Variables,
    wanted: &'a Variables,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    let is_shared = |name: &str| !variable::PER_SANDBOX.contains(&name);
    let differing = |(name, value): &(&String, &String)| own.get(*name) != Some(value);
    let differing = wanted.iter().filter(differing);
    differing.filter(move |(name, _)| is_shared(name))
}

#[cfg(test)]
mod tests {
    use crds::contract::control::Probe;

    use super::*;

    pub(super) fn map(pairs: &[(&str, &str)]) -> Variables {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn prestarted_program_serves_sandboxes_that_it_fits() {
        let probe = || Probe {
            port: None,
            path: None,
        };
        let prestart = |handover| Prestart {
            handover,
            command: ["program", "argument"].map(Into::into).to_vec(),
            working_dir: "/workspace".into(),
            environment: map(&[("A", "1"), ("EMPTY", "")]),
            probe: probe(),
        };
        let init = |command: &[&str], directory: &str, variables: &[(&str, &str)]| Init {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            working_dir: directory.into(),
            environment: map(variables),
            probe: probe(),
            sandbox_uid: None,
        };
        let same = ["program", "argument"];
        let serve = [EXECUTOR, "serve", "60000"];
        let key = ("SESSION_API_KEY", "key");
        for (handover, init, expected) in [
            (
                Handover::Command,
                init(&same, "/workspace", &[("A", "1"), key]),
                true,
            ),
            (
                Handover::Command,
                init(&same, "/workspace", &[("A", "2")]),
                false,
            ),
            (
                Handover::Command,
                init(&same, "/workspace", &[("A", "1"), ("B", "")]),
                false,
            ),
            (
                Handover::Command,
                init(&same, "/elsewhere", &[("A", "1")]),
                false,
            ),
            (
                Handover::Command,
                init(&["program"], "/workspace", &[("A", "1")]),
                false,
            ),
            (
                Handover::AgentServer,
                init(&same, "/workspace", &[("A", "2"), ("B", "")]),
                true,
            ),
            (Handover::AgentServer, init(&same, "/workspace", &[]), false),
            (
                Handover::AgentServer,
                init(&serve, "/workspace", &[("A", "1")]),
                false,
            ),
            (
                Handover::Executor,
                init(&serve, "/elsewhere", &[("A", "2")]),
                true,
            ),
            (Handover::Executor, init(&serve, "/workspace", &[]), false),
            (
                Handover::Executor,
                init(&same, "/workspace", &[("A", "1")]),
                false,
            ),
        ] {
            let found = fits(&prestart(handover), &init);
            assert_eq!(found, expected, "{handover:?} {init:?}");
        }
    }
}
