//! `sandbox-operator logs NAME`: prints the log of the Pod of a Sandbox. After a failure, when the
//! Pod is deleted, it prints the encrypted log tail from the status, which needs the root key.

use std::io::{ErrorKind, Write};

use crds::sandbox::Phase;
use crds::{Sandbox, names};
use futures::AsyncRead;
use futures::io::AllowStdIo;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt as _};

use super::Installation;
use shared::kubernetes::client::{CallError, with_timeout};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    installation: Installation,
    /// Name of the Sandbox.
    name: String,
    /// Namespace of the Sandbox. Default: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Number of lines from the end. Default: all.
    #[arg(long)]
    tail: Option<u32>,
    /// Print the log of the previous container run.
    #[arg(short, long)]
    previous: bool,
}

impl LogsArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let own = || client.default_namespace().to_owned();
        let namespace = self.namespace.clone().unwrap_or_else(own);
        let api = Api::<Sandbox>::namespaced(client.clone(), &namespace);
        let sandbox = with_timeout(api.get(&self.name)).await?;
        let output = std::io::stdout();
        let copied = if let Some(log) = self.pod_log(&client, &namespace, &sandbox).await? {
            copy(log, output).await
        } else {
            let log = self.read_sealed_log(&client, &namespace, &sandbox).await?;
            copy(last_lines(&log, self.tail).as_bytes(), output).await
        };
        Ok(copied?)
    }

    /// Streams the log of the Pod. A Pod with another owner is ignored.
    async fn pod_log(
        &self,
        client: &Client,
        namespace: &str,
        sandbox: &Sandbox,
    ) -> Result<Option<impl AsyncRead + Unpin + use<>>, CallError> {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let pod = sandbox.status.as_ref().and_then(|s| s.pod_name.clone());
        let pod = pod.unwrap_or_else(|| names::pod(&self.name));
        let found = with_timeout(pods.get_metadata_opt(&pod)).await?;
        if !found.is_some_and(|pod| is_owned_by(sandbox, pod.owner_references())) {
            return Ok(None);
        }
        let params = LogParams {
            container: Some(names::CONTAINER.into()),
            tail_lines: self.tail.map(i64::from),
            previous: self.previous,
            ..LogParams::default()
        };
        match with_timeout(pods.log_stream(&pod, &params)).await {
            Ok(stream) => Ok(Some(Box::pin(stream))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Decrypts the log tail of a failed sandbox.
    async fn read_sealed_log(
        &self,
        client: &Client,
        namespace: &str,
        sandbox: &Sandbox,
    ) -> anyhow::Result<String> {
        let status = sandbox.status.clone().unwrap_or_default();
        let Some(sealed) = &status.sealed_log else {
            let why = no_log_message(status.phase);
            anyhow::bail!("Sandbox {} has no log: {why}", self.name);
        };
        anyhow::ensure!(
            !self.previous,
            "only the log of the last container run is stored"
        );
        let keys = self.installation.keys(client).await?;
        Ok(keys.open_log(namespace, &self.name, sealed)?)
    }
}

fn is_owned_by(sandbox: &Sandbox, owners: &[OwnerReference]) -> bool {
    let uid = sandbox.metadata.uid.as_deref();
    owners.iter().any(|owner| Some(owner.uid.as_str()) == uid)
}

/// Explains why there is neither a Pod nor a stored log.
fn no_log_message(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "its Pod is not created yet",
        Phase::Starting | Phase::Running => "its Pod is being replaced",
        Phase::Pausing | Phase::Paused => "it is paused, and its Pod is deleted",
        Phase::Stopped => "it is stopped",
        Phase::Failed => {
            "no log is stored: no output, never started, or the node did not answer in time"
        }
    }
}

/// Copies a log to its end, or until the reader has closed the output.
async fn copy(log: impl AsyncRead, output: impl Write) -> std::io::Result<()> {
    match futures::io::copy(log, &mut AllowStdIo::new(output)).await {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn last_lines(text: &str, lines: Option<u32>) -> &str {
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
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use testing::FakeApi;

    #[derive(Debug, clap::Parser)]
    struct TestArgs {
        #[command(flatten)]
        logs: LogsArgs,
    }

    #[tokio::test]
    async fn pod_of_another_owner_is_ignored() {
        let api = FakeApi::default();
        let client = api.client();
        let name = names::pod("a");
        let pod = format!("/api/v1/namespaces/ns/pods/{name}");
        let owner = json!({"apiVersion": "v1", "kind": "Sandbox", "name": "a", "uid": "one"});
        let meta = json!({"name": name, "ownerReferences": [owner]});
        api.put(&pod, json!({ "metadata": meta }));
        api.put(&format!("{pod}/log"), json!({}));
        let logs = TestArgs::try_parse_from(["x", "a"]).unwrap().logs;
        for (uid, name, found) in [("one", "a", true), ("two", "a", false), ("one", "b", false)] {
            let mut sandbox = Sandbox::new(name, crds::sandbox::SandboxSpec::default());
            sandbox.metadata.uid = Some(uid.into());
            let logs = LogsArgs {
                name: name.into(),
                ..logs.clone()
            };
            let live = logs.pod_log(&client, "ns", &sandbox).await.unwrap();
            assert_eq!(live.is_some(), found, "{uid} {name}");
        }
    }

    /// Output that fails after this number of bytes.
    struct Output(usize, ErrorKind);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(self.1)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn closed_output_is_not_an_error() {
        const CHUNK: usize = 16 << 10;
        let text = vec![b'x'; 3 * CHUNK];
        for (room, kind, good) in [
            (text.len(), ErrorKind::StorageFull, true),
            (CHUNK, ErrorKind::BrokenPipe, true),
            (CHUNK, ErrorKind::StorageFull, false),
        ] {
            let copied = copy(&text[..], Output(room, kind)).await;
            assert_eq!(copied.is_ok(), good, "{kind:?}");
        }
    }

    #[test]
    fn last_lines_returns_requested_number() {
        let text = "a\nb\nc\n";
        for (lines, end) in [(0, ""), (1, "c\n"), (2, "b\nc\n"), (3, text), (9, text)] {
            assert_eq!(last_lines(text, Some(lines)), end, "{lines}");
        }
        assert_eq!(last_lines(text, None), text);
        assert_eq!(last_lines("a\nb", Some(1)), "b");
        assert_eq!(last_lines("", Some(1)), "");
    }
}
