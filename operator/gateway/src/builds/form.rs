//! Form of `POST /build`: the parts `context`, `target_image` and any number of `tags`, in this
//! order. The context is read while it arrives.

use std::io::{self, Read};

use axum::extract::Multipart;
use axum::extract::multipart::{Field, MultipartError};
use bytes::{Buf as _, Bytes};
use http::StatusCode;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::context::{self, BuildContext};
use super::error::BuildError;

const CONTEXT: &str = "context";
const TARGET: &str = "target_image";
const TAGS: &str = "tags";
/// Bytes of a reference.
const MAX_REFERENCE_BYTES: usize = 512;
/// Number of parts `tags`; clients send two.
const MAX_TAGS: usize = 8;
/// Chunks of a context on their way to the thread that reads it.
const MAX_QUEUED_CHUNKS: usize = 4;

/// A build as the client describes it.
#[derive(Debug)]
pub(crate) struct BuildForm {
    pub(super) context: BuildContext,
    pub(super) target: String,
    pub(super) tags: Vec<String>,
}

/// Parts of a form that have arrived.
#[derive(Debug, Default)]
struct Parts {
    keep_files: bool,
    context: Option<BuildContext>,
    target: Option<String>,
    tags: Vec<String>,
}

impl BuildForm {
    /// Reads a form. A faulty one is read to its end as well: a client that gets its response while
    /// it is still sending sees a broken connection instead.
    ///
    /// The files of the context are kept on disk if `keep_files`.
    pub(crate) async fn read(mut form: Multipart, keep_files: bool) -> Result<Self, BuildError> {
        let mut parts = Parts {
            keep_files,
            ..Parts::default()
        };
        let mut fault = None;
        while let Some(mut field) = form.next_field().await? {
            if fault.is_none() {
                fault = parts.read(&mut field).await.err();
            }
            while field.chunk().await?.is_some() {}
        }
        match fault {
            Some(fault) => Err(fault),
            None => parts.complete(),
        }
    }
}

impl Parts {
    async fn read(&mut self, field: &mut Field<'_>) -> Result<(), BuildError> {
        let has = (self.context.is_some(), self.target.is_some());
        match (field.name(), has) {
            (Some(CONTEXT), (false, false)) => {
                self.context = Some(read_context(field, self.keep_files).await?);
            }
            (Some(TARGET), (true, false)) => self.target = Some(read_text(field, TARGET).await?),
            (Some(TAGS), (true, true)) if self.tags.len() >= MAX_TAGS => {
                return Err(BuildError::ManyTags { max: MAX_TAGS });
            }
            (Some(TAGS), (true, true)) => self.tags.push(read_text(field, TAGS).await?),
            (Some(name), _) => {
                let known = [CONTEXT, TARGET, TAGS]
                    .into_iter()
                    .find(|known| *known == name);
                // Unknown parts are skipped.
                return known.map_or(Ok(()), |part| Err(BuildError::Order { part }));
            }
            (None, _) => {}
        }
        Ok(())
    }

    fn complete(self) -> Result<BuildForm, BuildError> {
        Ok(BuildForm {
            context: self.context.ok_or(BuildError::Missing(CONTEXT))?,
            target: self.target.ok_or(BuildError::Missing(TARGET))?,
            tags: self.tags,
        })
    }
}

async fn read_text(field: &mut Field<'_>, part: &'static str) -> Result<String, BuildError> {
    let (max, mut text) = (MAX_REFERENCE_BYTES, Vec::new());
    while let Some(chunk) = field.chunk().await? {
        if text.len() + chunk.len() > max {
            return Err(BuildError::LongText { part, max });
        }
        text.extend_from_slice(&chunk);
    }
    // A part that is not text is not a reference either.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads a context on a thread of its own, which ends with the field or with the request.
async fn read_context(field: &mut Field<'_>, keep_files: bool) -> Result<BuildContext, BuildError> {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let reading = spawn_blocking(move || context::read(ChunkReader::new(receiver), keep_files));
    while let Some(chunk) = field.chunk().await? {
        if sender.send(chunk).await.is_err() {
            break;
        }
    }
    drop(sender);
    let context = reading.await.map_err(|_| BuildError::Panicked)?;
    Ok(context?)
}

/// Reads chunks that another task sends.
pub(super) struct ChunkReader {
    receiver: mpsc::Receiver<Bytes>,
    chunk: Bytes,
}

impl ChunkReader {
    pub(super) fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self {
            receiver,
            chunk: Bytes::new(),
        }
    }
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

impl From<MultipartError> for BuildError {
    fn from(error: MultipartError) -> Self {
        match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            _ => Self::Form(error.body_text()),
        }
    }
}
