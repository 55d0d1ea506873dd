//! `sandbox builds` and `sandbox images`.

use std::path::PathBuf;

use client::{Client, ListedBuild};
use serde_json::json;

use crate::copy::pack;
use crate::failure::Failure;
use crate::output::{Format, document, hint, note, print};
use crate::progress;
use crate::table::Table;
use crate::text::{age, bytes, escape, escape_lines};

/// Exit code of a build that failed, or of an image that does not exist.
const NEGATIVE: u8 = 1;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Build an image from a directory with a Dockerfile; prints its reference
    Create {
        directory: PathBuf,
        /// Reference of the image, below the registry prefix
        target: String,
        /// Another tag; repeat it for several
        #[arg(long)]
        tag: Vec<String>,
    },
    /// List the builds of the key, the newest first
    #[command(visible_alias = "ls")]
    List {
        /// Form of the output
        #[arg(long, short = 'o', value_name = "FORMAT")]
        output: Option<Format>,
        /// Number of builds, at most 500
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// Print the status of a build; the exit code is 1 if it failed
    Status { id: String },
    /// Follow the log of a build
    Logs { id: String },
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ImagesCommand {
    /// Print the repository of runtime images
    Prefix,
    /// Print whether an image exists; the exit code is 1 if not
    Exists { image: String },
}

pub(crate) async fn run(client: &Client, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Create {
            directory,
            target,
            tag,
        } => {
            let archive = pack::context(directory).await?;
            let id = client.build(&archive, &target, &tag).await?;
            wait(client, &id).await
        }
        Command::List { output, limit } => list(client, output, limit).await.map(|()| 0),
        Command::Status { id } => {
            let build = client.build_status(&id).await?;
            let detail = build.detail().unwrap_or_default();
            print(format!(
                "{} {} {}\n",
                build.status,
                escape(&build.image),
                escape(detail)
            ))?;
            Ok(if build.is_finished() && build.status != "SUCCESS" {
                NEGATIVE
            } else {
                0
            })
        }
        Command::Logs { id } => {
            let mut log = client.build_logs(&id).await?;
            while let Some(line) = log.next_line().await? {
                print(escape_lines(&line) + "\n")?;
            }
            Ok(0)
        }
    }
}

async fn list(client: &Client, format: Option<Format>, limit: u32) -> Result<(), Failure> {
    let list = client.builds(limit).await?;
    let left_out = list.total.saturating_sub(list.builds.len() as u64);
    print(match format {
        Some(format @ (Format::Json | Format::Yaml)) => {
            document(&json!({"total": list.total, "builds": list.builds}), format)?
        }
        Some(Format::Name) => list
            .builds
            .iter()
            .map(|build| escape(&build.build_id) + "\n")
            .collect(),
        Some(Format::Wide) => table(&list.builds, true).render(),
        None => table(&list.builds, false).render(),
    })?;
    if left_out > 0 {
        hint(&format!(
            "{left_out} older builds are not shown; --limit shows more"
        ));
    }
    Ok(())
}

fn table(builds: &[ListedBuild], is_wide: bool) -> Table {
    if !is_wide {
        let mut table = Table::new(&["ID", "STATUS", "MODE", "IMAGE", "AGE"]);
        for listed in builds {
            let build = listed.build.clone();
            let (id, mode) = (listed.build_id.clone(), listed.mode.clone());
            table.row([id, build.status, mode, build.image, age(listed.created_at)]);
        }
        return table;
    }
    let mut table = Table::new(&[
        "ID", "STATUS", "MODE", "IMAGE", "SIZE", "AGE", "TAGS", "DETAIL",
    ]);
    for listed in builds {
        let build = listed.build.clone();
        let detail = build.detail().unwrap_or("-").to_owned();
        table.row([
            listed.build_id.clone(),
            build.status,
            listed.mode.clone(),
            build.image,
            listed.size_bytes.map_or_else(|| "-".into(), bytes),
            age(listed.created_at),
            listed.tags.len().to_string(),
            detail,
        ]);
    }
    table
}

async fn wait(client: &Client, id: &str) -> Result<u8, Failure> {
    progress::waiting("building");
    let build = client.wait_build(id, &mut progress::step).await?;
    if build.status == "SUCCESS" {
        print(escape(&build.image) + "\n")?;
        return Ok(0);
    }
    let error = build.error.as_deref().unwrap_or("no reason is known");
    note(&format!("build {id}: {}: {error}", build.status));
    Ok(NEGATIVE)
}

pub(crate) async fn images(client: &Client, command: ImagesCommand) -> Result<u8, Failure> {
    match command {
        ImagesCommand::Prefix => print(escape(&client.registry_prefix().await?) + "\n").map(|()| 0),
        ImagesCommand::Exists { image } => {
            let found = client.image(&image).await?;
            let details = found.image.filter(|image| image.image_size_bytes > 0);
            let details = details.map_or_else(String::new, |image| {
                format!(
                    " ({}, {})",
                    bytes(image.image_size_bytes),
                    escape(&image.upload_time)
                )
            });
            print(format!(
                "{}{details}\n",
                if found.exists { "exists" } else { "missing" }
            ))?;
            Ok(if found.exists { 0 } else { NEGATIVE })
        }
    }
}
