//! `sandbox doctor`: facts are read, judged by pure checks, and reported.

mod access;
mod checks;
mod cluster;
mod facts;
mod finding;
mod gather;
mod report;

use std::path::PathBuf;

use clap::ValueEnum;
use client::Client;

use crate::failure::Failure;
use crate::output::print;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig; by default that of `KUBECONFIG`, or that of a Pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the operator
    #[arg(
        long,
        short = 'n',
        value_name = "NAMESPACE",
        default_value = "sandbox-operator"
    )]
    namespace: String,
    /// Name of the Helm release
    #[arg(long, value_name = "NAME", default_value = "sandbox-operator")]
    release: String,
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
    gateway: Option<Result<Client, Failure>>,
    args: &Args,
) -> Result<u8, Failure> {
    let (facts, gateway) = tokio::join!(gather::gather(args), async {
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
