//! Flags of the admin server (probes and metrics), and the wait for the root key, which is reported
//! there.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use shared::admin_server;
use shared::diagnostics::Diagnostics;
use shared::keys::Keys;
use shared::kubernetes::backoff::ExponentialBackoff;
use shared::kubernetes::root_key::RootKeyError;

/// Initial and maximum backoff between attempts to load the root key.
const ROOT_KEY_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
const ROOT_KEY_CHECK: &str = "root key";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct AdminArgs {
    /// Address of /livez, /readyz and /metrics; `off` disables them.
    #[arg(long, env = "ADMIN_LISTEN", default_value = "0.0.0.0:8081")]
    admin_listen: Listen,
}

/// Address, or `off`.
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

/// Running admin server; stops when it is closed or dropped.
#[derive(Debug)]
pub(super) struct AdminServer(DropGuard, Option<JoinHandle<()>>);

impl AdminArgs {
    pub(super) async fn open(&self, vitals: &Arc<Diagnostics>) -> anyhow::Result<AdminServer> {
        let shutdown = CancellationToken::new();
        let mut served = None;
        if let Some(address) = self.admin_listen.0 {
            let listener = TcpListener::bind(address).await;
            let listener = listener
                .with_context(|| format!("cannot listen on {address} for probes and metrics"))?;
            let serving = admin_server::serve(listener, vitals.clone(), shutdown.clone());
            served = Some(tokio::spawn(serving));
        }
        Ok(AdminServer(shutdown.drop_guard(), served))
    }
}

impl AdminServer {
    /// Stops the server and waits for its end.
    pub(super) async fn close(self) {
        let Self(open, served) = self;
        drop(open);
        if let Some(served) = served {
            // Fails only if serving panicked; the process ends anyway.
            let _ = served.await;
        }
    }
}

/// Loads the root key, with retries until it is available. `None` if the shutdown came first.
pub(super) async fn wait_for_root_key<F>(
    load: impl Fn() -> F,
    vitals: &Diagnostics,
    shutdown: &CancellationToken,
) -> Option<Keys>
where
    F: Future<Output = Result<Keys, RootKeyError>>,
{
    shutdown
        .run_until_cancelled(load_with_backoff(load, vitals))
        .await
}

async fn load_with_backoff<F>(load: impl Fn() -> F, vitals: &Diagnostics) -> Keys
where
    F: Future<Output = Result<Keys, RootKeyError>>,
{
    let mut delays = ExponentialBackoff::new(ROOT_KEY_BACKOFF.0, ROOT_KEY_BACKOFF.1);
    loop {
        match load().await {
            Ok(keys) => {
                vitals.health.clear_unmet(ROOT_KEY_CHECK);
                return keys;
            }
            Err(error) => {
                let text = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(error = text, "root key is not available; retrying");
                vitals
                    .health
                    .set_unmet(ROOT_KEY_CHECK, format!("root key is not available: {text}"));
            }
        }
        sleep(delays.next().unwrap_or(ROOT_KEY_BACKOFF.1)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn listen_flag_takes_address_or_off() {
        assert_eq!("off".parse(), Ok(Listen(None)));
        let address = "127.0.0.1:1".parse().unwrap();
        assert_eq!("127.0.0.1:1".parse(), Ok(Listen(Some(address))));
        assert!("8081".parse::<Listen>().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn startup_waits_for_root_key_and_reports_it() {
        let (vitals, attempts) = (Diagnostics::default(), AtomicU32::new(0));
        let load = || async {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            assert_eq!(vitals.health.readiness_failures().is_empty(), attempt == 0);
            if attempt < 20 {
                return Err(RootKeyError::Empty);
            }
            Ok(Keys::derive(&[1; 32]).unwrap())
        };
        load_with_backoff(load, &vitals).await;
        assert!(vitals.health.readiness_failures().is_empty());
    }
}
