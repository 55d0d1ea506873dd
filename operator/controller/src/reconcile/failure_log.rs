//! Reads the end of a failed sandbox's log before its Pod is deleted. The status stores it
//! encrypted, because programs print secrets.

use std::time::Duration;

use crds::names;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::timeout;

use crate::context::Context;
use crate::log_tail::LogTail;
use shared::index::Key;
use shared::kubernetes::error_text;

/// Time limit of the read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Encrypted, it fits the schema.
const TAIL: LogTail = LogTail {
    lines: 50,
    read_bytes: 256 << 10,
    kept_bytes: 4 << 10,
};

/// Returns the sealed end of the log. A missing log does not delay the failure.
pub(super) async fn capture(context: &Context, key: &Key, pod: &str) -> Option<String> {
    let pods = context.api::<Pod>(key);
    let read = TAIL.read(&pods, pod, names::CONTAINER);
    let log = match timeout(READ_TIMEOUT, read).await {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_is_bounded_utf8_for_any_output() {
        assert_eq!(TAIL.cut(b"a\n\xff"), "a\n\u{fffd}");
        let long = "\u{fc}".repeat(TAIL.kept_bytes);
        assert_eq!(TAIL.cut(long.as_bytes()).len(), TAIL.kept_bytes);
        assert!(TAIL.cut(format!("x{long}").as_bytes()).ends_with('\u{fc}'));
        let binary = vec![0xff; 1 << 16];
        let keys = shared::keys::Keys::derive(&[1; 32]).unwrap();
        let sealed = keys.seal_log("ns", "a", &TAIL.cut(&binary)).unwrap();
        assert!(sealed.len() <= 8192, "{}", sealed.len());
    }
}
