//! `sandbox-operator image-build`: steps of a full image build, in the containers of its Pod.

use std::fs::OpenOptions;
use std::io::Write as _;

use builder::{FetchArgs, PushArgs};
use clap::Subcommand;

/// File in which Kubernetes finds the termination message of a container.
const TERMINATION_LOG: &str = "/dev/termination-log";

#[derive(Debug, Clone, Subcommand)]
pub(super) enum ImageBuildCommand {
    /// Fetch build context and base image
    Fetch(FetchArgs),
    /// Push the image
    Push(PushArgs),
}

impl ImageBuildCommand {
    /// Runs the step. The termination message is its result, or the reason of its failure.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let done = match self {
            Self::Fetch(args) => args.run().await.map(|()| String::new()),
            Self::Push(args) => {
                let built = args.run().await;
                built.map(|built| serde_json::to_string(&built).unwrap_or_default())
            }
        };
        let message = match &done {
            Ok(result) => result.clone(),
            Err(error) => error.to_string(),
        };
        if !message.is_empty() {
            // Outside of a container, there is no such file.
            let file = OpenOptions::new().write(true).open(TERMINATION_LOG);
            let _ = file.and_then(|mut file| file.write_all(message.as_bytes()));
            println!("{message}");
        }
        Ok(done.map(drop)?)
    }
}
