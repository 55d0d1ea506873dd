//! The front door: the remote runtime API for clients, and the reverse proxy to their sandboxes,
//! on one listener. Stateless, so any number of replicas serve the same sandboxes.
//!
//! Reads come from the [`Index`]; the only objects it ever writes are Sandboxes.

pub mod admin;
pub mod api;
pub mod args;
pub mod configs;
mod dispatch;
mod impossible;
mod observe;
#[cfg(any(test, feature = "fuzzing"))]
pub mod properties;
pub mod proxy;
pub mod sandboxes;
pub mod serve;
mod settings;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::index::{Index, Key};
use crate::keys::Keys;
use crate::metrics::GatewayMetrics;
use crate::traffic::{Gateways, GatewaysError, Traffic};
use crate::urls::Urls;
use crate::vitals::Vitals;

pub use crate::tenants::{self, Tenants};
pub use args::{GatewayArgs, SettingsArgs};
pub use proxy::ProxyConfig;
pub use settings::ApiSettings;

/// What an installation decides about its gateway.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// Where the sandboxes of the API live.
    pub namespace: String,
    pub urls: Urls,
    /// Volume of every sandbox that the API starts.
    pub workspace: WorkspaceConfig,
    pub runtime_classes: RuntimeClasses,
    /// How long a request waits for a sandbox that is away for a moment.
    pub hold_limit: Duration,
    /// How long `/start` waits for readiness before it answers `starting`.
    pub start_wait: Duration,
    /// How long new connections are still accepted after a shutdown was asked for.
    pub drain_delay: Duration,
    /// How long open requests may go on after that.
    pub drain_limit: Duration,
    /// Connections served at the same time; more wait in the backlog of the listener.
    pub max_connections: usize,
    /// Of these, from one address; more are closed at once. Behind a load balancer that hides its
    /// clients, all come from its addresses.
    pub max_connections_per_address: Option<NonZeroUsize>,
    /// Serve only connections to a loopback address, whatever the listener is bound to.
    pub local_only: bool,
    pub proxy: ProxyConfig,
    pub vitals: Arc<Vitals>,
}

/// The volume that outlives the Pod.
#[derive(Debug, Clone)]
pub struct WorkspaceConfig {
    pub size: String,
    pub storage_class: Option<String>,
}

/// Isolation classes of the cluster, and what to do with others.
#[derive(Debug, Clone, Default)]
pub struct RuntimeClasses {
    /// Class of sandboxes that name none. Absent: the controller's default.
    pub default: Option<String>,
    /// Classes that clients may ask for.
    pub installed: BTreeSet<String>,
    /// The class that `gvisor` stands for.
    pub gvisor: Option<String>,
    /// Whether an unknown class is refused; otherwise it falls back to the default.
    pub strict: bool,
}

/// The gateway as a service without a socket.
#[derive(Debug, Clone)]
pub struct Gateway {
    dispatch: Arc<dispatch::Dispatch>,
    limits: serve::Limits,
}

impl Gateway {
    /// A gateway that writes through `client` and reads `index`, which somebody else feeds.
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

    /// The same, with settings of the API of its own.
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
            delay: config.drain_delay,
            drain: config.drain_limit,
            local_only: config.local_only,
        };
        let (config, metrics) = (Arc::new(config), Arc::<GatewayMetrics>::default());
        let vitals = config.vitals.clone();
        vitals.metrics.add(|registry| metrics.register(registry));
        let (namespace, overlay) = (&config.namespace, settings.overlay_stored_configs);
        let configs = configs::Configs::new(client.clone(), namespace, overlay);
        let password = settings.admin_password.clone();
        let admin = password.map(|password| admin::Admin::new(password, keys.admin()));
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
        }
    }

    /// Answers one request of a client at `peer`. Never fails: what goes wrong is an answer too.
    pub async fn respond(&self, request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        self.dispatch.respond(request, peer).await
    }

    /// Watches the index for Pods that go away, and aborts what is open to them. Ends with
    /// `shutdown`.
    pub async fn follow_pods(&self, shutdown: &CancellationToken) {
        self.dispatch.proxy().follow_pods(shutdown).await;
    }

    /// Counts and gauges of this gateway.
    pub fn metrics(&self) -> &Arc<GatewayMetrics> {
        self.dispatch.metrics()
    }

    /// What is known of the requests to a sandbox through this gateway.
    pub fn seen(&self, sandbox: &Key) -> Traffic {
        self.dispatch.proxy().traffic(sandbox)
    }

    /// Ends when every tunnel has ended.
    async fn tunnels_closed(&self) {
        self.dispatch.proxy().tunnels_closed().await;
    }

    /// Ends every tunnel now.
    fn cut_tunnels(&self) {
        self.dispatch.proxy().cut_tunnels();
    }
}

impl Gateways for Gateway {
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        let traffic = self.seen(sandbox);
        Box::pin(async move { Ok(Some(traffic)) })
    }
}

/// Serves until `shutdown`, and then until everything open has ended or the drain limit is over.
pub async fn run(gateway: Gateway, listener: TcpListener, shutdown: CancellationToken) {
    // Pods are followed until the drain is over: what it waits for may still go away.
    let drained = CancellationToken::new();
    let serving = async {
        serve::serve(&gateway, listener, gateway.limits, &shutdown).await;
        drained.cancel();
    };
    tokio::join!(serving, gateway.follow_pods(&drained));
}
