//! The Kubernetes client of a process, and the time limit of every call except watches.
//!
//! The defaults of kube do not fit: 30 s to connect, no read timeout, and retries that add up to
//! minutes. Here a call ends within seconds and the caller decides about a retry.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;

use super::error_text;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of any call except a watch.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Cluster connection. Without options, the environment decides as for kubectl, then the in-cluster
/// configuration.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Connection {
    /// Path of the kubeconfig file
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, env = "KUBE_CONTEXT")]
    pub context: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot read the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("no cluster is configured")]
    Infer(#[from] kube::config::InferConfigError),
    #[error("cannot create the Kubernetes client")]
    Client(#[from] kube::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no response within {}s", CALL_TIMEOUT.as_secs())]
    Timeout,
    #[error("{}", error_text::error_text(.0))]
    Api(kube::Error),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

pub async fn connect(connection: &Connection) -> Result<Client, ClientError> {
    install_crypto();
    let mut config = configuration(connection).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // A watch may be silent for a minute; `middleware` bounds that, and `with_timeout` calls.
    config.read_timeout = None;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn configuration(connection: &Connection) -> Result<Config, ClientError> {
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    Ok(match &connection.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(file, &options).await?
        }
        None if options.context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer().await?,
    })
}

/// Installs ring as TLS provider. Without it, rustls panics as soon as two providers are linked.
pub fn install_crypto() {
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Runs a call under the time limit.
pub async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(response) => Ok(response?),
        Err(_) => Err(CallError::Timeout),
    }
}

impl CallError {
    /// Status object of the API server, if it responded.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// HTTP status code of the API server's response.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Returns whether the API server failed or was busy; the request itself may be valid.
    pub fn is_server_error(&self) -> bool {
        self.code()
            .is_none_or(|code| matches!(code, 409 | 429 | 500..))
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns whether the object exists already, as opposed to a write conflict.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|s| s.reason == "AlreadyExists")
    }

    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409) && !self.is_already_exists()
    }

    /// Error category for metrics.
    pub fn category(&self) -> &'static str {
        match (self, self.code()) {
            (Self::Timeout, _) => "timeout",
            (Self::Api(_), Some(401 | 403)) => "forbidden",
            (Self::Api(_), Some(404)) => "not_found",
            (Self::Api(_), Some(409)) => "conflict",
            (Self::Api(_), Some(429)) => "throttled",
            (Self::Api(_), Some(500..)) => "server_error",
            (Self::Api(_), Some(_)) => "invalid",
            (Self::Api(_), None) => "no_answer",
        }
    }
}
