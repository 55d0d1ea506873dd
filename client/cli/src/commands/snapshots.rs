//! `sandbox snapshot` and `sandbox fork`.

use client::{Client, ForkRequest, Snapshot, SnapshotRequest};
use serde_json::json;

use super::exec;
use super::level::LevelArg;
use super::run::may_go_on;
use crate::console::Signals;
use crate::failure::Failure;
use crate::names;
use crate::output::{Format, document, note, print};
use crate::progress;
use crate::table::Table;
use crate::text::{age, bytes, escape};

/// A snapshot that a fork makes for itself is not kept for longer.
const FORK_SNAPSHOT_TTL: &str = "1h";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Keep the state of a running sandbox; prints the id of the snapshot
    Create(CreateArgs),
    /// List snapshots, the oldest first
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Delete snapshots
    #[command(visible_alias = "rm")]
    Delete {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Push an image with the changed files of a snapshot; prints the id of the build
    Image { id: String, target: String },
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Session id, runtime id or a unique prefix
    name: String,
    /// State to keep; by default that which a pause of the sandbox keeps
    #[arg(long)]
    level: Option<LevelArg>,
    /// Time after which it is deleted, such as 24h
    #[arg(long, value_name = "DURATION")]
    delete_after: Option<String>,
    /// Do not wait until it is complete
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Sandbox that they were made of
    name: Option<String>,
    /// Form of the output
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ForkArgs {
    /// Id of a snapshot, or a running sandbox, of which a snapshot is made
    source: String,
    /// Number of sandboxes with new names
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32), conflicts_with = "names")]
    count: u32,
    /// Name of a sandbox; repeat it for several
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Environment variable; without a value that of this process
    #[arg(short = 'e', long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
}

pub(crate) async fn run(client: &Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create(client, &args).await,
        Command::List(args) => list(client, &args).await,
        Command::Delete { ids } => {
            for id in ids {
                client.delete_snapshot(&id).await?;
                print(format!("{} deleted\n", escape(&id)))?;
            }
            Ok(())
        }
        Command::Image { id, target } => print(client.snapshot_image(&id, &target).await? + "\n"),
    }
}

async fn create(client: &Client, args: &CreateArgs) -> Result<(), Failure> {
    let info = names::find(client, &args.name).await?;
    let request = SnapshotRequest {
        runtime_id: info.runtime_id,
        level: args.level.map(Into::into),
        delete_after: args.delete_after.clone(),
    };
    let mut snapshot = client.snapshot(&request).await?;
    if !args.no_wait {
        snapshot = wait(client, snapshot).await?;
    }
    print(snapshot.snapshot_id + "\n")
}

async fn wait(client: &Client, snapshot: Snapshot) -> Result<Snapshot, Failure> {
    progress::waiting("saving the state");
    Ok(client.wait_snapshot(snapshot).await?)
}

async fn list(client: &Client, args: &ListArgs) -> Result<(), Failure> {
    let id = match &args.name {
        Some(name) => Some(names::find(client, name).await?.runtime_id),
        None => None,
    };
    let snapshots = client.snapshots(id.as_deref()).await?;
    print(match args.output {
        Some(format @ (Format::Json | Format::Yaml)) => {
            document(&json!({"snapshots": snapshots}), format)?
        }
        Some(Format::Name) => snapshots
            .iter()
            .map(|snapshot| escape(&snapshot.snapshot_id) + "\n")
            .collect(),
        None | Some(Format::Wide) => table(snapshots).render(),
    })
}

fn table(snapshots: Vec<Snapshot>) -> Table {
    let mut table = Table::new(&["ID", "SANDBOX", "STATUS", "LEVEL", "SIZE", "AGE", "REASON"]);
    for snapshot in snapshots {
        let size = snapshot
            .size_bytes
            .and_then(|size| u64::try_from(size).ok());
        table.row([
            snapshot.snapshot_id,
            snapshot
                .session_id
                .or(snapshot.runtime_id)
                .unwrap_or_else(|| "-".into()),
            format!("{:?}", snapshot.status).to_lowercase(),
            snapshot
                .level
                .map_or_else(|| "-".into(), |level| format!("{level:?}")),
            size.map_or_else(|| "-".into(), bytes),
            age(snapshot.created_at),
            snapshot.reason.unwrap_or_default(),
        ]);
    }
    table
}

/// Starts the forks, until a signal. The user learns the names also if that does not succeed.
pub(crate) async fn fork(client: &Client, args: ForkArgs) -> Result<(), Failure> {
    let environment = exec::environment(&args.env)?;
    let id = snapshot_id(client, args.source).await?;
    let session_ids = if args.names.is_empty() {
        // The gateway would tell its names after the last start only.
        (0..args.count).map(|_| names::random(&id)).collect()
    } else {
        args.names
    };
    let request = ForkRequest {
        session_ids,
        count: None,
        environment,
    };
    let mut signals = Signals::new()?;
    let mut are_accepted = false;
    let done = tokio::select! {
        done = start(client, &id, &request, &mut are_accepted) => done,
        signal = signals.ended() => Err(Failure::Interrupted(signal)),
    };
    done.inspect_err(|failure| {
        if are_accepted || may_go_on(failure) {
            let names = request.session_ids.join(" ");
            note(&format!(
                "sandboxes that have started go on; `sandbox stop NAME` ends one of them: {names}"
            ));
        }
    })
}

/// Starts the forks, waits for each and prints their names.
async fn start(
    client: &Client,
    id: &str,
    request: &ForkRequest,
    are_accepted: &mut bool,
) -> Result<(), Failure> {
    let forks = client.fork(id, request).await?;
    *are_accepted = true;
    for info in forks {
        let name = escape(&info.session_id);
        client.wait_ready(info, &mut progress::step).await?;
        print(name + "\n")?;
    }
    Ok(())
}

/// The id of a snapshot, or that of a new one of a sandbox of this name.
async fn snapshot_id(client: &Client, source: String) -> Result<String, Failure> {
    match client.find_snapshot(&source).await {
        Ok(snapshot) => return Ok(snapshot.snapshot_id),
        Err(client::Error::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let request = SnapshotRequest {
        runtime_id: names::find(client, &source).await?.runtime_id,
        level: None,
        delete_after: Some(FORK_SNAPSHOT_TTL.into()),
    };
    let snapshot = wait(client, client.snapshot(&request).await?).await?;
    Ok(snapshot.snapshot_id)
}
