//! End of a container's log.

use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;

/// Amounts of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogTail {
    /// Lines requested from the kubelet.
    pub(crate) lines: i64,
    /// Maximum read, in bytes.
    pub(crate) read_bytes: u64,
    /// Maximum kept, in bytes.
    pub(crate) kept_bytes: usize,
}

impl LogTail {
    /// Reads the end of a log as UTF-8. A partial log is better than none.
    pub(crate) async fn read(
        self,
        pods: &Api<Pod>,
        pod: &str,
        container: &str,
    ) -> kube::Result<String> {
        let params = LogParams {
            container: Some(container.to_owned()),
            tail_lines: Some(self.lines),
            limit_bytes: i64::try_from(self.read_bytes).ok(),
            ..LogParams::default()
        };
        let stream = pods.log_stream(pod, &params).await?;
        let mut bytes = Vec::new();
        let _ = stream.take(self.read_bytes).read_to_end(&mut bytes).await;
        Ok(self.cut(&bytes))
    }

    pub(crate) fn cut(self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        let start = text.ceil_char_boundary(text.len().saturating_sub(self.kept_bytes));
        text[start..].to_owned()
    }
}
