//! The gateway: the remote runtime API for clients, and the reverse proxy to their sandboxes, on
//! one listener. It is stateless, so any number of replicas serve the same sandboxes.
//!
//! Reads come from the [`Index`]; the only objects that the gateway writes are
//! Sandboxes, `SandboxPool`s, `SandboxSnapshot`s and `ImageBuild`s.

mod access_log;
mod admin_auth;
mod api;
pub mod builds;
mod client_address;
mod client_memory;
pub mod config;
mod console;
mod dispatch;
mod events;
mod exec_limits;
mod keyed_limit;
mod logs;
mod mcp;
mod observed;
mod proxy;
pub mod runtime_status;
mod sandbox_snapshots;
mod sandboxes;
mod serve;
mod supervisors;
mod warm_configs;

use std::sync::Arc;

use axum::Router;
use futures::future::{BoxFuture, OptionFuture};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use api::ForwardedRequests;
use builds::Builds;
use builds::index::BuildIndex;
use client_memory::ClientMemory;
use console::Console;
use events::Events;
use logs::Logs;
use mcp::{Backend, Mcp};
use proxy::Proxy;
use shared::diagnostics::Diagnostics;
use shared::index::{Index, Key};
use shared::keys::Keys;
use shared::metrics::GatewayMetrics;
use shared::traffic::{Gateways, GatewaysError, Traffic};

pub use builds::{Registries, RegistryArgs};
pub use client_address::ClientConnection;
pub use config::{ApiSettings, GatewayConfig, RuntimeClasses};
pub use proxy::pod_network::{PodNetwork, PodStream};
#[cfg(any(test, feature = "fuzzing"))]
pub use proxy::properties;
pub use serve::tls::{Certificate, CertificateError};
pub use shared::tenants::{self, Tenants};

/// The gateway as a service without a socket; cheap to clone.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<GatewayParts>);

#[derive(Debug)]
struct GatewayParts {
    config: Arc<GatewayConfig>,
    api: Router,
    builds: Arc<Builds>,
    /// `None` if it is off.
    console: Option<Console>,
    events: Arc<Events>,
    logs: Arc<Logs>,
    /// `None` if it is off.
    mcp: Option<Mcp>,
    proxy: Arc<Proxy>,
    metrics: Arc<GatewayMetrics>,
    /// Memory of client connections and request heads.
    memory: ClientMemory,
}

impl Gateway {
    /// Creates a gateway that writes through `client` and reads `index`, which the caller updates.
    pub fn new(
        client: &kube::Client,
        config: GatewayConfig,
        keys: Arc<Keys>,
        index: Arc<Index>,
        tenants: Tenants,
    ) -> Self {
        let (config, metrics) = (Arc::new(config), Arc::<GatewayMetrics>::default());
        let memory = ClientMemory::new(config.client_memory_mib << 20);
        let registry = &config.vitals.metrics;
        registry.add(|registry| metrics.register(registry));
        refresh_gauges(&config.vitals, &memory, &metrics);
        let sandboxes = sandboxes::Sandboxes::new(client, config.clone(), index, keys);
        let proxy = Arc::new(Proxy::new(sandboxes.clone(), metrics.clone()));
        let builds = Builds::new(client, config.clone(), metrics.clone(), proxy.clone());
        let builds = Arc::new(builds);
        let events = Events::new(sandboxes.clone(), builds.clone(), metrics.clone());
        let events = Arc::new(events);
        let logs = Arc::new(Logs::new(client, sandboxes.clone()));
        let (of, known) = (sandboxes.clone(), tenants.clone());
        let streams = (events.clone(), logs.clone());
        let api = api::Api::new(client, of, known, builds.clone(), streams, proxy.clone());
        let api = api::router(api);
        let mcp = config.settings.mcp.then(|| {
            let backend = Backend::new(api.clone(), proxy.clone(), sandboxes);
            Mcp::new(backend, tenants, &config.urls)
        });
        let console = config.settings.console.unwrap_or_default();
        Self(Arc::new(GatewayParts {
            config,
            api,
            builds,
            console: console.then(Console::new),
            events,
            logs,
            mcp,
            proxy,
            metrics,
            memory,
        }))
    }

    pub fn metrics(&self) -> &Arc<GatewayMetrics> {
        &self.0.metrics
    }

    /// Index of image builds, which [`run`] keeps up to date.
    pub fn image_builds(&self) -> &Arc<BuildIndex> {
        &self.0.builds.index
    }

    pub fn traffic_of(&self, sandbox: &Key) -> Traffic {
        self.0.proxy.upstreams.traffic(sandbox)
    }
}

#[cfg(test)]
impl Gateway {
    /// A gateway on a fake API, with the key of the tenant `default`.
    fn fixture(api: &testing::FakeApi) -> Self {
        let keys = Keys::derive(&[7; 32]).map(Arc::new).unwrap();
        let index = Arc::new(Index::new(keys.clone()));
        let tenants = Tenants::fixed([("default", "key")]);
        let config = GatewayConfig::default();
        Self::new(&api.client(), config, keys, index, tenants)
    }
}

impl ForwardedRequests for Proxy {
    fn idle_since(&self, sandbox: &Key) -> Option<Timestamp> {
        self.upstreams.idle_since(sandbox)
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
        serve::serve(&gateway, listener, &shutdown).await;
        gateway.0.builds.stop().await;
        drained.cancel();
    };
    let follow_pods = gateway.0.proxy.follow_pods();
    let follow_builds = gateway.0.builds.follow(drained.clone());
    let certificate = gateway.0.config.certificate.clone();
    let follow_files = certificate.map(Certificate::follow_files);
    tokio::join!(
        serving,
        drained.run_until_cancelled(follow_pods),
        follow_builds,
        drained.run_until_cancelled(OptionFuture::from(follow_files)),
    );
}
