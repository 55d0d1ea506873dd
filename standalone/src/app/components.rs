//! Components of the process and how each one is run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use images::{Credentials, Limits, RegistrySettings};
use kube::Client;
use operator::clock::Clock;
use operator::controller::{
    self, BuildSteps, BuilderConfig, BuilderIsolation, ControllerConfig, Deadlines, DefaultLevel,
    HttpSupervisors, Injection, PeerClients, RegistryAccess, RootPersistence,
};
use operator::diagnostics::Diagnostics;
use operator::gateway::{self, ApiSettings, Gateway, GatewayConfig, Tenants};
use operator::image_builds::ImageBuilds;
use operator::index::Index;
use operator::keys::Keys;
use operator::tenants;
use operator::urls::Urls;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::NAMESPACE;
use super::api_key::TENANT;
use crate::api::EmbeddedApi;
use crate::args::{Args, RegistryArgs};
use crate::node::{self, ImageBuildPods, ImagePullConfig, NodeConfig};

/// Parts that the components share.
pub(super) struct Components {
    pub(super) api: EmbeddedApi,
    pub(super) client: Client,
    pub(super) keys: Arc<Keys>,
    pub(super) index: Arc<Index>,
    pub(super) urls: Urls,
    pub(super) tenants: Tenants,
    pub(super) node: NodeConfig,
    pub(super) public: bool,
    pub(super) deadlines: Deadlines,
    pub(super) default_persistence: DefaultLevel,
    pub(super) memory_persistence: bool,
    pub(super) settings: ApiSettings,
    pub(super) registries: gateway::RegistryArgs,
    pub(super) builder: BuilderConfig,
    /// One set of diagnostics for the whole process.
    pub(super) vitals: Arc<Diagnostics>,
}

impl Components {
    pub(super) async fn run_node(
        self: Arc<Self>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        self.api.serve_containers(Arc::new(self.node.clone()));
        let run = node::run(self.client.clone(), self.node.clone(), shutdown);
        Box::pin(run).await.context("node")
    }

    /// Serves the embedded API below a secret path, which only the kubeconfig contains.
    pub(super) async fn serve_api(
        self: Arc<Self>,
        listener: TcpListener,
        secret_path: String,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let router = axum::Router::new().nest(&format!("/{secret_path}"), self.api.router());
        let serve = axum::serve(listener, router).into_future();
        let ended = shutdown.run_until_cancelled(serve).await;
        ended.unwrap_or(Ok(())).context("embedded API")
    }

    pub(super) async fn run_controller(
        self: Arc<Self>,
        gateway: Gateway,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut config = ControllerConfig::new(self.urls.clone());
        config.defaults.lifecycle = self.deadlines;
        config.pods.injection = Injection::ImageVolume;
        config.tenants = self.tenants.clone();
        config.vitals = self.vitals.clone();
        config.image_builds = self.settings.image_builds.unwrap_or_default();
        config.builder = self.builder.clone();
        config.persistence.default_level = self.default_persistence;
        config.persistence.memory = self.memory_persistence;
        config.persistence.root = if NodeConfig::keeps_roots() {
            RootPersistence::Node
        } else {
            RootPersistence::None
        };
        let clients = PeerClients {
            supervisors: Arc::new(HttpSupervisors::default()),
            gateways: Arc::new(gateway),
        };
        let (client, keys, index) = (self.client.clone(), self.keys.clone(), self.index.clone());
        let clock = Clock::wall();
        let run = controller::run(client, config, keys, index, clients, clock, shutdown);
        run.await.context("controller")
    }

    /// Watches the Secret of API keys.
    pub(super) async fn run_tenants(
        self: Arc<Self>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        tenants::watch_secret(
            self.tenants.clone(),
            self.client.clone(),
            NAMESPACE,
            shutdown,
        )
        .await;
        Ok(())
    }

    pub(super) fn gateway(&self) -> anyhow::Result<Gateway> {
        let mut config = GatewayConfig {
            urls: self.urls.clone(),
            local_only: !self.public,
            settings: self.settings.clone(),
            registry_owner: Some(TENANT.to_owned()),
            vitals: self.vitals.clone(),
            ..gateway_config()
        };
        config.open_registries(&self.registries)?;
        let (keys, index) = (self.keys.clone(), self.index.clone());
        let tenants = self.tenants.clone();
        Ok(Gateway::new(&self.client, config, keys, index, tenants))
    }
}

/// Configuration of the gateway that no flag changes.
pub(super) fn gateway_config() -> GatewayConfig {
    GatewayConfig {
        namespace: NAMESPACE.into(),
        drain_delay: Duration::ZERO,
        drain_limit: Duration::from_secs(5),
        max_connections_per_address: 0,
        loopback_pods: true,
        ..GatewayConfig::default()
    }
}

/// Registries of the flags, with the credentials that they name.
pub(crate) fn image_pulls(args: &RegistryArgs) -> anyhow::Result<ImagePullConfig> {
    let mut registries = RegistrySettings::default();
    registries.insecure.extend(args.insecure.iter().cloned());
    for (host, mirror) in &args.mirrors {
        let mirrors = registries.mirrors.entry(host.clone()).or_default();
        mirrors.push(mirror.clone());
    }
    let mut credentials = Credentials::default();
    if let Some(path) = &args.registry_config {
        let text = std::fs::read(path);
        let text = text.with_context(|| format!("--registry-config {}", path.display()))?;
        let parsed = Credentials::parse(&text);
        credentials = parsed.with_context(|| format!("--registry-config {}", path.display()))?;
    }
    Ok(ImagePullConfig {
        registries,
        credentials,
        store_limit: args.image_store_limit,
        layer_limits: Limits::default(),
    })
}

/// Full image builds: BuildKit as root of a user namespace of the node, and the rest in this process.
pub(super) fn builder_config(args: &Args, state: &Path) -> BuilderConfig {
    let registries = &args.registries;
    BuilderConfig {
        image: args.builder_image.clone(),
        isolation: BuilderIsolation::UserNamespace,
        steps: BuildSteps::Local {
            directory: image_builds(state),
            registries: RegistryAccess {
                config: registries.registry_config.clone(),
                insecure: registries.insecure.clone(),
            },
        },
        insecure_registries: registries.insecure.clone(),
        namespace: args.settings.build_namespace.clone(),
        ..BuilderConfig::default()
    }
}

/// Directory that the builder shares with this process.
fn image_builds(state: &Path) -> PathBuf {
    state.join("image-builds")
}

/// State directory of the node.
pub(crate) fn node_state(state: &Path) -> PathBuf {
    state.join("node")
}

/// CRIU, if the processes of sandboxes are kept.
fn criu(args: &Args, executor: &Path) -> anyhow::Result<Option<PathBuf>> {
    if !args.memory_persistence {
        return Ok(None);
    }
    let beside = executor.with_file_name("criu");
    let criu = args.criu.clone().unwrap_or(beside);
    anyhow::ensure!(
        criu.is_file(),
        "{} is missing: --memory-persistence needs it, --criu sets another path",
        criu.display()
    );
    Ok(Some(criu))
}

pub(super) fn node_config(args: &Args, state: &Path) -> anyhow::Result<NodeConfig> {
    let this = std::env::current_exe().context("path of this program")?;
    let beside = this.with_file_name("sandbox-executor");
    let executor = args.executor.clone().unwrap_or(beside);
    anyhow::ensure!(
        executor.is_file(),
        "{} is missing: set --executor to the sandbox-executor binary",
        executor.display()
    );
    let criu = criu(args, &executor)?;
    let mut config = NodeConfig::new(node_state(state), executor, this);
    config.criu = criu;
    config.allow_lan = args.allow_lan;
    config.allow_host_root = args.allow_host_root;
    config.pod_disk_limit = args.pod_disk_limit;
    config.process_limit = args.process_limit;
    config.disk_rate_limit = args.disk_rate_limit;
    config.cdi_dirs.clone_from(&args.cdi_dirs);
    config.images.host_fallback = args.host_fallback;
    config.pulls = image_pulls(&args.registries)?;
    if args.settings.image_builds == Some(ImageBuilds::Full) {
        config.image_builds = Some(ImageBuildPods {
            namespace: args.settings.build_namespace.clone(),
            directory: image_builds(state),
        });
    }
    config.images.directories = args.images.iter().cloned().collect();
    Ok(config)
}
