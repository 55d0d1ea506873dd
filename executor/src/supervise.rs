//! PID 1 of every sandbox container.
//!
//! Dormant until the controller's signed call says what to run; then it runs that command, tells
//! when it is ready, forwards signals, reaps orphans and ends with the command's exit status.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use crds::contract::control::{Init, SupervisorState};
use crds::contract::token::{TokenError, Verifier};
use rustix::process::Pid;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::SuperviseOptions;
use crate::http_server::{self, Limits};
use crate::{last_words, system};

use self::child::StartError;
use self::control::Control;
use self::lifecycle::Lifecycle;
use self::reaper::{Reaper, Wake};
use self::store::Store;

mod child;
mod control;
mod lifecycle;
mod probe;
mod reaper;
mod store;

const LIMITS: Limits = Limits {
    connections: 64,
    header_timeout: Duration::from_secs(10),
    grace: Duration::from_millis(200),
};

#[derive(Debug, thiserror::Error)]
enum SuperviseError {
    #[error("the control key is unusable")]
    Key(#[source] TokenError),
    #[error("cannot take over the duties of an init process")]
    Reaper(#[source] std::io::Error),
}

pub(crate) async fn run(options: SuperviseOptions) -> anyhow::Result<ExitCode> {
    let verifier = Verifier::new(&options.control_key).map_err(SuperviseError::Key)?;
    let reaper = Reaper::new().map_err(SuperviseError::Reaper)?;
    let store = Store::new(&options.state_dir);
    let (starts, requests) = mpsc::channel(1);
    let lifecycle = Lifecycle::dormant();
    let control = Control::new(options.pod_uid, verifier, store, lifecycle.clone(), starts);
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
    lifecycle: Lifecycle,
    reaper: Reaper,
}

impl Supervisor {
    /// Waits for the initialisation, runs the command, and returns its exit status.
    async fn supervise(mut self, mut requests: mpsc::Receiver<Init>) -> u8 {
        // Members of a pool wait for hours, and there are many of them.
        system::give_back_code();
        let init = tokio::select! {
            Some(init) = requests.recv() => init,
            () = self.terminated() => return 0,
        };
        let child = match child::start(&init) {
            Ok(child) => child,
            Err(error) => return self.refuse(&error),
        };
        tracing::info!(pid = child.as_raw_nonzero(), "command started");
        let probing = probe::watch(self.probe_address, init.probe, self.lifecycle.clone());
        let probe = tokio::spawn(async {
            probing.await;
            system::give_back_code();
        });
        let code = self.follow(child).await;
        probe.abort();
        self.lifecycle
            .set(SupervisorState::Exited, Some(format!("exit status {code}")));
        tracing::info!(code, "command ended");
        reaper::end_all_children();
        code
    }

    /// Dormant, there is nothing to forward a signal to: the container just ends.
    async fn terminated(&mut self) {
        while let Wake::Child = self.reaper.wake().await {
            reaper::reap(None);
        }
    }

    fn refuse(&self, error: &StartError) -> u8 {
        tracing::error!(error = %Chain(error), "cannot start the command");
        let detail = Chain(error).to_string();
        last_words::leave(&detail);
        self.lifecycle.set(SupervisorState::Exited, Some(detail));
        error.exit_code()
    }

    async fn follow(&mut self, child: Pid) -> u8 {
        loop {
            match self.reaper.wake().await {
                Wake::Child => {
                    if let Some(code) = reaper::reap(Some(child)) {
                        return code;
                    }
                }
                Wake::Forward(signal) => {
                    // Fails only if the child is gone, which the next wake reports.
                    let _ = rustix::process::kill_process(child, signal);
                }
            }
        }
    }
}

/// An error with its causes on one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
