//! Latest output of a process, whose last line says why the process has ended.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::task::AbortOnDropHandle;

const MAX_TAIL_BYTES: usize = 4 << 10;
/// Characters of the last line in a reason.
const MAX_REASON_CHARS: usize = 500;
/// Time for the rest of the output after the exit.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct OutputTail {
    text: Arc<Mutex<Vec<u8>>>,
    readers: Vec<AbortOnDropHandle<()>>,
}

impl OutputTail {
    /// Reads an output until the last writer has closed it.
    pub(super) fn follow(&mut self, output: impl AsyncRead + Unpin + Send + 'static) {
        let reading = tokio::spawn(read(output, Arc::clone(&self.text)));
        self.readers.push(AbortOnDropHandle::new(reading));
    }

    /// Last line after the end of the process; empty if there is none.
    pub(super) async fn last_line(self) -> String {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, join_all(self.readers)).await;
        let text = String::from_utf8_lossy(&self.text.lock()).into_owned();
        let last = text.trim_end().lines().last().unwrap_or_default();
        last.chars().take(MAX_REASON_CHARS).collect()
    }
}

/// `has ended (exit status: 1)`
pub(super) fn describe_end(how: io::Result<ExitStatus>) -> String {
    let how = how.map_or_else(|error| error.to_string(), |how| how.to_string());
    format!("has ended ({how})")
}

async fn read(mut output: impl AsyncRead + Unpin, text: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 4 << 10];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        let mut text = text.lock();
        text.extend(&buffer[..count]);
        let excess = text.len().saturating_sub(MAX_TAIL_BYTES);
        text.drain(..excess);
    }
}
