//! `sandbox pause`, `sandbox resume` and `sandbox stop`.

use client::{Client, RuntimeInfo};

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

pub(crate) async fn pause(client: &Client, args: &Args) -> Result<(), Failure> {
    for info in find_all(client, args).await? {
        client.pause(&info.runtime_id).await?;
        say(&info, "paused")?;
    }
    Ok(())
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
        let line = progress::Line::waiting("resuming");
        let sandbox = client.wait_ready(info, &mut |step| line.step(step)).await?;
        drop(line);
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
