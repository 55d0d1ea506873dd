//! `sandbox doctor`: facts are read, judged by pure checks, and reported.

mod access;
mod checks;
mod facts;
mod finding;
mod gather;
mod report;

use clap::ValueEnum;
use client::Client;

use crate::failure::Failure;
use crate::installation::Installation;
use crate::output::print;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Form of the output
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Json,
}

/// Checks an installation. Exit code 1 if a check failed. The gateway is asked if its URL is set.
pub(crate) async fn run(
    installation: &Installation,
    gateway: Option<Result<Client, Failure>>,
    args: &Args,
) -> Result<u8, Failure> {
    let (facts, gateway) = tokio::join!(gather::gather(installation), async {
        match gateway {
            Some(client) => access::gateway(client).await,
            None => access::not_set(),
        }
    });
    let mut findings = checks::run(&facts);
    findings.push(gateway);
    print(match args.output {
        Some(Format::Json) => report::json(&findings)?,
        None => report::text(&findings),
    })?;
    Ok(u8::from(findings.iter().any(finding::Finding::is_failed)))
}
