//! PID 1 of every sandbox container (`docs/specs/supervisor.md`). Dormant until the signed init
//! message; then it runs the command, reports readiness, forwards signals, reaps orphans and ends
//! with the command's exit status.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use crds::contract::control::{Init, SupervisorState};
use crds::contract::identity::IdentityKey;
use crds::contract::persistence::{SaveRequest, SnapshotRequest};
use crds::contract::prestart::Prestart;
use crds::contract::sealing::SealingKey;
use crds::contract::token::Verifier;
use crds::contract::{path, variable};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::cli::SuperviseOptions;
use crate::http_server::{self, Limits};
use crate::{system, termination_message};

use self::command::{CommandStartError, Launch, Privileges};
use self::command_state::CommandState;
use self::control::{Acceptance, Control, LayerCalls};
use self::end::CommandEnd;
use self::init_store::{InitStore, PodIdentity};
use self::persistence::{Persistence, ProcessPrograms, StateDirectories};
use self::prestart::Prestarted;
use self::reaper::{Reaper, SignalEvent};
use self::save_calls::SaveCalls;
use self::snapshot_calls::SnapshotCalls;

mod command;
mod command_state;
mod control;
mod end;
mod executor_calls;
mod init_store;
mod loopback;
mod persistence;
mod prestart;
mod probe;
mod processes;
mod reaper;
mod save_calls;
mod snapshot_calls;
mod snapshots;
pub(crate) mod tree_root;

pub(crate) use self::persistence::{check_processes, check_root_overlay};

const LIMITS: Limits = Limits {
    connections: 64,
    header_timeout: Duration::from_secs(10),
    grace: Duration::from_millis(200),
};

/// Time from readiness until the pages of the supervisor's code are released.
const RELEASE_DELAY: Duration = Duration::from_millis(200);

pub(crate) async fn run(options: SuperviseOptions) -> anyhow::Result<ExitCode> {
    let verifier = Verifier::new(&options.control_public_key);
    let verifier = verifier.context("the control key is not valid")?;
    let prestart = from_json(options.prestart.as_deref(), variable::PRESTART)?;
    let persistence = from_json(options.persistence.as_deref(), variable::PERSISTENCE)?;
    let node_root = from_json(options.node_root.as_deref(), variable::NODE_ROOT)?;
    let directories = StateDirectories {
        store: options.store_dir,
        init: options.state_dir.clone(),
    };
    let programs = ProcessPrograms {
        criu: options.criu,
        executor: std::env::current_exe().unwrap_or_else(|_| path::EXECUTOR.into()),
    };
    let identity = PodIdentity {
        key: IdentityKey::from_text(&options.identity_key)?,
        pod_uid: options.pod_uid,
        address: options.pod_ip,
    };
    let reaper = Reaper::new().context("cannot set up signal handling of an init process")?;
    let key = SealingKey::generate().context("cannot create the key for the init message")?;
    let (starts, requests) = mpsc::channel(1);
    let (saves, save_requests) = SaveCalls::new();
    let (snapshots, snapshot_requests) = SnapshotCalls::new();
    let lifecycle = CommandState::dormant();
    let control = Arc::new(Control {
        verifier,
        store: InitStore {
            directory: options.state_dir,
            identity,
        },
        lifecycle: lifecycle.clone(),
        acceptance: Mutex::new(Acceptance::Open(key)),
        starts,
        saves: saves.clone(),
        snapshots: snapshots.clone(),
        layers: LayerCalls::new(),
    });
    control.resume();

    let address = options.bind_address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let listener = http_server::bind(SocketAddr::new(address, options.control_port)).await?;
    if options.control_port == 0 {
        http_server::announce(&listener)?;
    }
    let stop = CancellationToken::new();
    let server = http_server::serve(listener, control.clone().router(), LIMITS, stop.clone());
    let probe_address = options.bind_address.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let supervision = async {
        // Not warm before a prestarted program may start.
        lifecycle.report_warmth(Some("the root is being prepared".to_owned()));
        let persistence = Persistence::prepare(persistence, node_root, directories, programs).await;
        control.layers.serve(persistence.layers());
        lifecycle.report_warmth(None);
        let supervisor = Supervisor {
            probe_address,
            lifecycle,
            reaper,
            prestart,
            persistence,
            saves,
            save_requests,
            snapshots,
            snapshot_requests,
        };
        let code = supervisor.supervise(requests).await;
        stop.cancel();
        code
    };
    let ((), code) = tokio::join!(server, supervision);
    Ok(ExitCode::from(code))
}

/// Parses the value of a variable.
fn from_json<T: DeserializeOwned>(text: Option<&str>, name: &str) -> anyhow::Result<Option<T>> {
    let parsed = text.map(serde_json::from_str).transpose();
    parsed.with_context(|| format!("{name} is not valid"))
}

struct Supervisor {
    probe_address: IpAddr,
    lifecycle: CommandState,
    reaper: Reaper,
    /// Program that runs until the init message.
    prestart: Option<Prestart>,
    persistence: Persistence,
    saves: SaveCalls,
    save_requests: mpsc::Receiver<SaveRequest>,
    snapshots: SnapshotCalls,
    snapshot_requests: mpsc::Receiver<SnapshotRequest>,
}

impl Supervisor {
    /// Waits for the init message, runs the command, and returns its exit status.
    async fn supervise(mut self, mut requests: mpsc::Receiver<Init>) -> u8 {
        // The stored message of an earlier run of the container.
        let stored = requests.try_recv().ok();
        self.persistence.reserve_pids().await;
        // Numbers of saved processes must stay free.
        let has_processes = self.persistence.has_processes();
        let may_start = stored.is_none() && !has_processes;
        if self.prestart.is_some() && stored.is_none() && !may_start {
            self.lifecycle.report_handover(false);
        }
        let mut prestarted = match self.prestart.take_if(|_| may_start) {
            Some(prestart) => {
                let (address, launch) = (self.probe_address, self.launch());
                match Prestarted::start(prestart, address, &self.lifecycle, &launch) {
                    Ok(prestarted) => Some(prestarted),
                    Err(error) => return self.fail_start(error),
                }
            }
            None => None,
        };
        // A dormant Pod may wait for hours.
        system::release_code_pages();
        let program = prestarted.as_ref().map(|prestarted| prestarted.child);
        let init = if let Some(init) = stored {
            init
        } else {
            tokio::select! {
                Some(init) = requests.recv() => init,
                code = self.end_of_dormancy(program) => return code,
            }
        };
        let child = match self.become_sandbox(&init, prestarted.take()).await {
            Ok(child) => child,
            Err(error) => {
                let code = self.fail_start(error);
                return self.end_after_failed_start(code).await;
            }
        };
        tracing::debug!(pid = child.as_raw_nonzero(), "command started");
        let probing = probe::watch(self.probe_address, init.probe, self.lifecycle.clone());
        let probe = tokio::spawn(async {
            probing.await;
            // First the ready report and the requests that follow it.
            sleep(RELEASE_DELAY).await;
            system::release_code_pages();
        });
        let end = self.wait_for(child).await;
        probe.abort();
        self.end(end).await
    }

    /// Restores the root, and starts the command or makes the prestarted program the command.
    async fn become_sandbox(
        &mut self,
        init: &Init,
        prestarted: Option<Prestarted>,
    ) -> Result<Pid, CommandStartError> {
        // A program of the image's root must not go on in another one.
        let has_state = self.persistence.has_state();
        let (kept, replaced) = if has_state {
            (None, prestarted)
        } else {
            (prestarted, None)
        };
        if let Some(replaced) = replaced {
            drop(replaced);
            self.lifecycle.report_handover(false);
            reaper::kill_all_children();
        }
        if let Some(root) = self.restore(init).await? {
            return Ok(root);
        }
        if let Some(prestarted) = kept {
            let child = prestarted.hand_over(init).await;
            self.lifecycle.report_handover(child.is_some());
            if let Some(child) = child {
                return Ok(child);
            }
            reaper::kill_all_children();
        }
        command::start(init, &self.launch())
    }

    fn launch(&self) -> Launch {
        let withheld = self.persistence.withheld();
        Launch {
            privileges: withheld.map_or(Privileges::Inherited, Privileges::Without),
            tree_root: self.persistence.tree_root(),
        }
    }

    fn fail_start(&self, error: CommandStartError) -> u8 {
        let code = error.exit_code();
        // With its causes, on one line.
        let detail = format!("{:#}", anyhow::Error::from(error));
        tracing::error!(error = %detail, "cannot start the command");
        termination_message::write_message(&detail);
        self.lifecycle.set(SupervisorState::Exited, Some(detail));
        code
    }

    /// Waits for a signal, or for the end of the prestarted program. There is no command yet, so
    /// PID 1 ends. Returns its exit status.
    async fn end_of_dormancy(&mut self, program: Option<Pid>) -> u8 {
        loop {
            let SignalEvent::Child = self.reaper.next_event().await else {
                reaper::kill_all_children();
                return 0;
            };
            if let Some(code) = reaper::reap(program) {
                let detail = format!("the prestarted program ended with exit status {code}");
                tracing::error!("{detail}");
                termination_message::write_message(&detail);
                reaper::kill_all_children();
                return code.max(1);
            }
        }
    }

    /// Waits until the command has ended, by itself or because of a save.
    async fn wait_for(&mut self, child: Pid) -> CommandEnd {
        loop {
            tokio::select! {
                event = self.reaper.next_event() => {
                    if event == SignalEvent::Forward(Signal::TERM)
                        && let Some(end) = self.end_for_eviction(child).await
                    {
                        return end;
                    }
                    if let Some(code) = handle(event, child) {
                        return CommandEnd { code, save: None, processes: None };
                    }
                },
                Some(request) = self.save_requests.recv() => {
                    return self.end_for_save(child, request).await;
                }
                Some(request) = self.snapshot_requests.recv() => {
                    let came = self.take_snapshot(child, request).await;
                    if let Some(code) = reaper::reap(Some(child)) {
                        return CommandEnd { code, save: came.save, processes: None };
                    }
                    if let Some(save) = came.save {
                        return self.end_for_save(child, save).await;
                    }
                    for signal in came.signals {
                        self.reaper.give_back(signal);
                    }
                }
            }
        }
    }
}

/// Passes a signal on to the command. Returns its exit status if it has ended.
fn handle(event: SignalEvent, child: Pid) -> Option<u8> {
    match event {
        SignalEvent::Child => reaper::reap(Some(child)),
        SignalEvent::Forward(signal) => {
            // Fails only if the child has ended, which the next event reports.
            let _ = rustix::process::kill_process(child, signal);
            None
        }
    }
}
