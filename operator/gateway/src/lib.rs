//! The gateway: the remote runtime API for clients, and the reverse proxy to their sandboxes, on
//! one listener. It is stateless, so any number of replicas serve the same sandboxes.
//!
//! Reads come from the [`Index`]; the only objects that the gateway writes are Sandboxes and
//! `SandboxPool`s.

mod access_log;
pub mod admin_auth;
pub mod api;
pub mod args;
mod client_address;
mod client_memory;
mod dispatch;
mod exec_limits;
mod outcome;
#[cfg(any(test, feature = "fuzzing"))]
pub mod properties;
pub mod proxy;
pub mod runtime_status;
pub mod sandboxes;
pub mod serve;
mod settings;
pub mod warm_configs;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use ipnet::IpNet;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use client_memory::ClientMemory;
use proxy::ProxyError;
use shared::diagnostics::Diagnostics;
use shared::index::{Index, Key};
use shared::keys::Keys;
use shared::metrics::GatewayMetrics;
use shared::traffic::{Gateways, GatewaysError, Traffic};
use shared::urls::Urls;

pub use args::{GatewayArgs, SettingsArgs};
pub use client_address::ClientConnection;
pub use proxy::ProxyConfig;
pub use settings::ApiSettings;
pub use shared::tenants::{self, Tenants};

/// Configuration of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// Namespace of the sandboxes that the API starts.
    pub namespace: String,
    pub urls: Urls,
    /// Workspace volume of every sandbox that the API starts.
    pub workspace: WorkspaceConfig,
    pub runtime_classes: RuntimeClasses,
    /// Longest wait of a request for a sandbox that is coming back.
    pub hold_limit: Duration,
    /// Longest wait of `/start` for readiness before it answers `starting`.
    pub start_wait: Duration,
    /// Time in which new connections are still accepted after the shutdown signal.
    pub drain_delay: Duration,
    /// Time in which open requests may finish after that.
    pub drain_limit: Duration,
    /// Maximum of concurrent client connections; more wait in the backlog of the listener.
    pub max_connections: usize,
    /// Maximum of these from one address; more are closed at once. Behind a load balancer that
    /// hides its clients, all connections come from its addresses.
    pub max_connections_per_address: Option<NonZeroUsize>,
    /// True if only connections to a loopback address are served, for a listener on all addresses.
    pub local_only: bool,
    pub proxy: ProxyConfig,
    pub vitals: Arc<Diagnostics>,
}

/// Workspace volume, which survives its Pod.
#[derive(Debug, Clone)]
pub struct WorkspaceConfig {
    pub size: String,
    pub storage_class: Option<String>,
}

/// Runtime classes of the cluster, and the handling of unknown ones.
#[derive(Debug, Clone, Default)]
pub struct RuntimeClasses {
    /// Class of sandboxes that name none. `None`: the default of the controller.
    pub default: Option<String>,
    /// Classes that clients may choose.
    pub installed: BTreeSet<String>,
    /// Class that replaces the name `gvisor`.
    pub gvisor: Option<String>,
    /// True if an unknown class is rejected; otherwise the default is used.
    pub strict: bool,
}

/// The gateway as a service without a socket.
#[derive(Debug, Clone)]
pub struct Gateway {
    dispatch: Arc<dispatch::Dispatch>,
    limits: serve::Limits,
    memory: ClientMemory,
}

impl Gateway {
    /// Creates a gateway that writes through `client` and reads `index`, which the caller keeps up
    /// to date.
    pub fn new(
        client: &kube::Client,
        config: GatewayConfig,
        keys: Arc<Keys>,
        index: Arc<Index>,
        tenants: Tenants,
    ) -> Self {
        let settings = ApiSettings::default();
        Self::with_settings(client, config, keys, index, tenants, settings)
    }

    /// As [`Gateway::new`], with explicit settings of the API.
    pub fn with_settings(
        client: &kube::Client,
        config: GatewayConfig,
        keys: Arc<Keys>,
        index: Arc<Index>,
        tenants: Tenants,
        settings: ApiSettings,
    ) -> Self {
        let limits = serve::Limits {
            connections: config.max_connections,
            per_address: config.max_connections_per_address,
            drain_delay: config.drain_delay,
            drain_timeout: config.drain_limit,
            local_only: config.local_only,
        };
        let (config, metrics) = (Arc::new(config), Arc::<GatewayMetrics>::default());
        let vitals = config.vitals.clone();
        vitals.metrics.add(|registry| metrics.register(registry));
        let memory = ClientMemory::new(config.proxy.client_memory);
        refresh_gauges(&vitals, &memory, &metrics);
        let (namespace, overlay) = (&config.namespace, settings.overlay_stored_configs);
        let configs = warm_configs::WarmConfigStore::new(client.clone(), namespace, overlay);
        let password = settings.admin_password.clone();
        let admin = password.map(|password| admin_auth::AdminAuth::new(password, keys.admin()));
        let client = client.clone();
        let sandboxes = sandboxes::Sandboxes::new(client, namespace, index, keys, vitals.clone());
        let proxy = proxy::Proxy::new(sandboxes.clone(), config.clone(), metrics.clone());
        let api = api::router(api::Api {
            sandboxes,
            config,
            tenants,
            settings,
            configs,
            admin: admin.map(Arc::new),
        });
        Self {
            dispatch: Arc::new(dispatch::Dispatch::new(api, proxy, metrics, vitals)),
            limits,
            memory,
        }
    }

    /// Answers one request of a client. Errors become responses.
    pub async fn respond(
        &self,
        request: Request<Body>,
        connection: impl Into<ClientConnection>,
    ) -> Response<Body> {
        self.dispatch.respond(request, connection.into()).await
    }

    /// Watches the index for deleted Pods and closes the connections to them, until `shutdown`.
    pub async fn follow_pods(&self, shutdown: &CancellationToken) {
        self.dispatch.proxy().follow_pods(shutdown).await;
    }

    /// Metrics of this gateway.
    pub fn metrics(&self) -> &Arc<GatewayMetrics> {
        self.dispatch.metrics()
    }

    /// Traffic of a sandbox through this gateway.
    pub fn traffic_of(&self, sandbox: &Key) -> Traffic {
        self.dispatch.proxy().traffic(sandbox)
    }

    /// Memory of client connections and request heads.
    fn memory(&self) -> &ClientMemory {
        &self.memory
    }

    /// Networks of proxies that report their clients.
    fn trusted_proxies(&self) -> &[IpNet] {
        self.dispatch.proxy().trusted_proxies()
    }

    /// The response to a request for which no memory is left. It is counted and not logged, because
    /// a flood of requests must not become a flood of log lines.
    fn reject_overloaded(&self) -> Response<Body> {
        self.metrics().overloads.inc();
        ProxyError::Overloaded.into_response()
    }

    /// Waits until every tunnel has closed.
    async fn tunnels_closed(&self) {
        self.dispatch.proxy().tunnels_closed().await;
    }

    /// Closes every tunnel.
    fn abort_tunnels(&self) {
        self.dispatch.proxy().abort_tunnels();
    }
}

/// Sets the gauges of client memory and stale watches before each read of the metrics.
fn refresh_gauges(
    diagnostics: &Arc<Diagnostics>,
    memory: &ClientMemory,
    metrics: &Arc<GatewayMetrics>,
) {
    let (memory, metrics) = (memory.clone(), metrics.clone());
    let health = Arc::downgrade(diagnostics);
    diagnostics.metrics.before_each_read(move || {
        let used = i64::try_from(memory.used()).unwrap_or(i64::MAX);
        metrics.client_memory.set(used);
        let ages = health.upgrade().map(|of| of.health.watch_ages());
        for (resource, age) in ages.unwrap_or_default() {
            let label = [("resource", resource)];
            let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
            metrics.watch_age.get_or_create_owned(&label).set(age);
        }
    });
}

impl Gateways for Gateway {
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        let traffic = self.traffic_of(sandbox);
        Box::pin(async move { Ok(Some(traffic)) })
    }
}

/// Serves until `shutdown`, then until every connection has closed or the drain timeout is over.
pub async fn run(gateway: Gateway, listener: TcpListener, shutdown: CancellationToken) {
    // Deleted Pods are noticed during the drain too, because open requests depend on them.
    let drained = CancellationToken::new();
    let serving = async {
        serve::serve(&gateway, listener, gateway.limits, &shutdown).await;
        drained.cancel();
    };
    tokio::join!(serving, gateway.follow_pods(&drained));
}
