//! `sandbox list` and `sandbox pools`.

mod watch;

use std::collections::BTreeMap;

use client::{Client, Event, RuntimeInfo, Status};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Format, document, print};
use crate::table::Table;
use crate::text::{age, bytes, escape};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: FormatArgs,
    /// Include paused, failed and stopped ones; needs a gateway with events
    #[arg(long, short = 'a', conflicts_with = "watch")]
    all: bool,
    /// Print changes as they happen
    #[arg(long, short = 'w')]
    watch: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FormatArgs {
    /// Form of the output
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Format>,
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    let format = args.output.output;
    if args.watch {
        return watch::run(client, format).await;
    }
    let runtimes = if args.all {
        all(client).await?
    } else {
        client.list().await?
    };
    let mut runtimes: Vec<_> = runtimes.into_iter().map(RuntimeInfo::without_key).collect();
    runtimes.sort_by(|a, b| a.session_id.cmp(&b.session_id));
    print(match format {
        Some(format @ (Format::Json | Format::Yaml)) => document(
            &json!({"total": runtimes.len(), "runtimes": runtimes}),
            format,
        )?,
        Some(Format::Name) => runtimes
            .iter()
            .map(|info| escape(&info.session_id) + "\n")
            .collect(),
        Some(Format::Wide) => table(&runtimes, true).render(),
        None => table(&runtimes, false).render(),
    })
}

/// Reads the list that a stream of events begins with.
async fn all(client: &Client) -> Result<Vec<RuntimeInfo>, Failure> {
    let mut events = client.events(None).await?;
    let mut found = BTreeMap::new();
    loop {
        match events.next().await? {
            Event::Runtime(event) => {
                found.insert(event.info.runtime_id.clone(), event.info);
            }
            Event::Deleted(deleted) => {
                found.remove(&deleted.runtime_id);
            }
            Event::Synced => return Ok(found.into_values().collect()),
            // The list begins anew.
            Event::Reopened => found.clear(),
            Event::Build(_) | Event::Resumed => {}
        }
    }
}

fn table(runtimes: &[RuntimeInfo], is_wide: bool) -> Table {
    let text = |value: Option<&String>| value.map_or_else(|| "-".into(), Clone::clone);
    if !is_wide {
        let mut table = Table::new(&["NAME", "ID", "STATUS", "IMAGE", "AGE"]);
        for info in runtimes {
            let (image, status) = (text(info.image.as_ref()), info.status.to_string());
            table.row([
                info.session_id.clone(),
                info.runtime_id.clone(),
                status,
                image,
                age(info.created_at),
            ]);
        }
        return table;
    }
    let mut table = Table::new(&[
        "NAME", "ID", "STATUS", "POD", "RESTARTS", "IMAGE", "AGE", "IDLE", "RUN", "CPU", "MEMORY",
        "URL", "DETAIL",
    ]);
    for info in runtimes {
        table.row([
            info.session_id.clone(),
            info.runtime_id.clone(),
            info.status.to_string(),
            format!("{:?}", info.pod_status),
            info.restart_count.to_string(),
            text(info.image.as_ref()),
            age(info.created_at),
            idle(info),
            age(info.started_at),
            text(millicores(info).as_ref()),
            text(info.requested_memory_bytes.map(bytes).as_ref()),
            info.url.clone(),
            text(info.status_detail.as_ref()),
        ]);
    }
    table
}

/// Time since the last request. A gateway that has no idle time to tell has no begin of a run either.
fn idle(info: &RuntimeInfo) -> String {
    match info.idle_since {
        None if info.status == Status::Running && info.started_at.is_some() => "active".into(),
        since => age(since),
    }
}

/// CPU that the sandbox requests, as Kubernetes writes it.
fn millicores(info: &RuntimeInfo) -> Option<String> {
    Some(format!("{}m", info.requested_cpu_millicores?))
}

pub(crate) async fn pools(client: &Client, args: &FormatArgs) -> Result<(), Failure> {
    let pools = client.pools().await?;
    print(match args.output {
        Some(format @ (Format::Json | Format::Yaml)) => document(&json!({"pools": pools}), format)?,
        Some(Format::Name) => pools.iter().map(|pool| escape(&pool.name) + "\n").collect(),
        None | Some(Format::Wide) => {
            let mut table = Table::new(&["NAME", "WARM", "IMAGE", "SOURCE"]);
            for pool in pools {
                table.row([pool.name, pool.count.to_string(), pool.image, pool.source]);
            }
            table.render()
        }
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn info() -> RuntimeInfo {
        serde_json::from_value(json!({
            "runtime_id": "abcdefghijklmnop", "session_id": "a", "url": "http://a", "status": "running",
            "session_api_key": "secret", "pod_status": "Ready", "image": "host",
        }))
        .unwrap()
    }

    #[test]
    fn list_has_one_row_per_sandbox() {
        let expected = "NAME   ID                 STATUS    IMAGE   AGE\n\
                        a      abcdefghijklmnop   running   host    -\n";
        assert_eq!(table(&[info()], false).render(), expected);
        let known = RuntimeInfo {
            requested_cpu_millicores: Some(250),
            requested_memory_bytes: Some(512 << 20),
            started_at: Some(Timestamp::now()),
            ..info()
        };
        let wide = table(&[info(), known], true).render();
        for cells in [
            "RESTARTS   IMAGE   AGE   IDLE     RUN   CPU    MEMORY      URL        DETAIL\n",
            "0          host    -     -        -     -      -           http://a   -\n",
            "0          host    -     active   0s    250m   512.0 MiB   http://a   -\n",
        ] {
            assert!(wide.contains(cells), "{wide}");
        }
    }

    #[test]
    fn documents_have_no_keys() {
        let text = document(&info().without_key(), Format::Json).unwrap();
        assert!(
            !text.contains("secret") && !text.contains("session_api_key"),
            "{text}"
        );
        assert!(text.contains("\"pod_status\": \"Ready\""), "{text}");
    }
}
