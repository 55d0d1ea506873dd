//! Download of a blob to a file, which goes on where an earlier attempt has stopped.

use std::io;
use std::path::Path;

use http::StatusCode;
use http::header::{CONTENT_RANGE, RANGE};
use reqwest::{RequestBuilder, Response};
use tokio::time::sleep;

use super::part::Part;
use super::response::causes;
use super::{Origin, Registry, RegistryError};
use crate::Descriptor;

/// Attempts in a row without a new byte after which a download has failed.
const ATTEMPTS: u32 = 4;

/// One blob and where it comes from.
pub(super) struct Download<'a> {
    pub(super) registry: &'a Registry,
    pub(super) origins: &'a [Origin<'a>],
    pub(super) blob: &'a Descriptor,
    /// Name for messages.
    pub(super) what: &'a str,
}

impl Download<'_> {
    pub(super) async fn run(
        &self,
        into: &Path,
        progress: &impl Fn(u64),
    ) -> Result<(), RegistryError> {
        let opened = Part::open(into).await;
        let Some(mut part) = opened.map_err(|error| self.disk(error))? else {
            // Another task has finished it while this one waited for the lock.
            progress(self.blob.size);
            return Ok(());
        };
        if part.length > self.blob.size {
            part.restart().await;
        }
        progress(part.length);
        if let Err(error) = self.fill(&mut part, progress).await {
            // A failure of the disk has dropped the receiver, which is all that is seen here.
            part.keep().await.map_err(|error| self.disk(error))?;
            return Err(error);
        }
        let finished = part.finish(self.blob.digest).await;
        match finished.map_err(|error| self.disk(error))? {
            None => Ok(()),
            Some(found) => Err(self.refused(format!("content has digest {found}"))),
        }
    }

    /// Appends until the part has the size of the blob.
    async fn fill(&self, part: &mut Part, progress: &impl Fn(u64)) -> Result<(), RegistryError> {
        let mut idle = 0;
        while part.length < self.blob.size {
            let before = part.length;
            let mut failed = None;
            for origin in self.origins {
                match self.append(part, origin, progress).await {
                    Ok(()) => failed = None,
                    Err(error) => failed = Some(error),
                }
                if failed.is_none() {
                    break;
                }
            }
            idle = if part.length > before { 0 } else { idle + 1 };
            match failed {
                Some(error) if !is_temporary(&error) || idle == ATTEMPTS => return Err(error),
                None if idle == ATTEMPTS => {
                    let reason = format!("ends after {} bytes", part.length);
                    return Err(self.refused(reason));
                }
                _ if part.length < self.blob.size => sleep(self.registry.0.pause).await,
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends what one response delivers.
    async fn append(
        &self,
        part: &mut Part,
        origin: &Origin<'_>,
        progress: &impl Fn(u64),
    ) -> Result<(), RegistryError> {
        let start = part.length;
        let range = |request: RequestBuilder| match start {
            0 => request,
            _ => request.header(RANGE, format!("bytes={start}-")),
        };
        let path = format!("blobs/{}", self.blob.digest);
        let mut response = self.registry.get(origin, &path, self.what, range).await?;
        if start > 0 && !continues(&response, start) {
            // The registry sends everything again.
            part.restart().await;
        }
        loop {
            let chunk = response.chunk().await;
            let chunk = chunk.map_err(|error| RegistryError::Unreachable {
                what: self.what.to_owned(),
                cause: causes(&error),
            })?;
            let Some(chunk) = chunk else {
                return Ok(());
            };
            let length = chunk.len() as u64;
            if part.length + length > self.blob.size {
                part.restart().await;
                let reason = format!("more than the {} bytes of its manifest", self.blob.size);
                return Err(self.refused(reason));
            }
            if !part.append(chunk).await {
                return Err(self.disk(io::Error::other("not written")));
            }
            // Bytes that are sent a second time were reported before.
            if part.length > start {
                progress(length.min(part.length - start));
            }
        }
    }

    fn disk(&self, source: io::Error) -> RegistryError {
        RegistryError::Disk {
            what: self.what.to_owned(),
            source,
        }
    }

    fn refused(&self, reason: String) -> RegistryError {
        RegistryError::Refused {
            what: self.what.to_owned(),
            reason,
        }
    }
}

/// True if the body of a response begins at this offset.
fn continues(response: &Response, start: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE);
    let range = range.and_then(|value| value.to_str().ok());
    let stated = range.and_then(|range| range.strip_prefix("bytes ")?.split_once('-'));
    response.status() == StatusCode::PARTIAL_CONTENT
        && stated.is_some_and(|(first, _)| first.parse() == Ok(start))
}

/// True for what may go better the next time.
fn is_temporary(error: &RegistryError) -> bool {
    matches!(error, RegistryError::Unreachable { .. })
}
