//! Snapshots, and sandboxes that begin with the state of one.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{CALL_TIMEOUT, Client, Repeat, encode, missing};
use crate::http_client;
use crate::{Error, RuntimeInfo};

const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Each of the sandboxes of one call may take some seconds.
const FORK_TIMEOUT: Duration = Duration::from_mins(2);

/// State of a sandbox at one moment.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Snapshot {
    pub snapshot_id: String,
    /// Sandbox that it was made of.
    pub runtime_id: Option<String>,
    pub session_id: Option<String>,
    pub status: SnapshotStatus,
    pub level: Option<Level>,
    /// Bytes on the volume.
    pub size_bytes: Option<i64>,
    pub created_at: Option<Timestamp>,
    pub saved_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// Reason for which there is no copy, or less than was asked for.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotStatus {
    Pending,
    Saving,
    Ready,
    Failed,
    #[serde(other)]
    Unknown,
}

/// State that a pause or a snapshot keeps: files of the workspace, all changed files, or processes as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Level {
    Workspace,
    Root,
    Memory,
    #[serde(other)]
    Unknown,
}

/// Body of `POST /snapshots`.
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotRequest {
    pub runtime_id: String,
    /// Absent: that of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// Duration such as `24h`; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_after: Option<String>,
}

/// Body of `POST /snapshots/{id}/start`: named sessions, or a number of new ones.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ForkRequest {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session_ids: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Snapshots {
    snapshots: Vec<Snapshot>,
}

#[derive(Debug, Deserialize)]
struct Started {
    runtimes: Vec<RuntimeInfo>,
}

#[derive(Debug, Deserialize)]
struct Accepted {
    build_id: String,
}

impl Client {
    /// Requests a snapshot of a running sandbox.
    pub async fn snapshot(&self, request: &SnapshotRequest) -> Result<Snapshot, Error> {
        let made = self.post(&["snapshots"], Repeat::Unsent, request).await;
        made.map_err(|error| missing(error, || format!("sandbox {}", request.runtime_id)))
    }

    /// Waits until a snapshot is complete, at most `ready_timeout` of the settings.
    pub async fn wait_snapshot(&self, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
        let limit = self.settings().ready_timeout;
        let deadline = Instant::now() + limit;
        loop {
            match snapshot.status {
                SnapshotStatus::Ready => return Ok(snapshot),
                SnapshotStatus::Failed => {
                    let reason = snapshot
                        .reason
                        .unwrap_or_else(|| "no reason is known".into());
                    return Err(Error::Action(format!(
                        "snapshot {} failed: {reason}",
                        snapshot.snapshot_id
                    )));
                }
                _ if Instant::now() > deadline => {
                    return Err(Error::Timeout {
                        what: format!("snapshot {}", snapshot.snapshot_id),
                        after: limit,
                        state: format!("{:?}", snapshot.status),
                    });
                }
                _ => sleep(POLL_INTERVAL).await,
            }
            snapshot = self.find_snapshot(&snapshot.snapshot_id).await?;
        }
    }

    /// Returns the snapshots of the key, or those of one sandbox, the oldest first.
    pub async fn snapshots(&self, runtime_id: Option<&str>) -> Result<Vec<Snapshot>, Error> {
        let query: Vec<_> = runtime_id.iter().map(|id| ("runtime_id", *id)).collect();
        let list: Snapshots = self.get(&["snapshots"], &query).await?;
        Ok(list.snapshots)
    }

    pub async fn find_snapshot(&self, id: &str) -> Result<Snapshot, Error> {
        let found = self.get(&["snapshots", id], &[]).await;
        found.map_err(|error| missing(error, || format!("snapshot {id}")))
    }

    pub async fn delete_snapshot(&self, id: &str) -> Result<(), Error> {
        let request = || {
            self.request(Method::DELETE, &["snapshots", id], &[])
                .timeout(CALL_TIMEOUT)
        };
        let deleted = self.send(Repeat::Temporary, request).await;
        deleted
            .map(drop)
            .map_err(|error| missing(error, || format!("snapshot {id}")))
    }

    /// Starts sandboxes with the state of a snapshot. Only those of named sessions are started again
    /// when the answer of the first attempt was lost.
    pub async fn fork(
        &self,
        snapshot_id: &str,
        request: &ForkRequest,
    ) -> Result<Vec<RuntimeInfo>, Error> {
        let repeat = if request.session_ids.is_empty() {
            Repeat::Unsent
        } else {
            Repeat::Temporary
        };
        let body = encode(request)?;
        let call = || {
            let path = ["snapshots", snapshot_id, "start"];
            let request = self.request(Method::POST, &path, &[]).timeout(FORK_TIMEOUT);
            request.body(body.clone())
        };
        let started = self.send(repeat, call).await;
        let started =
            started.map_err(|error| missing(error, || format!("snapshot {snapshot_id}")))?;
        let started: Started = http_client::json(started).await?;
        Ok(started.runtimes)
    }

    /// Makes an image of the changed files of a snapshot; the id of the build.
    pub async fn snapshot_image(&self, snapshot_id: &str, target: &str) -> Result<String, Error> {
        let path = ["snapshots", snapshot_id, "image"];
        // The same snapshot and target is the same build.
        let accepted = self
            .post(&path, Repeat::Temporary, &json!({"target": target}))
            .await;
        let accepted: Accepted =
            accepted.map_err(|error| missing(error, || format!("snapshot {snapshot_id}")))?;
        Ok(accepted.build_id)
    }
}
