//! `sandbox-operator gateway`.

use std::sync::Arc;

use anyhow::Context as _;
use crds::Sandbox;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admin::{self, AdminArgs};
use super::urls::UrlArgs;
use super::{Installation, shutdown_on_signal};
use crate::clock::Clock;
use crate::gateway::{self, Gateway, GatewayArgs};
use crate::index::Index;
use crate::keys::Keys;
use crate::kubernetes::{root_key, watch, wire};
use crate::tenants::{self, Tenants};
use crate::traffic::Desk;
use crate::vitals::Vitals;

/// What health calls everything that comes before the first request can be answered.
const START: &str = "start";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct RoleArgs {
    #[command(flatten)]
    installation: Installation,
    /// Namespace whose Sandboxes are proxied to. Default: all.
    #[arg(long = "namespace", env = "SANDBOX_NAMESPACE")]
    sandbox_namespace: Option<String>,
    #[command(flatten)]
    urls: UrlArgs,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    gateway: GatewayArgs,
}

impl RoleArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let watched = self.watched()?;
        let client = self.installation.client().await?;
        let shutdown = shutdown_on_signal()?;
        let vitals = Arc::new(Vitals::default());
        // Nobody may be told to come before there is somebody to listen.
        vitals
            .health
            .lacks(START, "it has only just started".into());
        let port = self.admin.open(&vitals).await?;
        let namespace = self.installation.namespace(&client);
        let client = wire::observed(&client, &vitals, None);
        let load = || root_key::load(&client, &namespace);
        let Some(keys) = admin::keys(load, &vitals, &shutdown).await else {
            return Ok(());
        };
        let keys = Arc::new(keys);
        let index = Arc::new(Index::new(keys.clone()));
        let address = self.gateway.listen;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let followers = TaskTracker::new();
        // What open requests and new ones of the last moments go by.
        let served = CancellationToken::new();
        let tenants = Tenants::pending();
        followers.spawn({
            let (tenants, client) = (tenants.clone(), client.clone());
            let (namespace, served) = (namespace.clone(), served.clone());
            async move { Box::pin(tenants::follow(tenants, client, &namespace, served)).await }
        });
        // By default every namespace: sandboxes made with kubectl are proxied to as well.
        followers.spawn(watch::run::<Sandbox>(
            watch::api(&client, watched.as_deref()),
            None,
            index.clone(),
            vitals.clone(),
            served.clone(),
        ));
        let settings = self.gateway.settings();
        let mut config = self.gateway.config(self.urls.into());
        config.vitals = vitals.clone();
        let (ours, known) = (tenants.clone(), index.clone());
        let gateway = Gateway::with_settings(&client, config, keys.clone(), known, ours, settings);
        tell(&vitals, &gateway, &keys)?;
        begin(&vitals, &tenants, &index);
        followers.spawn(refuse_after(shutdown.clone(), vitals));
        gateway::run(gateway, listener, shutdown).await;
        served.cancel();
        followers.close();
        followers.wait().await;
        port.close().await;
        Ok(())
    }
}

impl RoleArgs {
    /// The namespace that is watched; `None` for all.
    fn watched(&self) -> anyhow::Result<Option<String>> {
        let watched = self.sandbox_namespace.clone();
        let watched = watched.filter(|namespace| !namespace.is_empty());
        let starts_in = &self.gateway.namespace;
        anyhow::ensure!(
            watched.as_ref().is_none_or(|watched| watched == starts_in),
            "--gateway-namespace is {starts_in}: --namespace must be the same or absent"
        );
        Ok(watched)
    }
}

/// What controllers and probes may ask of this gateway.
fn tell(vitals: &Vitals, gateway: &Gateway, keys: &Keys) -> anyhow::Result<()> {
    let seen = gateway.clone();
    let desk = Desk::new(keys, Clock::wall(), move |sandbox| seen.seen(sandbox))?;
    // Set nowhere else, so it was empty.
    let _ = vitals.traffic.set(desk);
    Ok(())
}

/// From now on the gateway is ready when it knows who may call and what there is. It listens already.
fn begin(vitals: &Vitals, tenants: &Tenants, index: &Arc<Index>) {
    let (tenants, index) = (tenants.clone(), index.clone());
    vitals.health.need(move || {
        let missing = !tenants.is_loaded();
        missing.then(|| "the API keys have not been read yet".to_owned())
    });
    // The watch says so too, but only once it has begun.
    vitals.health.need(move || {
        let missing = !index.synced();
        missing.then(|| "the Sandboxes have not been listed yet".to_owned())
    });
    vitals.health.has(START);
}

/// A gateway that shuts down is not ready, so that nobody sends it new clients while it drains.
async fn refuse_after(shutdown: CancellationToken, vitals: Arc<Vitals>) {
    shutdown.cancelled().await;
    vitals.health.stop();
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        role: RoleArgs,
    }

    fn watched(flags: &[&str]) -> anyhow::Result<Option<String>> {
        let line = Line::try_parse_from([&["x"], flags].concat())?;
        line.role.watched()
    }

    #[test]
    fn a_gateway_is_ready_when_it_knows_everything_and_not_before() {
        let (vitals, tenants) = (Vitals::default(), Tenants::pending());
        let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
        let index = Arc::new(Index::new(keys));
        vitals.health.lacks(START, "started".into());
        let missing = || vitals.health.missing().len();
        assert_eq!(missing(), 1);
        begin(&vitals, &tenants, &index);
        assert_eq!(missing(), 2);
        tenants.clear();
        assert_eq!(missing(), 1);
        index.retain(&HashSet::new());
        assert_eq!(missing(), 0);
    }

    #[test]
    fn sandboxes_are_started_where_they_are_watched() {
        assert_eq!(watched(&["--gateway-namespace=a"]).unwrap(), None);
        assert_eq!(watched(&["--namespace="]).unwrap(), None);
        let same = watched(&["--namespace=a", "--gateway-namespace=a"]);
        assert_eq!(same.unwrap().as_deref(), Some("a"));
        let other = watched(&["--namespace=a", "--gateway-namespace=b"]);
        assert!(other.unwrap_err().to_string().contains("must be the same"));
    }
}
