//! `sandbox-operator controller`.

use std::sync::Arc;

use kube::Client;

use super::admin::{self, AdminArgs};
use super::lifecycle::LifecycleArgs;
use super::pods::PodArgs;
use super::urls::UrlArgs;
use super::{Installation, shutdown_on_signal};
use crate::clock::Clock;
use crate::controller::{self, ControllerConfig, HttpSupervisors, Peers};
use crate::index::Index;
use crate::keys::Keys;
use crate::kubernetes::leader::Candidacy;
use crate::kubernetes::root_key;
use crate::tenants::{self, Tenants};
use crate::traffic::{Gateways, HttpGateways, NoGateways};
use crate::vitals::Vitals;

/// Name of the controllers' lease.
pub(super) const LEASE: &str = "sandbox-operator-controller";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ControllerArgs {
    #[command(flatten)]
    installation: Installation,
    /// Namespace whose Sandboxes are served. Default: all.
    #[arg(long, env = "SANDBOX_NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    urls: UrlArgs,
    /// Act without winning a lease: for a controller that is certainly alone.
    #[arg(long)]
    no_leader_election: bool,
    /// Name in the lease; unique among controllers.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    /// Where the gateways' administration ports are, as HOST:PORT, separated by commas. All addresses
    /// of each host are asked before a sandbox is paused as idle. Absent: there are no gateways.
    #[arg(long, env = "GATEWAYS", value_delimiter = ',')]
    gateways: Vec<String>,
    #[command(flatten)]
    admin: AdminArgs,
    // Last, because their headings would otherwise cover what follows.
    #[command(flatten)]
    lifecycle: LifecycleArgs,
    #[command(flatten)]
    pods: PodArgs,
}

impl ControllerArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let shutdown = shutdown_on_signal()?;
        let vitals = Arc::new(Vitals::default());
        let port = self.admin.open(&vitals).await?;
        let namespace = self.installation.namespace(&client);
        let places = self.gateways.clone();
        let mut config = self.config(&client)?;
        config.vitals = vitals.clone();
        let load = || root_key::load_or_create(&client, &namespace);
        let Some(keys) = admin::keys(load, &vitals, &shutdown).await else {
            return Ok(());
        };
        let keys = Arc::new(keys);
        let index = Arc::new(Index::new(keys.clone()));
        config.tenants = Tenants::pending();
        tokio::spawn({
            let (tenants, client) = (config.tenants.clone(), client.clone());
            let shutdown = shutdown.clone();
            async move { Box::pin(tenants::follow(tenants, client, &namespace, shutdown)).await }
        });
        let gateways = gateways(&places, &keys);
        let ended = controller::run(
            client,
            config,
            keys,
            index,
            Peers {
                supervisors: Arc::new(HttpSupervisors::default()),
                gateways,
            },
            Clock::wall(),
            shutdown,
        )
        .await;
        port.close().await;
        Ok(ended?)
    }

    fn config(self, client: &Client) -> anyhow::Result<ControllerConfig> {
        let mut config = ControllerConfig::new(self.urls.into());
        if !self.no_leader_election {
            config.leader = Some(Candidacy {
                namespace: self.installation.namespace(client),
                name: LEASE.into(),
                identity: self.identity.map_or_else(random_identity, Ok)?,
            });
        }
        config.namespace = self.namespace.filter(|namespace| !namespace.is_empty());
        config.defaults.lifecycle = self.lifecycle.into();
        self.pods.apply(&mut config)?;
        Ok(config)
    }
}

fn gateways(places: &[String], keys: &Arc<Keys>) -> Arc<dyn Gateways> {
    // Charts set variables to the empty text when a value is absent.
    let places = places.iter().filter(|place| !place.is_empty());
    let places: Vec<_> = places.cloned().collect();
    if places.is_empty() {
        return Arc::new(NoGateways);
    }
    Arc::new(HttpGateways::new(places, keys.clone(), Clock::wall()))
}

fn random_identity() -> anyhow::Result<String> {
    let random = ring::rand::generate::<[u8; 8]>(&ring::rand::SystemRandom::new())
        .map_err(|_| anyhow::anyhow!("no randomness"))?;
    Ok(format!("{:016x}", u64::from_be_bytes(random.expose())))
}
