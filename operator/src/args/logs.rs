//! `sandbox-operator logs NAME`: what the command of a Sandbox wrote. While there is a Pod, its log;
//! of a failed one, whose Pod is gone, the end that the controller kept, which only who may read the
//! root key can open.

use std::io::Write as _;

use crds::sandbox::Phase;
use crds::{Sandbox, names};
use futures::{AsyncRead, AsyncReadExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};

use super::Installation;
use crate::kubernetes::client::{CallError, bounded};

/// Bytes that are copied at a time.
const CHUNK: usize = 16 << 10;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    installation: Installation,
    /// Name of the Sandbox.
    name: String,
    /// Namespace of the Sandbox. Default: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Lines from the end. Default: all that there are.
    #[arg(long)]
    tail: Option<u32>,
    /// What the command wrote before it was last started again.
    #[arg(short, long)]
    previous: bool,
}

impl LogsArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let own = || client.default_namespace().to_owned();
        let namespace = self.namespace.clone().unwrap_or_else(own);
        let api = Api::<Sandbox>::namespaced(client.clone(), &namespace);
        let sandbox = bounded(api.get(&self.name)).await?;
        match self.live(&client, &namespace).await {
            Ok(log) => print(log).await,
            Err(error) if error.is_not_found() => {
                let kept = self.kept(&client, &namespace, &sandbox).await?;
                print!("{}", end_of(&kept, self.tail));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The log of the Pod, which may be long.
    async fn live(
        &self,
        client: &Client,
        namespace: &str,
    ) -> Result<impl AsyncRead + Unpin + use<>, CallError> {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let params = LogParams {
            container: Some(names::CONTAINER.into()),
            tail_lines: self.tail.map(i64::from),
            previous: self.previous,
            ..LogParams::default()
        };
        let stream = bounded(pods.log_stream(&names::pod(&self.name), &params)).await?;
        Ok(Box::pin(stream))
    }

    /// The end of the log of a failed one.
    async fn kept(
        &self,
        client: &Client,
        namespace: &str,
        sandbox: &Sandbox,
    ) -> anyhow::Result<String> {
        let status = sandbox.status.clone().unwrap_or_default();
        let Some(sealed) = &status.sealed_log else {
            let why = absence(status.phase);
            anyhow::bail!("Sandbox {} has no log: {why}", self.name);
        };
        anyhow::ensure!(!self.previous, "only the log of its last run was kept");
        let keys = self.installation.keys(client).await?;
        Ok(keys.open_log(namespace, &self.name, sealed)?)
    }
}

/// Why there is neither a Pod nor a kept log.
fn absence(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "its Pod is not made yet",
        Phase::Starting | Phase::Running => "its Pod is gone; another one is being made",
        Phase::Pausing | Phase::Paused => "it is paused, and the log goes with the Pod",
        Phase::Stopped => "it is stopped",
        Phase::Failed => "its command wrote nothing, or was never started",
    }
}

async fn print(mut log: impl AsyncRead + Unpin) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    let mut chunk = vec![0; CHUNK];
    loop {
        match log.read(&mut chunk).await? {
            0 => return Ok(output.flush()?),
            length => output.write_all(&chunk[..length])?,
        }
    }
}

/// The last lines of a text.
fn end_of(text: &str, lines: Option<u32>) -> &str {
    let Some(lines) = lines.and_then(|lines| usize::try_from(lines).ok()) else {
        return text;
    };
    let mut starts = text.trim_end_matches('\n').rmatch_indices('\n');
    match lines.checked_sub(1) {
        None => "",
        Some(more) => starts.nth(more).map_or(text, |(at, _)| &text[at + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_as_many_as_asked_for() {
        let text = "a\nb\nc\n";
        for (lines, end) in [(0, ""), (1, "c\n"), (2, "b\nc\n"), (3, text), (9, text)] {
            assert_eq!(end_of(text, Some(lines)), end, "{lines}");
        }
        assert_eq!(end_of(text, None), text);
        assert_eq!(end_of("a\nb", Some(1)), "b");
        assert_eq!(end_of("", Some(1)), "");
    }
}
