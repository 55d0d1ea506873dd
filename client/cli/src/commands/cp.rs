//! `sandbox cp`: a tar stream of a program in the sandbox, or the transfers of its server where it has no
//! `tar`.

mod inward;
mod outward;
mod remote;

use client::Client;

use crate::copy::location::Location;
use crate::failure::Failure;
use crate::names;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Path on this machine, or NAME:PATH in a sandbox; `DIR/.` for the content of a directory
    source: String,
    /// Path on this machine, or NAME:PATH in a sandbox
    target: String,
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    match (
        Location::parse(&args.source)?,
        Location::parse(&args.target)?,
    ) {
        (Location::Local(source), Location::Remote { name, path }) => {
            let sandbox = names::sandbox(client, &name).await?;
            inward::copy(&sandbox, &source, &path).await
        }
        (Location::Remote { name, path }, Location::Local(target)) => {
            let sandbox = names::sandbox(client, &name).await?;
            outward::copy(&sandbox, &path, &target).await
        }
        _ => Err(Failure::Usage(
            "one of the two paths must be in a sandbox (NAME:PATH)".into(),
        )),
    }
}
