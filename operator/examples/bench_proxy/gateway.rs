//! A gateway with one sandbox in its own process, without an API server.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use crds::Sandbox;
use crds::sandbox::{Phase, SandboxSpec, SandboxStatus};
use http::{Request, Response};
use http_body_util::Full;
use operator::gateway::{self, Gateway, GatewayConfig, Tenants};
use operator::index::Index;
use operator::keys::Keys;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// First argument of the process.
pub(crate) const ROLE: &str = "gateway";

/// Runs the process.
pub(crate) async fn run() -> anyhow::Result<()> {
    let port = std::env::args().nth(2).context("a port")?.parse()?;
    // As in production, where most requests write no log line.
    operator::logging::init(None);
    let keys = Arc::new(Keys::derive(&[1; 32])?);
    let index = Arc::new(Index::new(keys.clone()));
    index.retain(&HashSet::new());
    let entry = index.apply(&sandbox(port)?).context("an entry")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{} {}.localhost", listener.local_addr()?, entry.runtime_id);
    let client = kube::Client::new(tower::service_fn(no_api), "default");
    let gateway = Gateway::new(&client, config(), keys, index, Tenants::fixed([]));
    gateway::run(gateway, listener, CancellationToken::new()).await;
    Ok(())
}

async fn no_api(_: Request<kube::client::Body>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    Err(std::io::Error::from(std::io::ErrorKind::NotConnected))
}

fn sandbox(port: u16) -> serde_json::Result<Sandbox> {
    let mut sandbox = Sandbox::new("bench", SandboxSpec::default());
    sandbox.metadata.namespace = Some("default".into());
    sandbox.metadata.uid = Some("bench".into());
    sandbox.metadata.resource_version = Some("1".into());
    sandbox.spec.ports = serde_json::from_value(json!([{"name": "runtime", "port": port}]))?;
    sandbox.status = Some(SandboxStatus {
        phase: Phase::Running,
        pod_ip: Some("127.0.0.1".into()),
        ..SandboxStatus::default()
    });
    Ok(sandbox)
}

fn config() -> GatewayConfig {
    GatewayConfig {
        hold_limit: Duration::from_secs(1),
        drain_delay: Duration::ZERO,
        drain_limit: Duration::from_secs(1),
        max_connections_per_address: 0,
        max_requests_per_sandbox: 16_384,
        loopback_pods: true,
        ..GatewayConfig::default()
    }
}
