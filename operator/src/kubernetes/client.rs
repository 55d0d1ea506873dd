//! The one Kubernetes client of a process, and the time limit that every call but a watch has.
//!
//! kube's defaults suit neither: a connect of 30 s, no limit for reads, and retries that add up to
//! minutes. A call here ends in seconds; who called decides whether to try again.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;

use super::words;

/// Longest time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time for any call but a watch.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the cluster is. Without both, the environment decides, as for kubectl; then the cluster
/// that the process runs in.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Connection {
    /// Kubeconfig file.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "KUBE_CONTEXT")]
    pub context: Option<String>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the kubeconfig is unusable")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("no cluster is configured")]
    Infer(#[from] kube::config::InferConfigError),
    #[error("the client cannot be made")]
    Client(#[from] kube::Error),
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no answer within {}s", CALL_TIMEOUT.as_secs())]
    Timeout,
    #[error("{}", words::of(.0))]
    Api(kube::Error),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

/// Makes the client.
pub async fn connect(connection: &Connection) -> Result<Client, ClientError> {
    install_crypto();
    let mut config = configuration(connection).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // A watch may be silent for minutes; calls are bounded by `bounded`.
    config.read_timeout = None;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn configuration(connection: &Connection) -> Result<Config, ClientError> {
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &connection.kubeconfig {
        let file = Kubeconfig::read_from(path)?;
        return Ok(Config::from_custom_kubeconfig(file, &options).await?);
    }
    if connection.context.is_some() {
        return Ok(Config::from_kubeconfig(&options).await?);
    }
    Ok(Config::infer().await?)
}

/// Makes ring the one TLS provider of the process. Without it, rustls panics as soon as two are
/// linked.
pub fn install_crypto() {
    // Fails only if a provider is installed already, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Runs a call under the time limit.
pub async fn bounded<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::Timeout),
    }
}

impl CallError {
    /// The API server's answer, if it was one.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// HTTP status code of the API server's answer.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Whether the server did not answer, or not now: nothing is wrong with what was asked.
    pub fn is_of_server(&self) -> bool {
        self.code()
            .is_none_or(|code| matches!(code, 409 | 429 | 500..))
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the object exists already, as opposed to a write having met another one.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|s| s.reason == "AlreadyExists")
    }

    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409) && !self.is_already_exists()
    }

    /// A fixed word for metrics.
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
