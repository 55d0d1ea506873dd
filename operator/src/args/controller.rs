//! `sandbox-operator controller`: flags and wiring of the controller.

use std::sync::Arc;

use kube::Client;

use super::admin_server::{self, AdminArgs};
use super::urls::UrlArgs;
use super::{Installation, shutdown_on_signal};
use controller::{
    self, BuildArgs, ControllerConfig, Deadlines, HttpSupervisors, PeerClients, PersistenceArgs,
    PodArgs,
};
use shared::clock::Clock;
use shared::diagnostics::Diagnostics;
use shared::image_builds::ImageBuilds;
use shared::index::Index;
use shared::keys::Keys;
use shared::kubernetes::leader::LeaseConfig;
use shared::kubernetes::root_key;
use shared::tenants::{self, Tenants};
use shared::traffic::{Gateways, HttpGateways, NoGateways};

pub(super) const LEASE_NAME: &str = "sandbox-operator-controller";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ControllerArgs {
    #[command(flatten)]
    installation: Installation,
    /// Namespace whose Sandboxes are reconciled. Default: all.
    #[arg(long, env = "SANDBOX_NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    urls: UrlArgs,
    /// Disable leader election. Only safe with exactly one controller.
    #[arg(long)]
    no_leader_election: bool,
    /// Identity in the lease, unique among controllers.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    /// Admin servers of the gateways, as HOST:PORT, separated by commas. All addresses of each host
    /// are queried before an idle pause. Absent: there are no gateways.
    #[arg(long, env = "GATEWAYS", value_delimiter = ',')]
    gateways: Vec<String>,
    /// Image builds of clients: off, alias, append or full; must be the same for the gateway.
    #[arg(long, env = "SANDBOX_IMAGE_BUILDS", default_value_t)]
    image_builds: ImageBuilds,
    #[command(flatten)]
    admin: AdminArgs,
    // Last: their help headings apply to all flags that follow.
    #[command(flatten)]
    deadlines: Deadlines,
    #[command(flatten)]
    pods: PodArgs,
    #[command(flatten)]
    persistence: PersistenceArgs,
    #[command(flatten)]
    builds: BuildArgs,
}

impl ControllerArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let shutdown = shutdown_on_signal()?;
        let vitals = Arc::new(Diagnostics::default());
        vitals.export_traces("sandbox-controller")?;
        let port = self.admin.open(&vitals).await?;
        let namespace = self.installation.namespace(&client);
        let gateway_addresses = self.gateways.clone();
        let mut config = self.config(&client)?;
        config.vitals = vitals.clone();
        let load = || root_key::load_or_create(&client, &namespace);
        let Some(keys) = admin_server::wait_for_root_key(load, &vitals, &shutdown).await else {
            return Ok(());
        };
        let keys = Arc::new(keys);
        let index = Arc::new(Index::new(keys.clone()));
        config.tenants = Tenants::pending();
        tokio::spawn({
            let (tenants, client) = (config.tenants.clone(), client.clone());
            let shutdown = shutdown.clone();
            async move { Box::pin(tenants::watch_secret(tenants, client, &namespace, shutdown)).await }
        });
        let gateways = gateways(&gateway_addresses, &keys);
        let ended = controller::run(
            client,
            config,
            keys,
            index,
            PeerClients {
                supervisors: Arc::new(HttpSupervisors::default()),
                gateways,
            },
            Clock::wall(),
            shutdown,
        )
        .await;
        vitals.flush_traces().await;
        port.close().await;
        Ok(ended?)
    }

    fn config(self, client: &Client) -> anyhow::Result<ControllerConfig> {
        let mut config = ControllerConfig::new(self.urls.into());
        if !self.no_leader_election {
            config.leader = Some(LeaseConfig {
                namespace: self.installation.namespace(client),
                name: LEASE_NAME.into(),
                identity: self.identity.map_or_else(random_identity, Ok)?,
            });
        }
        config.namespace = self.namespace.filter(|namespace| !namespace.is_empty());
        config.defaults.lifecycle = self.deadlines;
        config.image_builds = self.image_builds;
        config.builder = self.builds.into();
        config.persistence = self.persistence.settings();
        self.pods.apply(&mut config);
        Ok(config)
    }
}

fn gateways(addresses: &[String], keys: &Arc<Keys>) -> Arc<dyn Gateways> {
    // Charts set the variable of an absent value to the empty text.
    let addresses = addresses.iter().filter(|address| !address.is_empty());
    let addresses: Vec<_> = addresses.cloned().collect();
    if addresses.is_empty() {
        return Arc::new(NoGateways);
    }
    Arc::new(HttpGateways::new(addresses, keys.clone(), Clock::wall()))
}

fn random_identity() -> anyhow::Result<String> {
    let random = ring::rand::generate::<[u8; 8]>(&ring::rand::SystemRandom::new())
        .map_err(|_| anyhow::anyhow!("cannot read random bytes from the operating system"))?;
    Ok(format!("{:016x}", u64::from_be_bytes(random.expose())))
}
