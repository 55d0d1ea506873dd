//! `sandbox top`.

use client::{Client, RuntimeInfo, ServerInfo};
use futures::StreamExt as _;
use futures::stream;
use serde_json::json;

use crate::failure::Failure;
use crate::names;
use crate::output::{Format, document, print};
use crate::table::Table;
use crate::text::{bytes, duration};

/// Sandboxes that are asked at once.
const CONCURRENCY: usize = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session ids, runtime ids or unique prefixes; by default all that run
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Form of the output
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Format>,
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    let runtimes = runtimes(client, &args.names).await?;
    let infos: Vec<(RuntimeInfo, Option<ServerInfo>)> = stream::iter(runtimes)
        .map(|info| async {
            // One that pauses meanwhile, or has another server, is shown without figures.
            let server = client.sandbox(info.clone()).server_info().await.ok();
            (info, server)
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    if let Some(format @ (Format::Json | Format::Yaml)) = args.output {
        let entries: Vec<_> = infos
            .iter()
            .map(|(info, server)| json!({"session_id": info.session_id, "runtime_id": info.runtime_id, "server": server}))
            .collect();
        return print(document(&json!({"sandboxes": entries}), format)?);
    }
    let mut table = Table::new(&["NAME", "UP", "IDLE", "CPU", "MEMORY", "DISK", "PLUGINS"]);
    for (info, server) in infos {
        let Some(server) = server else {
            table.row([
                info.session_id,
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
            ]);
            continue;
        };
        let resources = server.resources;
        let plugins: Vec<_> = server
            .plugins
            .iter()
            .map(|(name, state)| format!("{name}={state}"))
            .collect();
        table.row([
            info.session_id,
            duration(server.uptime),
            duration(server.idle_time),
            format!("{:.1}%", resources.cpu_percent),
            bytes(resources.memory.rss),
            format!(
                "{} of {}",
                bytes(resources.disk.used),
                bytes(resources.disk.total)
            ),
            plugins.join(" "),
        ]);
    }
    print(table.render())
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
