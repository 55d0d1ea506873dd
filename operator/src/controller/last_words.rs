//! The end of a failed sandbox's log, read before its Pod goes: whoever started it wants to know
//! why. It stands encrypted in the status, because programs print secrets.

use std::time::Duration;

use crds::names;
use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use tokio::time::timeout;

use super::observe::Observed;
use super::plan::Plan;
use super::reconcile::Context;
use crate::kubernetes::words;
use crds::sandbox::Phase;

/// How long the node may take.
const LIMIT: Duration = Duration::from_secs(2);
/// Lines that are asked for.
const LINES: i64 = 50;
/// Most bytes that are read of these lines.
const MOST: u64 = 256 << 10;
/// How much of their end is kept, in bytes. Encrypted, it fits the schema.
const KEPT: usize = 4 << 10;

/// Adds the end of the log to the status of a sandbox that this plan gives up. A log that cannot be
/// had is nothing to wait for.
pub(super) async fn add(context: &Context, observed: &Observed, plan: &mut Plan) {
    let before = observed.entry.status.phase;
    if plan.status.phase != Phase::Failed || before == Phase::Failed || observed.facts.pod.is_none()
    {
        return;
    }
    let key = &observed.entry.key;
    let log = match timeout(LIMIT, read(context, &key.namespace, &key.name)).await {
        Ok(Ok(log)) if !log.is_empty() => log,
        Ok(Ok(_)) => return,
        Ok(Err(error)) => {
            let error = words::of(&error);
            return tracing::debug!(%key, error, "no log of a failed sandbox");
        }
        Err(_) => return tracing::debug!(%key, "no log of a failed sandbox in time"),
    };
    let sealed = context.keys.seal_log(&key.namespace, &key.name, &log);
    plan.status.sealed_log = sealed.ok();
}

async fn read(context: &Context, namespace: &str, sandbox: &str) -> kube::Result<String> {
    let api = Api::<Pod>::namespaced(context.client.clone(), namespace);
    let params = LogParams {
        container: Some(names::CONTAINER.into()),
        tail_lines: Some(LINES),
        limit_bytes: i64::try_from(MOST).ok(),
        ..LogParams::default()
    };
    let stream = api.log_stream(&names::pod(sandbox), &params).await?;
    let mut bytes = Vec::new();
    // What was read before an error is better than nothing.
    let _ = stream.take(MOST).read_to_end(&mut bytes).await;
    Ok(end_of(&bytes))
}

fn end_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let start = text.ceil_char_boundary(text.len().saturating_sub(KEPT));
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_whatever_a_program_prints() {
        assert_eq!(end_of(b"a\n\xff"), "a\n\u{fffd}");
        let long = "\u{fc}".repeat(KEPT);
        assert_eq!(end_of(long.as_bytes()).len(), KEPT);
        assert!(end_of(format!("x{long}").as_bytes()).ends_with('\u{fc}'));
        let binary = vec![0xff; 1 << 16];
        let keys = crate::keys::Keys::derive(&[1; 32]).unwrap();
        let sealed = keys.seal_log("ns", "a", &end_of(&binary)).unwrap();
        assert!(sealed.len() <= 8192, "{}", sealed.len());
    }
}
