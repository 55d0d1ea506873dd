//! `sandbox-operator gateway`: flags and wiring of the gateway.

use std::sync::Arc;

use anyhow::Context as _;
use crds::Sandbox;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admin_server::{self, AdminArgs};
use super::urls::UrlArgs;
use super::{Installation, shutdown_on_signal};
use gateway::{self, Certificate, Gateway, GatewayConfig, RegistryArgs};
use shared::clock::Clock;
use shared::diagnostics::Diagnostics;
use shared::index::Index;
use shared::keys::Keys;
use shared::kubernetes::{middleware, root_key, watch};
use shared::tenants::{self, Tenants};
use shared::traffic::TrafficEndpoint;

const STARTUP_CHECK: &str = "start";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct GatewayRoleArgs {
    #[command(flatten)]
    installation: Installation,
    /// Namespace whose Sandboxes are served. Default: all.
    #[arg(long = "namespace", env = "SANDBOX_NAMESPACE")]
    sandbox_namespace: Option<String>,
    #[command(flatten)]
    urls: UrlArgs,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    registries: RegistryArgs,
    #[command(flatten)]
    config: GatewayConfig,
}

impl GatewayRoleArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let watched = self.watched()?;
        let client = self.installation.client().await?;
        let tls_files = self.config.tls_certificate.clone();
        let tls_files = tls_files.zip(self.config.tls_key.clone());
        let certificate = tls_files.map(|(chain, key)| Certificate::load(chain, key));
        let certificate = certificate.transpose()?;
        let shutdown = shutdown_on_signal()?;
        let vitals = Arc::new(Diagnostics::default());
        vitals.export_traces("sandbox-gateway")?;
        // Not ready before the listener exists.
        vitals.health.set_unmet(STARTUP_CHECK, "starting".into());
        let port = self.admin.open(&vitals).await?;
        let namespace = self.installation.namespace(&client);
        let client = middleware::instrument(&client, &vitals, None);
        let load = || root_key::load(&client, &namespace);
        let Some(keys) = admin_server::wait_for_root_key(load, &vitals, &shutdown).await else {
            return Ok(());
        };
        let keys = Arc::new(keys);
        let index = Arc::new(Index::without_environments(keys.clone()));
        let address = self.config.listen;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let tasks = TaskTracker::new();
        // Cancelled after the drain: open requests still use the watches.
        let served = CancellationToken::new();
        let tenants = Tenants::pending();
        tasks.spawn({
            let (tenants, client) = (tenants.clone(), client.clone());
            let (namespace, served) = (namespace.clone(), served.clone());
            async move { Box::pin(tenants::watch_secret(tenants, client, &namespace, served)).await }
        });
        // By default every namespace, because sandboxes made with kubectl are proxied to as well.
        tasks.spawn(watch::run::<Sandbox>(
            watch::api(&client, watched.as_deref()),
            None,
            index.clone(),
            vitals.clone(),
            served.clone(),
        ));
        let mut config = GatewayConfig {
            urls: self.urls.into(),
            vitals: vitals.clone(),
            certificate,
            ..self.config
        };
        config.open_registries(&self.registries)?;
        let gateway = Gateway::new(
            &client,
            config,
            keys.clone(),
            index.clone(),
            tenants.clone(),
        );
        set_traffic_endpoint(&vitals, &gateway, &keys)?;
        register_readiness_checks(&vitals, &tenants, &index);
        tasks.spawn(fail_readiness_on_shutdown(shutdown.clone(), vitals.clone()));
        gateway::run(gateway, listener, shutdown).await;
        served.cancel();
        tasks.close();
        tasks.wait().await;
        vitals.flush_traces().await;
        port.close().await;
        Ok(())
    }

    /// Returns the watched namespace; `None` for all.
    fn watched(&self) -> anyhow::Result<Option<String>> {
        let watched = self.sandbox_namespace.clone();
        let watched = watched.filter(|namespace| !namespace.is_empty());
        let starts_in = &self.config.namespace;
        anyhow::ensure!(
            watched.as_ref().is_none_or(|watched| watched == starts_in),
            "--gateway-namespace is {starts_in}: --namespace must be the same or absent"
        );
        Ok(watched)
    }
}

/// Sets the endpoint at which controllers query the traffic of a sandbox.
fn set_traffic_endpoint(
    vitals: &Diagnostics,
    gateway: &Gateway,
    keys: &Keys,
) -> anyhow::Result<()> {
    let seen = gateway.clone();
    let endpoint =
        TrafficEndpoint::new(keys, Clock::wall(), move |sandbox| seen.traffic_of(sandbox))?;
    // Not set anywhere else, so it was empty.
    let _ = vitals.traffic.set(endpoint);
    Ok(())
}

/// Makes readiness depend on the API keys and the index. The listener exists already.
fn register_readiness_checks(vitals: &Diagnostics, tenants: &Tenants, index: &Arc<Index>) {
    let (tenants, index) = (tenants.clone(), index.clone());
    vitals.health.add_readiness_check(move || {
        let missing = !tenants.is_loaded();
        missing.then(|| "the API keys are not loaded yet".to_owned())
    });
    // The watch reports this too, but only after its start.
    vitals.health.add_readiness_check(move || {
        let missing = !index.is_synced();
        missing.then(|| "the Sandboxes are not listed yet".to_owned())
    });
    vitals.health.serve_while_stale();
    vitals.health.clear_unmet(STARTUP_CHECK);
}

/// Fails readiness at shutdown, so that load balancers send no new clients during the drain.
async fn fail_readiness_on_shutdown(shutdown: CancellationToken, vitals: Arc<Diagnostics>) {
    shutdown.cancelled().await;
    vitals.health.begin_shutdown();
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::Parser;

    use super::*;
    use shared::kubernetes::health::WatchFailure;

    #[derive(Debug, Parser)]
    struct TestArgs {
        #[command(flatten)]
        role: GatewayRoleArgs,
    }

    fn watched(flags: &[&str]) -> anyhow::Result<Option<String>> {
        let line = TestArgs::try_parse_from([&["x"], flags].concat())?;
        line.role.watched()
    }

    #[test]
    fn gateway_is_ready_when_keys_and_sandboxes_are_loaded() {
        let (vitals, tenants) = (Diagnostics::default(), Tenants::pending());
        let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
        let index = Arc::new(Index::new(keys));
        vitals.health.set_unmet(STARTUP_CHECK, "started".into());
        let missing = || vitals.health.readiness_failures().len();
        assert_eq!(missing(), 1);
        register_readiness_checks(&vitals, &tenants, &index);
        assert_eq!(missing(), 2);
        tenants.clear();
        assert_eq!(missing(), 1);
        index.retain(&HashSet::new());
        assert_eq!(missing(), 0);
        let health = &vitals.health;
        health.add_watch("sandboxes", String::new());
        health.watch_listed("sandboxes");
        health.watch_failed("sandboxes", WatchFailure::NotInstalled);
        assert_eq!((missing(), health.warnings().len()), (0, 1));
    }

    #[test]
    fn gateway_namespace_must_match_watched_namespace() {
        assert_eq!(watched(&["--gateway-namespace=a"]).unwrap(), None);
        assert_eq!(watched(&["--namespace="]).unwrap(), None);
        let same = watched(&["--namespace=a", "--gateway-namespace=a"]);
        assert_eq!(same.unwrap().as_deref(), Some("a"));
        let other = watched(&["--namespace=a", "--gateway-namespace=b"]);
        assert!(other.unwrap_err().to_string().contains("must be the same"));
    }
}
