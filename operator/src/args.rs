//! Command line and environment of the binary. The only module that knows of processes, flags and
//! signals.

mod admin;
mod check;
mod controller;
mod gateway;
mod keys;
mod lifecycle;
mod logs;
mod pods;
mod purge;
mod token;
mod urls;

pub use lifecycle::LifecycleArgs;

use clap::{Parser, Subcommand};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::keys::Keys;
use crate::kubernetes::client::{Connection, connect};
use crate::kubernetes::root_key::{self, RootKeyError};
use crate::telemetry::{self, LogFormat};

/// Sandboxes for AI agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "sandbox-operator", version)]
pub struct Args {
    /// Format of the log: json or text. Default: text at a terminal, else json.
    #[arg(long, env = "LOG_FORMAT", global = true)]
    log_format: Option<LogFormat>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Makes Sandboxes real.
    Controller(Box<controller::ControllerArgs>),
    /// Serves the runtime API and proxies to sandboxes.
    Gateway(Box<gateway::RoleArgs>),
    /// Makes, lists and revokes API keys.
    Keys(keys::KeysArgs),
    /// Prints the session key of a Sandbox.
    Token(token::TokenArgs),
    /// Prints what the command of a Sandbox wrote, also after it has failed and its Pod is gone.
    Logs(logs::LogsArgs),
    /// Checks an installation as its clients see it.
    Check(check::CheckArgs),
    /// Deletes all sandboxes of a namespace, with their files, and the Secrets of the operator.
    Purge(purge::PurgeArgs),
}

/// What every role needs to know of its cluster.
#[derive(Debug, Clone, clap::Args)]
struct Installation {
    #[command(flatten)]
    connection: Connection,
    /// Namespace of the operator itself: of root key, API keys and lease. Default: that of the
    /// kubeconfig, or of the Pod.
    #[arg(long, env = "POD_NAMESPACE")]
    operator_namespace: Option<String>,
}

impl Args {
    /// Runs the role until it ends or a signal asks for it.
    pub async fn run(self) -> anyhow::Result<()> {
        telemetry::init_as(self.log_format);
        match self.role {
            Role::Controller(args) => args.run().await,
            Role::Gateway(args) => args.run().await,
            Role::Keys(args) => args.run().await,
            Role::Token(args) => args.run().await,
            Role::Logs(args) => args.run().await,
            Role::Check(args) => args.run().await,
            Role::Purge(args) => args.run().await,
        }
    }
}

impl Installation {
    async fn client(&self) -> anyhow::Result<Client> {
        Ok(connect(&self.connection).await?)
    }

    fn namespace(&self, client: &Client) -> String {
        let own = self.operator_namespace.clone();
        own.unwrap_or_else(|| client.default_namespace().to_owned())
    }

    /// Those of the operator that is installed: whoever looks must not make another root key.
    async fn keys(&self, client: &Client) -> anyhow::Result<Keys> {
        let namespace = self.namespace(client);
        let loaded = root_key::load(client, &namespace).await;
        loaded.map_err(|error| match error {
            RootKeyError::Absent => anyhow::Error::new(error).context(format!(
                "no operator in namespace {namespace} (--operator-namespace)"
            )),
            error => error.into(),
        })
    }
}

/// Cancelled by SIGINT or SIGTERM; a second signal ends the process as usual.
fn shutdown_on_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let shutdown = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("shutting down");
        shutdown.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(token)
}
