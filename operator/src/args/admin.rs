//! What the process tells of itself while a role runs: the port for probes and metrics, and the
//! wait for what the role cannot begin without.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admin;
use crate::keys::Keys;
use crate::kubernetes::backoff::Pauses;
use crate::kubernetes::root_key::RootKeyError;
use crate::vitals::Vitals;

/// First and longest pause between attempts to get the root key.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// What health calls the root key.
const NEED: &str = "root key";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct AdminArgs {
    /// Address of /livez, /readyz and /metrics; `off` for none.
    #[arg(long, env = "ADMIN_LISTEN", default_value = "0.0.0.0:8081")]
    admin_listen: Listen,
}

/// An address or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listen(Option<SocketAddr>);

impl std::str::FromStr for Listen {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self(None)),
            address => address.parse().map(|address| Self(Some(address))),
        }
    }
}

/// The port, served until it is closed or dropped.
#[derive(Debug)]
pub(super) struct AdminPort {
    _open: DropGuard,
    served: Option<JoinHandle<()>>,
}

impl AdminArgs {
    /// Begins to serve.
    pub(super) async fn open(&self, vitals: &Arc<Vitals>) -> anyhow::Result<AdminPort> {
        let shutdown = CancellationToken::new();
        let served = match self.admin_listen.0 {
            None => None,
            Some(address) => {
                let listener = TcpListener::bind(address)
                    .await
                    .with_context(|| format!("cannot listen on {address} for administration"))?;
                let serving = admin::serve(listener, vitals.clone(), shutdown.clone());
                Some(tokio::spawn(serving))
            }
        };
        Ok(AdminPort {
            _open: shutdown.drop_guard(),
            served,
        })
    }
}

impl AdminPort {
    /// Ends serving.
    pub(super) async fn close(self) {
        let Self {
            _open: open,
            served,
        } = self;
        drop(open);
        if let Some(served) = served {
            // Fails only if serving panicked; the process ends anyway.
            let _ = served.await;
        }
    }
}

/// Loads the root key, waiting for whatever is missing: the API server, permissions, a usable
/// Secret. `None` if the shutdown came first.
pub(super) async fn keys<F>(
    load: impl Fn() -> F,
    vitals: &Vitals,
    shutdown: &CancellationToken,
) -> Option<Keys>
where
    F: Future<Output = Result<Keys, RootKeyError>>,
{
    shutdown
        .run_until_cancelled(until_loaded(load, vitals))
        .await
}

async fn until_loaded<F>(load: impl Fn() -> F, vitals: &Vitals) -> Keys
where
    F: Future<Output = Result<Keys, RootKeyError>>,
{
    let mut pauses = Pauses::new(PAUSES.0, PAUSES.1);
    loop {
        match load().await {
            Ok(keys) => {
                vitals.health.has(NEED);
                return keys;
            }
            Err(error) => {
                let text = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(error = text, "no root key yet; trying again");
                vitals.health.lacks(NEED, format!("no root key: {text}"));
            }
        }
        sleep(pauses.next().unwrap_or(PAUSES.1)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn an_address_or_off() {
        assert_eq!("off".parse(), Ok(Listen(None)));
        let address = "127.0.0.1:1".parse().unwrap();
        assert_eq!("127.0.0.1:1".parse(), Ok(Listen(Some(address))));
        assert!("8081".parse::<Listen>().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_at_the_start_is_waited_for_and_named() {
        let (vitals, attempts) = (Vitals::default(), AtomicU32::new(0));
        let load = || async {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            assert_eq!(vitals.health.missing().is_empty(), attempt == 0);
            if attempt < 20 {
                return Err(RootKeyError::Empty);
            }
            Ok(Keys::derive(&[1; 32]).unwrap())
        };
        until_loaded(load, &vitals).await;
        assert!(vitals.health.missing().is_empty());
    }
}
