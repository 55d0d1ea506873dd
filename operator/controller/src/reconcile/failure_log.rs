//! Reads the end of a failed sandbox's log before its Pod is deleted. The status stores it
//! encrypted, because programs print secrets.

use std::time::Duration;

use crds::names;
use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use tokio::time::timeout;

use crate::context::Context;
use shared::index::Key;
use shared::kubernetes::error_text;

/// Time limit of the read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Lines requested from the kubelet.
const TAIL_LINES: i64 = 50;
/// Maximum read, in bytes.
const MAX_READ_BYTES: u64 = 256 << 10;
/// Maximum stored, in bytes. Encrypted, it fits the schema.
const MAX_KEPT_BYTES: usize = 4 << 10;

/// Returns the sealed end of the log. A missing log does not delay the failure.
pub(super) async fn capture(context: &Context, key: &Key, pod: &str) -> Option<String> {
    let log = match timeout(READ_TIMEOUT, read(context, key, pod)).await {
        Ok(Ok(log)) => log,
        Ok(Err(error)) => {
            let error = error_text::error_text(&error);
            tracing::debug!(%key, error, "cannot read the log of a failed sandbox");
            return None;
        }
        Err(_) => {
            tracing::debug!(%key, "the log of a failed sandbox was not read in time");
            return None;
        }
    };
    let sealed = || context.keys.seal_log(&key.namespace, &key.name, &log);
    (!log.is_empty()).then(sealed)?.ok()
}

async fn read(context: &Context, key: &Key, pod: &str) -> kube::Result<String> {
    let params = LogParams {
        container: Some(names::CONTAINER.into()),
        tail_lines: Some(TAIL_LINES),
        limit_bytes: i64::try_from(MAX_READ_BYTES).ok(),
        ..LogParams::default()
    };
    let stream = context.api::<Pod>(key).log_stream(pod, &params).await?;
    let mut bytes = Vec::new();
    // A partial log is better than none.
    let _ = stream.take(MAX_READ_BYTES).read_to_end(&mut bytes).await;
    Ok(tail(&bytes))
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_KEPT_BYTES));
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_is_bounded_utf8_for_any_output() {
        assert_eq!(tail(b"a\n\xff"), "a\n\u{fffd}");
        let long = "\u{fc}".repeat(MAX_KEPT_BYTES);
        assert_eq!(tail(long.as_bytes()).len(), MAX_KEPT_BYTES);
        assert!(tail(format!("x{long}").as_bytes()).ends_with('\u{fc}'));
        let binary = vec![0xff; 1 << 16];
        let keys = shared::keys::Keys::derive(&[1; 32]).unwrap();
        let sealed = keys.seal_log("ns", "a", &tail(&binary)).unwrap();
        assert!(sealed.len() <= 8192, "{}", sealed.len());
    }
}
