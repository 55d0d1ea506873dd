//! Command line and environment of the binary. Only this module deals with flags and signals.

mod admin_server;
mod check;
mod controller;
mod gateway;
mod image_build;
mod keys;
mod logs;
mod purge;
mod token;
mod urls;

use clap::{Parser, Subcommand};
use kube::Client;
use tokio_util::sync::CancellationToken;

use shared::keys::Keys;
use shared::kubernetes::client::{Connection, connect};
use shared::kubernetes::root_key::{self, RootKeyError};
use shared::logging::{self, LogFormat};

/// Sandboxes for AI agents on Kubernetes
#[derive(Debug, Parser)]
#[command(name = "sandbox-operator", version)]
pub struct Args {
    /// Log format: json or text. Default: text at a terminal, else json
    #[arg(long, env = "LOG_FORMAT", global = true)]
    log_format: Option<LogFormat>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Run the controller
    Controller(Box<controller::ControllerArgs>),
    /// Run the gateway (runtime API and proxy)
    Gateway(Box<gateway::GatewayRoleArgs>),
    /// Run a step of a full image build
    #[command(subcommand, hide = true)]
    ImageBuild(image_build::ImageBuildCommand),
    /// Create, list and revoke API keys, and rotate the root key
    Keys(keys::KeysArgs),
    /// Print the session key of a Sandbox
    Token(token::TokenArgs),
    /// Print the log of a Sandbox, also after it has failed
    Logs(logs::LogsArgs),
    /// Check an installation from the view of a client
    Check(check::CheckArgs),
    /// Delete all sandboxes of a namespace, with their workspaces, and the Secrets of the operator
    Purge(purge::PurgeArgs),
}

/// Flags that every role needs to reach its cluster.
#[derive(Debug, Clone, clap::Args)]
struct Installation {
    #[command(flatten)]
    connection: Connection,
    /// Namespace of the operator (root key, API keys, lease). Default: that of the kubeconfig, or
    /// of the Pod.
    #[arg(long, env = "POD_NAMESPACE")]
    operator_namespace: Option<String>,
}

impl Args {
    /// Runs the role until it ends or a signal stops it.
    pub async fn run(self) -> anyhow::Result<()> {
        logging::init(self.log_format);
        match self.role {
            Role::Controller(args) => args.run().await,
            Role::Gateway(args) => args.run().await,
            Role::ImageBuild(command) => command.run().await,
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

    /// Loads the root key of the installed operator; never creates one.
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

/// Returns a token that SIGINT or SIGTERM cancels; a second signal ends the process.
fn shutdown_on_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let shutdown = token.clone();
    let mut either = async move || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::spawn(async move {
        either().await;
        tracing::info!("shutting down");
        shutdown.cancel();
        either().await;
        std::process::exit(130);
    });
    Ok(token)
}
