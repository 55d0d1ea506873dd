//! The program that runs while the Pod is dormant, and its handover to the sandbox
//! (`docs/specs/supervisor.md`, section 10).

mod agent_server;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::IpAddr;

use crds::contract::control::{Init, Probe};
use crds::contract::path::EXECUTOR;
use crds::contract::prestart::{Handover, Prestart};
use crds::contract::variable;
use rustix::process::{Pid, Signal};
use tokio_util::task::AbortOnDropHandle;

use self::agent_server::{AgentServer, AgentServerError};
use super::command::{self, CommandStartError, Launch, empty_stdin};
use super::command_state::CommandState;
use super::probe::{self, ProbeError};

/// Path of the native executor that answers without a key, with 503 until the init message.
const EXECUTOR_PATH: &str = "/alive";

type Variables = BTreeMap<String, String>;

/// The running program.
#[derive(Debug)]
pub(super) struct Prestarted {
    prestart: Prestart,
    pub(super) child: Pid,
    channel: Channel,
    probing: AbortOnDropHandle<()>,
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
        launch: &Launch,
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
        let (words, directory) = (&prestart.command, &prestart.working_dir);
        let child = command::spawn(words, directory, &variables, input, launch)?;
        let probing = watch(address, prestart.clone(), state.clone(), child);
        Ok(Self {
            prestart,
            child,
            channel,
            probing: AbortOnDropHandle::new(tokio::spawn(probing)),
        })
    }

    /// Gives the init message to the program. `None` if the program cannot serve the sandbox.
    pub(super) async fn hand_over(self, init: &Init) -> Option<Pid> {
        let child = self.child;
        drop(self.probing);
        match deliver(self.channel, &self.prestart, init).await {
            Ok(()) => Some(child),
            Err(error) => {
                tracing::info!(%error, "the prestarted program is replaced");
                None
            }
        }
    }
}

async fn deliver(channel: Channel, prestart: &Prestart, init: &Init) -> Result<(), HandoverError> {
    if !fits(prestart, init) {
        return Err(HandoverError::Other);
    }
    match channel {
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

/// Reports when the program is warm, then keeps it so. A program that hangs is killed: the container
/// ends with it, and the kubelet starts both again.
async fn watch(address: IpAddr, prestart: Prestart, state: CommandState, child: Pid) {
    state.report_warmth(Some("the prestarted program is starting".to_owned()));
    let report = |problem| state.report_warmth(Some(problem));
    probe::wait_until_passed(address, &prestart.probe, report).await;
    state.report_warmth(None);
    let error = probe::keep_warm(|| touch(address, &prestart)).await;
    tracing::error!(%error, "the prestarted program hangs and is killed");
    state.report_warmth(Some(error.to_string()));
    // Fails only if it has ended, and then the container ends too.
    let _ = rustix::process::kill_process(child, Signal::KILL);
}

/// Sends the program a request that its HTTP server answers, or connects if there is no path.
async fn touch(address: IpAddr, prestart: &Prestart) -> Result<(), ProbeError> {
    if prestart.handover != Handover::Executor {
        return probe::attempt(address, &prestart.probe).await;
    }
    let request = Probe {
        path: Some(EXECUTOR_PATH.to_owned()),
        ..prestart.probe.clone()
    };
    match probe::attempt(address, &request).await {
        Err(ProbeError::Status(..)) => Ok(()),
        other => other,
    }
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
    use http::StatusCode;
    use tokio::net::TcpListener;

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
            state: None,
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

    #[tokio::test]
    async fn dormant_executor_passes_a_touch_with_any_response() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(async || StatusCode::SERVICE_UNAVAILABLE);
        let server = tokio::spawn(axum::serve(listener, router).into_future());
        let prestart = |handover| Prestart {
            handover,
            command: Vec::new(),
            working_dir: "/".into(),
            environment: Variables::new(),
            probe: Probe {
                port: Some(address.port()),
                path: (handover == Handover::AgentServer).then(|| "/alive".into()),
            },
        };
        let passes = async |handover| touch(address.ip(), &prestart(handover)).await.is_ok();
        assert!(passes(Handover::Executor).await);
        assert!(!passes(Handover::AgentServer).await);
        server.abort();
        let _ = server.await;
        assert!(!passes(Handover::Executor).await);
    }

    /// An init message as the controller builds it, without variables of a client.
    fn controller_message(snapshot: &str) -> Init {
        let (_, message) = snapshot.rsplit_once("---\n").unwrap();
        serde_yaml::from_str(message).unwrap()
    }

    /// The program of a pool whose template has no variables.
    fn program(handover: Handover, init: &Init) -> Prestart {
        let mut environment = init.environment.clone();
        environment.retain(|name, _| !variable::PER_SANDBOX.contains(&&**name));
        Prestart {
            handover,
            command: init.command.clone(),
            working_dir: init.working_dir.clone(),
            environment,
            probe: init.probe.clone(),
        }
    }

    #[test]
    fn program_of_a_pool_serves_the_sessions_of_all_clients() {
        let v0 = controller_message(include_str!(
            "../../../operator/controller/src/reconcile/init_message/snapshots/\
             controller__reconcile__init_message__tests__init_of_a_v0_session.snap"
        ));
        let v1 = controller_message(include_str!(
            "../../../operator/controller/src/reconcile/init_message/snapshots/\
             controller__reconcile__init_message__tests__init_of_a_v1_session.snap"
        ));
        // Variables that the clients send (`docs/specs/runtime-api.md`, section 3).
        let settings = [
            ("DEBUG", "true"),
            ("PYTHONUNBUFFERED", "1"),
            ("port", "60000"),
        ];
        let app = [
            ("LOG_JSON", "true"),
            ("OH_ALLOW_CORS_ORIGINS_0", "https://app.example.com"),
            ("OH_BASH_EVENTS_DIR", "/workspace/bash_events"),
            ("OH_CONVERSATIONS_PATH", "/workspace/conversations"),
            ("OH_ENABLE_VNC", "0"),
            ("OH_RUNTIME_IDLE_TIMEOUT_SECONDS", "900"),
            ("OH_VSCODE_PORT", "60001"),
            (
                "OH_WEBHOOKS_0_BASE_URL",
                "https://app.example.com/api/v1/webhooks/s",
            ),
            ("OPENVSCODE_SERVER_ROOT", "/openhands/.openvscode-server"),
        ];
        let enterprise = [
            &app[..],
            &[("LMNR_PROJECT_API_KEY", "key"), ("LMNR_BASE_URL", "")],
        ];
        for (handover, message, client) in [
            (Handover::Executor, &v0, &settings[..]),
            (Handover::AgentServer, &v1, &app),
            (Handover::AgentServer, &v1, &enterprise.concat()),
            (Handover::AgentServer, &v1, &[("GITHUB_TOKEN", "token")]),
        ] {
            let program = program(handover, message);
            let mut init = message.clone();
            init.environment.extend(map(client));
            assert!(fits(&program, &init), "{init:?}");
            if handover == Handover::AgentServer {
                let body = agent_server::init_body(&program.environment, &init.environment);
                assert_eq!(
                    body.unwrap()["session_api_keys"].as_array().unwrap().len(),
                    1
                );
            }
        }
    }
}
