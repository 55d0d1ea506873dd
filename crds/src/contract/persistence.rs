//! Persistence of a sandbox beyond its workspace: what a pause keeps, by which mechanism, and the
//! messages about it between controller and supervisor (`docs/persistence.md`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// State that a pause keeps. Each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
pub enum PersistenceLevel {
    /// Files of the workspace volume.
    #[default]
    Workspace,
    /// Also every file outside of it that changed since the image: packages, home directories,
    /// `/etc`.
    Root,
    /// Also processes and their memory.
    Memory,
}

/// A text that names no level.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a level of persistence (Workspace, Root or Memory)")]
pub struct LevelError(String);

impl FromStr for PersistenceLevel {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match text.to_ascii_lowercase().as_str() {
            "workspace" => Ok(Self::Workspace),
            "root" => Ok(Self::Root),
            "memory" => Ok(Self::Memory),
            _ => Err(LevelError(text.to_owned())),
        }
    }
}

impl PersistenceLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "Workspace",
            Self::Root => "Root",
            Self::Memory => "Memory",
        }
    }
}

impl fmt::Display for PersistenceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The way in which files outside of the workspace are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
pub enum RootMechanism {
    /// The node mounts the root with its changes on the volume.
    Node,
    /// The supervisor mounts an overlay whose changes are on the volume. It needs the capability
    /// `SYS_ADMIN` in a user namespace.
    Overlay,
    /// The supervisor writes an archive of the changes when the command has stopped, and unpacks it
    /// before the command starts. It needs uid 0.
    Archive,
}

/// Persistence of a Pod: the variable [`PERSISTENCE`](super::variable::PERSISTENCE) of the
/// container, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPersistence {
    pub level: PersistenceLevel,
    pub root: RootMechanism,
    pub limits: SaveLimits,
    /// Capabilities of the supervisor that the command must not have, by their Kubernetes names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
}

/// Limits of a save. A save beyond them keeps less, and says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaveLimits {
    /// Bytes on the volume, besides the workspace.
    pub bytes: u64,
    /// Number of changed files outside of the workspace.
    pub files: u64,
    /// Time of a save in seconds, without the time in which the command stops.
    pub seconds: u64,
}

/// Part of an init message: key and image of the state on the volume.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[serde(rename_all = "camelCase")]
pub struct StateAccess {
    /// Key of the sandbox that encrypts its state: 32 bytes of unpadded base64url.
    #[debug(skip)]
    pub key: String,
    /// Image that the container runs, by digest. Changes of the root fit one image only. Empty:
    /// unknown; then the state of any image is discarded.
    pub image: String,
    /// Snapshot that the sandbox begins with, at
    /// [`SNAPSHOT_DIR`](super::path::SNAPSHOT_DIR). A start after the first one ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SnapshotSource>,
}

/// Snapshot that a sandbox begins with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSource {
    /// Uid of the snapshot.
    pub id: String,
    /// Key of the snapshot: 32 bytes of unpadded base64url.
    #[debug(skip)]
    pub key: String,
    /// Mount path of the workspace.
    pub workspace: String,
}

/// Request to save: what [`Grant::Save`](super::control::Grant::Save) permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaveRequest {
    /// Image that the container runs, by digest.
    pub image: String,
    /// Time in seconds in which the command has to stop after SIGTERM.
    pub stop_seconds: u64,
}

/// Request to copy the state of a running command: what
/// [`Grant::Snapshot`](super::control::Grant::Snapshot) permits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRequest {
    /// Uid of the snapshot, the name of its directory on the volume.
    pub id: String,
    /// Key of the snapshot: 32 bytes of unpadded base64url.
    #[debug(skip)]
    pub key: String,
    /// Highest level that it is to have.
    pub level: PersistenceLevel,
    /// Image that the container runs, by digest.
    pub image: String,
    /// Mount path of the workspace.
    pub workspace: String,
    /// Uids of the other snapshots on the volume. Directories of all others are removed.
    pub others: Vec<String>,
}

/// Request for the changed files of a snapshot: what
/// [`Grant::Layer`](super::control::Grant::Layer) permits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[serde(rename_all = "camelCase")]
pub struct LayerRequest {
    /// Uid of the snapshot.
    pub id: String,
    /// Key of the snapshot: 32 bytes of unpadded base64url.
    #[debug(skip)]
    pub key: String,
}

/// Body of the responses of `/v1/snapshot`. Without `kept` and `error` the copy goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotReport {
    /// State that the snapshot has, once it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptState>,
    /// Reason for which there is no snapshot: a sentence for people, without a full stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Body of the responses of `/v1/save`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaveReport {
    pub state: SaveState,
    /// State that was kept; present when the save has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SaveState {
    Saving,
    Done,
}

/// Result of a save or a start: the level, and the reason if it is less than the Pod's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptState {
    pub level: PersistenceLevel,
    /// Bytes on the volume, besides the workspace, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A sentence for people, without a full stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl KeptState {
    /// State of this level, as asked for.
    pub fn of(level: PersistenceLevel) -> Self {
        Self {
            level,
            bytes: None,
            reason: None,
        }
    }

    /// Bounds the reason, which may come from a sandbox, to one line of [`MAX_REASON_BYTES`].
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Some(reason) = &mut self.reason {
            reason.retain(|c| !c.is_control());
            reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        }
        self
    }
}

/// Limit of a reason in bytes.
pub const MAX_REASON_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_include_the_ones_before() {
        use PersistenceLevel::{Memory, Root, Workspace};
        assert!(Workspace < Root && Root < Memory);
    }

    #[test]
    fn level_is_read_in_any_case() {
        let read = |text: &str| text.parse::<PersistenceLevel>().ok();
        assert_eq!(read("root"), Some(PersistenceLevel::Root));
        assert_eq!(read("Memory"), Some(PersistenceLevel::Memory));
        assert_eq!(read("disk"), None);
    }

    #[test]
    fn messages_are_stable_on_the_wire() {
        let limits = SaveLimits {
            bytes: 1,
            files: 2,
            seconds: 3,
        };
        let pod = PodPersistence {
            level: PersistenceLevel::Root,
            root: RootMechanism::Overlay,
            limits,
            withheld: vec!["SYS_ADMIN".into()],
        };
        let access = StateAccess {
            key: "AAAA".into(),
            image: "sha256:0".into(),
            source: Some(SnapshotSource {
                id: "uid".into(),
                key: "BBBB".into(),
                workspace: "/workspace".into(),
            }),
        };
        let snapshot = SnapshotRequest {
            id: "uid".into(),
            key: "BBBB".into(),
            level: PersistenceLevel::Memory,
            image: "sha256:0".into(),
            workspace: "/workspace".into(),
            others: vec!["other".into()],
        };
        let layer = LayerRequest {
            id: "uid".into(),
            key: "BBBB".into(),
        };
        let request = SaveRequest {
            image: "sha256:0".into(),
            stop_seconds: 10,
        };
        let report = SaveReport {
            state: SaveState::Done,
            kept: Some(KeptState {
                reason: Some("the command has 5 GiB of files".into()),
                ..KeptState::of(PersistenceLevel::Workspace)
            }),
        };
        insta::assert_json_snapshot!((pod, access, request, snapshot, layer, report));
    }

    #[test]
    fn key_is_not_printed() {
        let access = StateAccess {
            key: "hunter2".into(),
            image: String::new(),
            source: None,
        };
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}
