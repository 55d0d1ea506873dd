//! A gateway with one sandbox in its own process, without an API server.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::Context as _;
use operator::gateway::{self, Gateway, GatewayConfig, Tenants};
use operator::index::Index;
use operator::keys::Keys;
use serde_json::{Value, json};
use testing::FakeApi;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// First argument of the process.
pub(crate) const ROLE: &str = "gateway";

/// Runs the process.
pub(crate) async fn run() -> anyhow::Result<()> {
    let port: u16 = std::env::args().nth(2).context("a port")?.parse()?;
    // As in production, where most requests write no log line.
    operator::logging::init(None);
    let keys = Arc::new(Keys::derive(&[1; 32])?);
    let index = Arc::new(Index::new(keys.clone()));
    index.retain(&HashSet::new());
    let sandbox = serde_json::from_value(sandbox(port))?;
    let entry = index.apply(&sandbox).context("an entry")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{} {}.localhost", listener.local_addr()?, entry.runtime_id);
    let client = FakeApi::default().client();
    let gateway = Gateway::new(&client, config(), keys, index, Tenants::fixed([]));
    gateway::run(gateway, listener, CancellationToken::new()).await;
    Ok(())
}

fn sandbox(port: u16) -> Value {
    json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
        "metadata": {"name": "bench", "namespace": "default", "uid": "bench",
            "resourceVersion": "1"},
        "spec": {"ports": [{"name": "runtime", "port": port}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    })
}

fn config() -> GatewayConfig {
    GatewayConfig {
        max_connections_per_address: 0,
        max_requests_per_sandbox: 16_384,
        loopback_pods: true,
        ..GatewayConfig::default()
    }
}
