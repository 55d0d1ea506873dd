//! `sandbox top`.

use std::time::Duration;

use client::{Client, RuntimeInfo, SandboxUsage, ServerInfo};
use futures::StreamExt as _;
use futures::stream;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::names;
use crate::output::{Format, document, print};
use crate::table::Table;
use crate::text::{bytes, duration};

/// Sandboxes that are asked at once.
const CONCURRENCY: usize = 8;
/// Time between two readings of the CPU time.
const READING_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session ids, runtime ids or unique prefixes; by default all that run
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Form of the output
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Format>,
}

/// Figures of one sandbox.
#[derive(Debug)]
struct Measured {
    info: RuntimeInfo,
    /// `None` for one that pauses meanwhile, or has another server.
    server: Option<ServerInfo>,
    cores: Option<f64>,
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    let measured = measure(client, runtimes(client, &args.names).await?).await;
    if let Some(format @ (Format::Json | Format::Yaml)) = args.output {
        let entries: Vec<_> = measured.iter().map(Measured::entry).collect();
        return print(document(&json!({"sandboxes": entries}), format)?);
    }
    let mut table = Table::new(&["NAME", "UP", "IDLE", "CPU", "MEMORY", "DISK", "PLUGINS"]);
    for one in measured {
        table.row(one.row());
    }
    print(table.render())
}

/// Reads all sandboxes, and again a second later: the use of the CPU is a difference.
async fn measure(client: &Client, runtimes: Vec<RuntimeInfo>) -> Vec<Measured> {
    let next = tokio::time::Instant::now() + READING_INTERVAL;
    let first = readings(client, &runtimes).await;
    tokio::time::sleep_until(next).await;
    let second = readings(client, &runtimes).await;
    let pairs = runtimes.into_iter().zip(first.into_iter().zip(second));
    let measured = pairs.map(|(info, (first, second))| Measured {
        info,
        cores: second
            .as_ref()
            .and_then(|second| second.cores_since(first.as_ref()?)),
        server: second,
    });
    measured.collect()
}

async fn readings(client: &Client, runtimes: &[RuntimeInfo]) -> Vec<Option<ServerInfo>> {
    let sandboxes: Vec<_> = runtimes
        .iter()
        .map(|info| client.sandbox(info.clone()))
        .collect();
    stream::iter(sandboxes)
        .map(async |sandbox| sandbox.server_info().await.ok())
        .buffered(CONCURRENCY)
        .collect()
        .await
}

impl Measured {
    fn entry(&self) -> Value {
        json!({
            "session_id": self.info.session_id, "runtime_id": self.info.runtime_id,
            "cpu_cores": self.cores, "server": self.server,
        })
    }

    fn row(self) -> [String; 7] {
        let unknown = || "-".to_owned();
        let server = self.server.as_ref();
        let usage = server.and_then(|server| server.sandbox.as_ref());
        let plugins: Vec<_> = server
            .iter()
            .flat_map(|server| &server.plugins)
            .map(|(name, state)| format!("{name}={state}"))
            .collect();
        [
            self.info.session_id,
            server.map_or_else(unknown, |server| duration(server.uptime)),
            server.map_or_else(unknown, |server| duration(server.idle_time)),
            self.cores.map_or_else(unknown, percent),
            usage.map_or_else(unknown, memory),
            usage.map_or_else(unknown, disk),
            plugins.join(" "),
        ]
    }
}

/// Percent of one core.
fn percent(cores: f64) -> String {
    format!("{:.0}%", 100.0 * cores)
}

pub(super) fn memory(usage: &SandboxUsage) -> String {
    let used = bytes(usage.memory.used);
    match usage.memory.limit {
        Some(limit) => format!("{used} of {}", bytes(limit)),
        None => used,
    }
}

pub(super) fn disk(usage: &SandboxUsage) -> String {
    format!("{} of {}", bytes(usage.disk.used), bytes(usage.disk.total))
}

async fn runtimes(client: &Client, names: &[String]) -> Result<Vec<RuntimeInfo>, Failure> {
    if names.is_empty() {
        let mut all = client.list().await?;
        all.retain(RuntimeInfo::is_ready);
        all.sort_by(|a, b| a.session_id.cmp(&b.session_id));
        return Ok(all);
    }
    let mut found = Vec::new();
    for name in names {
        found.push(names::find(client, name).await?);
    }
    Ok(found)
}
