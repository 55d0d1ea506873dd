//! Layer of a snapshot, from the supervisor of the sandbox on whose volume it is. The sandbox is not
//! trusted: everything has a limit.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::sync::Arc;

use crds::contract::header::ARCHITECTURE;
use crds::contract::persistence::LayerRequest;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::body::Incoming;
use images::{Layer, compress};
use serde::Deserialize;
use shared::image_builds::reason::{DISK_ERROR, INTERRUPTED};
use shared::index::Entry;
use tempfile::NamedTempFile;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;

use super::form::ChunkReader;
use super::outcome::Failure;
use crate::supervisors::Supervisors;

/// Bytes of the compressed layer.
pub(super) const MAX_LAYER_BYTES: u64 = 512 << 20;
/// Bytes of the layer.
const MAX_PLAIN_BYTES: u64 = 16 << 30;
const MAX_ERROR_BYTES: usize = 4096;
const MAX_DETAIL_CHARS: usize = 300;
const MAX_ARCHITECTURE_BYTES: usize = 32;
/// Chunks on their way to the thread that compresses them.
const MAX_QUEUED_CHUNKS: usize = 4;
/// Cause of a failure at the sandbox.
const SNAPSHOT_UNREADABLE: &str = "SnapshotUnreadable";

/// Changed files of a snapshot.
#[derive(Debug)]
pub(super) struct SnapshotLayer {
    pub(super) source: Arc<Entry>,
    pub(super) request: LayerRequest,
    /// The base image is in the tenant's own repositories.
    pub(super) is_of_tenant: bool,
    /// Bounds the number of layers on the disk.
    pub(super) turn: OwnedSemaphorePermit,
}

/// Layer that arrives.
#[derive(Debug)]
pub(super) struct OpenLayer {
    /// Architecture of its programs, in the words of Go.
    pub(super) architecture: String,
    body: Incoming,
    turn: OwnedSemaphorePermit,
}

/// Compressed layer, which is deleted with the value.
#[derive(Debug)]
pub(super) struct LayerFile {
    file: NamedTempFile,
    _turn: OwnedSemaphorePermit,
}

impl LayerFile {
    pub(super) fn path(&self) -> &std::path::Path {
        self.file.path()
    }
}

#[derive(Deserialize)]
struct Detail {
    detail: String,
}

impl SnapshotLayer {
    pub(super) async fn open(self, supervisors: &dyn Supervisors) -> Result<OpenLayer, Failure> {
        let response = supervisors.layer(&self.source, self.request).await;
        let response = response.map_err(|error| unreadable(&error))?;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        let architecture = response.headers().get(ARCHITECTURE);
        let architecture = architecture.and_then(|value| value.to_str().ok());
        let is_short = |text: &&str| !text.is_empty() && text.len() <= MAX_ARCHITECTURE_BYTES;
        let architecture = architecture.filter(is_short);
        Ok(OpenLayer {
            architecture: architecture
                .ok_or_else(|| unreadable(&"it does not state its architecture"))?
                .to_owned(),
            body: response.into_body(),
            turn: self.turn,
        })
    }
}

impl OpenLayer {
    /// Compresses the layer into a file.
    pub(super) async fn write(self) -> Result<(Layer, LayerFile), Failure> {
        let (mut body, turn) = (self.body, self.turn);
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
        // It ends with the channel, and the turn with it.
        let writing = spawn_blocking(move || {
            let file = NamedTempFile::new()?;
            let to = LimitedFile {
                file: file.reopen()?,
                left: MAX_LAYER_BYTES,
            };
            let mut plain = ChunkReader::new(receiver).take(MAX_PLAIN_BYTES + 1);
            let (layer, _) = compress(&mut plain, to)?;
            if plain.limit() == 0 {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            Ok((layer, LayerFile { file, _turn: turn }))
        });
        let mut lost = None;
        while let Some(frame) = body.frame().await {
            match frame {
                Err(error) => {
                    lost = Some(error);
                    break;
                }
                Ok(frame) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    if sender.send(data).await.is_err() {
                        break;
                    }
                }
            }
        }
        drop(sender);
        let written = writing.await;
        let written = written.map_err(|_| Failure::new(INTERRUPTED, &"internal error"))?;
        if let Some(error) = lost {
            return Err(unreadable(&error));
        }
        written.map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                let message = format!(
                    "the changed files exceed {} MiB when they are compressed, or {} GiB",
                    MAX_LAYER_BYTES >> 20,
                    MAX_PLAIN_BYTES >> 30
                );
                Failure::new("TooLarge", &message)
            }
            _ => Failure::new(DISK_ERROR, &format!("the layer cannot be written: {error}")),
        })
    }
}

/// Error of the supervisor, with its own words.
async fn refusal(response: Response<Incoming>) -> Failure {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ERROR_BYTES);
    let body = body.collect().await.ok().map(Collected::to_bytes);
    let detail = body.and_then(|body| serde_json::from_slice::<Detail>(&body).ok());
    match detail {
        Some(Detail { detail }) => {
            let shown = detail.chars().filter(|c| !c.is_control());
            unreadable(&shown.take(MAX_DETAIL_CHARS).collect::<String>())
        }
        None => unreadable(&status),
    }
}

fn unreadable(cause: &impl ToString) -> Failure {
    let message = format!(
        "the sandbox does not deliver the snapshot: {}",
        cause.to_string()
    );
    Failure::new(SNAPSHOT_UNREADABLE, &message)
}

/// Writer that fails beyond a limit.
struct LimitedFile {
    file: File,
    left: u64,
}

impl Write for LimitedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let count = self.file.write(bytes)?;
        self.left -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
