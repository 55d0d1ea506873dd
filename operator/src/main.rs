//! The binary of both roles.

use clap::Parser as _;
use operator::args::Args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    Args::parse().run().await
}
