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
use crds::contract::sealing::SealingKey;
use crds::contract::token::Verifier;
use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::SuperviseOptions;
use crate::http_server::{self, Limits};
use crate::{system, termination_message};

use self::command_state::CommandState;
use self::control::{Acceptance, Control};
use self::init_store::{InitStore, PodIdentity};
use self::reaper::{Reaper, SignalEvent};

mod command;
mod command_state;
mod control;
mod init_store;
mod probe;
mod reaper;

const LIMITS: Limits = Limits {
    connections: 64,
    header_timeout: Duration::from_secs(10),
    grace: Duration::from_millis(200),
};

pub(crate) async fn run(options: SuperviseOptions) -> anyhow::Result<ExitCode> {
    let verifier = Verifier::new(&options.control_public_key);
    let verifier = verifier.context("the control key is not valid")?;
    let identity = PodIdentity {
        key: IdentityKey::from_text(&options.identity_key)?,
        pod_uid: options.pod_uid,
        address: options.pod_ip,
    };
    let reaper = Reaper::new().context("cannot set up signal handling of an init process")?;
    let key = SealingKey::generate().context("cannot create the key for the init message")?;
    let (starts, requests) = mpsc::channel(1);
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
    });
    control.resume();

    let address = options.bind_address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let listener = http_server::bind(SocketAddr::new(address, options.control_port)).await?;
    if options.control_port == 0 {
        http_server::announce(&listener)?;
    }
    let stop = CancellationToken::new();
    let server = http_server::serve(listener, control.router(), LIMITS, stop.clone());
    let supervisor = Supervisor {
        probe_address: options.bind_address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        lifecycle,
        reaper,
    };
    let supervision = async {
        let code = supervisor.supervise(requests).await;
        stop.cancel();
        code
    };
    let ((), code) = tokio::join!(server, supervision);
    Ok(ExitCode::from(code))
}

struct Supervisor {
    probe_address: IpAddr,
    lifecycle: CommandState,
    reaper: Reaper,
}

impl Supervisor {
    /// Waits for the init message, runs the command, and returns its exit status.
    async fn supervise(mut self, mut requests: mpsc::Receiver<Init>) -> u8 {
        // A dormant Pod may wait for hours.
        system::release_code_pages();
        let init = tokio::select! {
            Some(init) = requests.recv() => init,
            () = self.terminated() => return 0,
        };
        let child = match command::start(&init) {
            Ok(child) => child,
            Err(error) => {
                let code = error.exit_code();
                // With its causes, on one line.
                let detail = format!("{:#}", anyhow::Error::from(error));
                tracing::error!(error = %detail, "cannot start the command");
                termination_message::write_message(&detail);
                self.lifecycle.set(SupervisorState::Exited, Some(detail));
                return code;
            }
        };
        tracing::debug!(pid = child.as_raw_nonzero(), "command started");
        let probing = probe::watch(self.probe_address, init.probe, self.lifecycle.clone());
        let probe = tokio::spawn(async {
            probing.await;
            system::release_code_pages();
        });
        let code = self.wait_for(child).await;
        probe.abort();
        self.lifecycle
            .set(SupervisorState::Exited, Some(format!("exit status {code}")));
        // The log is that of the command: lines of the supervisor are for failures.
        if code == 0 {
            tracing::debug!("command ended");
        } else {
            tracing::warn!(code, "command ended");
        }
        reaper::kill_all_children();
        code
    }

    /// Waits for a signal while dormant. There is no command to forward it to, so PID 1 ends.
    async fn terminated(&mut self) {
        while let SignalEvent::Child = self.reaper.next_event().await {
            reaper::reap(None);
        }
    }

    async fn wait_for(&mut self, child: Pid) -> u8 {
        loop {
            match self.reaper.next_event().await {
                SignalEvent::Child => {
                    if let Some(code) = reaper::reap(Some(child)) {
                        return code;
                    }
                }
                SignalEvent::Forward(signal) => {
                    // Fails only if the child has ended, which the next event reports.
                    let _ = rustix::process::kill_process(child, signal);
                }
            }
        }
    }
}
