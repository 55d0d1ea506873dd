//! `sandbox pause`, `sandbox resume` and `sandbox stop`.

use client::{Client, RuntimeInfo, Status};

use crate::failure::Failure;
use crate::names;
use crate::output::print;
use crate::progress;
use crate::text::escape;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session ids, runtime ids or unique prefixes
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    sandboxes: Args,
    /// Do not wait until the state is saved
    #[arg(long)]
    no_wait: bool,
}

/// Pauses all, then waits for each.
pub(crate) async fn pause(client: &Client, args: &PauseArgs) -> Result<(), Failure> {
    let mut paused = Vec::new();
    for info in find_all(client, &args.sandboxes).await? {
        paused.push(client.pause(&info.runtime_id).await?);
    }
    for mut info in paused {
        if !args.no_wait {
            progress::waiting(&format!("pausing {}", info.session_id));
            info = client.wait_paused(info).await?;
        }
        say(&info, &pause_state(&info))?;
    }
    Ok(())
}

/// State of a sandbox that was paused, and what the pause has kept.
fn pause_state(info: &RuntimeInfo) -> String {
    if info.pausing {
        return "pausing".into();
    }
    match &info.persisted {
        _ if info.status != Status::Paused => info.status.to_string(),
        None => "paused".into(),
        Some(kept) => {
            let reason = kept.reason.as_deref().map(escape);
            let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            format!("paused, kept {}{reason}", escape(&kept.level))
        }
    }
}

pub(crate) async fn stop(client: &Client, args: &Args) -> Result<(), Failure> {
    for info in find_all(client, args).await? {
        client.stop(&info.runtime_id).await?;
        say(&info, "stopped")?;
    }
    Ok(())
}

/// Resumes all, then waits for each.
pub(crate) async fn resume(client: &Client, args: &Args) -> Result<(), Failure> {
    let mut resumed = Vec::new();
    for info in find_all(client, args).await? {
        resumed.push(client.resume(&info.runtime_id).await?);
    }
    for info in resumed {
        let sandbox = client.wait_ready(info, &mut progress::step).await?;
        say(sandbox.info(), "running")?;
    }
    Ok(())
}

/// Finds all of them before the first is changed, so that a misspelled name changes nothing.
async fn find_all(client: &Client, args: &Args) -> Result<Vec<RuntimeInfo>, Failure> {
    let mut found = Vec::new();
    for name in &args.names {
        found.push(names::find(client, name).await?);
    }
    Ok(found)
}

fn say(info: &RuntimeInfo, state: &str) -> Result<(), Failure> {
    print(format!("{} {state}\n", escape(&info.session_id)))
}
