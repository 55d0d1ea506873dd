//! A gateway with many sandboxes of one tenant in its own process, without an API server. Changes
//! reach the index as the watch delivers them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use crds::Sandbox;
use operator::gateway::{self, Gateway, GatewayConfig, Tenants};
use operator::index::Index;
use operator::keys::Keys;
use serde_json::json;
use testing::FakeApi;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// First argument of the process.
pub(crate) const ROLE: &str = "gateway";
pub(crate) const SANDBOXES: u32 = 5_000;
pub(crate) const KEY: &str = "key-of-the-benchmark";

const TENANT: &str = "bench";

/// Runs the process.
pub(crate) async fn run() -> anyhow::Result<()> {
    let changes: u32 = std::env::args().nth(2).context("a number")?.parse()?;
    operator::logging::init(None);
    let keys = Arc::new(Keys::derive(&[1; 32])?);
    let index = Arc::new(Index::without_environments(keys.clone()));
    let mut sandboxes = Vec::new();
    index.begin_list();
    for number in 0..SANDBOXES {
        let sandbox = sandbox(&keys, number)?;
        index.deliver(&sandbox);
        sandboxes.push(sandbox);
    }
    let all: HashSet<_> = index
        .of_tenant(TENANT)
        .iter()
        .map(|e| e.key.clone())
        .collect();
    index.retain(&all);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{} bench", listener.local_addr()?);
    if changes > 0 {
        tokio::spawn(change(index.clone(), sandboxes, changes));
    }
    let client = FakeApi::default().client();
    let tenants = Tenants::fixed([(TENANT, KEY)]);
    let gateway = Gateway::new(&client, GatewayConfig::default(), keys, index, tenants);
    gateway::run(gateway, listener, CancellationToken::new()).await;
    Ok(())
}

/// Changes one sandbox after the other.
async fn change(index: Arc<Index>, mut sandboxes: Vec<Sandbox>, per_second: u32) {
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut version = u64::from(SANDBOXES);
    loop {
        for sandbox in &mut sandboxes {
            ticks.tick().await;
            version += 1;
            sandbox.metadata.resource_version = Some(version.to_string());
            if let Some(status) = &mut sandbox.status {
                status.message = Some(format!("change {version}"));
            }
            index.deliver(sandbox);
        }
    }
}

fn sandbox(keys: &Keys, number: u32) -> serde_json::Result<Sandbox> {
    let session = format!("session-{number}");
    let name = keys.session_runtime_id("default", TENANT, &session, 0);
    serde_json::from_value(json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{number}"),
            "resourceVersion": (number + 1).to_string(),
            "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"session": {"tenant": TENANT, "id": session},
            "image": "ghcr.io/openhands/agent-server:1", "workingDir": "/workspace/project",
            "command": ["/usr/local/bin/openhands-agent-server", "--port", "60000"]},
        "status": {"phase": "Running", "reason": "Ready", "podStatus": "Ready", "podIP": "10.0.0.1",
            "startedAt": "2026-01-02T03:04:06Z", "readyAt": "2026-01-02T03:04:07Z"},
    }))
}
