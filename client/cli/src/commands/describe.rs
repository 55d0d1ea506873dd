//! `sandbox describe`.

use std::fmt::Write as _;

use client::{Client, PersistedState, RuntimeInfo, ServerInfo};
use jiff::Timestamp;

use super::top;
use crate::failure::Failure;
use crate::names;
use crate::output::{Format, document, print};
use crate::text::{bytes, duration, escape, escape_lines};
use crate::timeline;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id, runtime id or a unique prefix
    name: String,
    /// Form of the output
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Format>,
    /// Include the session key in json and yaml
    #[arg(long)]
    show_key: bool,
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    let info = names::find(client, &args.name).await?;
    print(match args.output {
        Some(format @ (Format::Json | Format::Yaml)) => {
            let info = if args.show_key {
                info
            } else {
                info.without_key()
            };
            document(&info, format)?
        }
        Some(Format::Name) => escape(&info.session_id) + "\n",
        None | Some(Format::Wide) => {
            let server = if info.is_ready() {
                client.sandbox(info.clone()).server_info().await.ok()
            } else {
                None
            };
            text(&info, server.as_ref(), Timestamp::now())
        }
    })
}

fn text(info: &RuntimeInfo, server: Option<&ServerInfo>, now: Timestamp) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(
                text,
                "{:<12} {}",
                format!("{name}:"),
                escape(value.trim_end())
            );
        }
    };
    line("Name", &info.session_id);
    line("Id", &info.runtime_id);
    line(
        "Status",
        &format!("{} (Pod: {:?})", info.status, info.pod_status),
    );
    line("Detail", info.status_detail.as_deref().unwrap_or_default());
    line("Image", info.image.as_deref().unwrap_or_default());
    line(
        "Command",
        &info.command.as_ref().map(command).unwrap_or_default(),
    );
    line("Directory", info.working_dir.as_deref().unwrap_or_default());
    line("Resources", &format!("factor {}", info.resource_factor));
    line("Class", info.runtime_class.as_deref().unwrap_or_default());
    line("URL", &info.url);
    for (url, port) in &info.work_hosts {
        line(&format!("Port {port}"), url);
    }
    line(
        "Kept",
        &info.persisted.as_ref().map(state).unwrap_or_default(),
    );
    line(
        "Restored",
        &info.restored.as_ref().map(state).unwrap_or_default(),
    );
    line(
        "Restarts",
        &format!("{} {}", info.restart_count, info.restart_reasons.join(", ")),
    );
    if let Some(server) = server {
        let times = format!(
            "up {}, idle {}",
            duration(server.uptime),
            duration(server.idle_time)
        );
        line("Server", &times);
        if let Some(usage) = &server.sandbox {
            line("Memory", &top::memory(usage));
            line("Disk", &top::disk(usage));
        }
        for (name, state) in &server.plugins {
            line("Plugin", &format!("{name}: {state}"));
        }
    }
    let moments = timeline::moments(info, server, now);
    let _ = write!(text, "\n{}", timeline::render(&moments, now));
    if !info.pod_logs.is_empty() {
        let _ = writeln!(
            text,
            "\nEnd of the output:\n{}",
            escape_lines(info.pod_logs.trim_end())
        );
    }
    text
}

fn command(command: &serde_json::Value) -> String {
    match command.as_str() {
        Some(line) => line.into(),
        None => command.to_string(),
    }
}

fn state(state: &PersistedState) -> String {
    let size = state.size.and_then(|size| u64::try_from(size).ok());
    let size = size.map_or_else(String::new, |size| format!(", {}", bytes(size)));
    let reason = state
        .reason
        .as_ref()
        .map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("{}{size}{reason}", state.level)
}
