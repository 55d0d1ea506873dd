//! Reads of the log of one Pod from the API server.

use std::collections::VecDeque;

use futures::AsyncBufRead;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use shared::kubernetes::client::{CallError, with_timeout};

use super::cursor::Position;
use super::line::{Line, read_line};
use super::log_params;

/// Lines before the requested ones: those that have the same time count for the position.
const COUNTED_LINES: i64 = 64;
/// Bytes of the text of a tail.
const MAX_TAIL_BYTES: usize = 1 << 20;

/// Log of a Pod; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct PodLog {
    pub(super) pods: Api<Pod>,
    pub(super) pod: String,
    pub(super) previous: bool,
}

/// Last lines of a log, each with the position after it.
pub(super) type Tail = VecDeque<(Line, Option<Position>)>;

impl PodLog {
    /// Opens the log from a position, or its beginning. With `follow`, it ends with the container.
    pub(super) async fn open(
        &self,
        from: Option<Position>,
        follow: bool,
    ) -> Result<impl AsyncBufRead + Unpin + use<>, CallError> {
        let params = LogParams {
            follow,
            previous: self.previous,
            since_time: from.map(Position::seek_time),
            ..log_params()
        };
        let log = with_timeout(self.pods.log_stream(&self.pod, &params)).await?;
        Ok(Box::pin(log))
    }

    /// Reads the last `lines` lines, and the position at the end, which may be that of a line before
    /// them.
    pub(super) async fn tail(&self, lines: u32) -> Result<(Tail, Option<Position>), CallError> {
        let params = LogParams {
            previous: self.previous,
            tail_lines: Some(i64::from(lines) + COUNTED_LINES),
            ..log_params()
        };
        let log = with_timeout(self.pods.log_stream(&self.pod, &params)).await?;
        let mut log = Box::pin(log);
        let (mut tail, mut bytes, mut position) = (Tail::new(), 0, None);
        // A log that breaks off is continued from the position.
        while let Ok(Some(line)) = read_line(&mut log).await {
            position = advance(position, &line);
            bytes += line.text.len();
            tail.push_back((line, position));
            while tail.len() > lines as usize || bytes > MAX_TAIL_BYTES {
                bytes -= tail.pop_front().map_or(0, |(line, _)| line.text.len());
            }
        }
        Ok((tail, position))
    }
}

/// Returns the position after a line. One without a time does not change it.
pub(super) fn advance(position: Option<Position>, line: &Line) -> Option<Position> {
    match (position, line.time) {
        (position, None) => position,
        (Some(position), Some(time)) => Some(position.next(time)),
        (None, Some(time)) => Some(Position::first(time)),
    }
}
