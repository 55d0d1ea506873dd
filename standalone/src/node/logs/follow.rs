//! Reading of a log that still grows.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};

use super::record::{Renderer, has_end};

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Open log of one run.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    file: File,
    /// Start of a line whose end is not written yet.
    partial: Vec<u8>,
    is_finished: bool,
}

impl Follower {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Ok(Self {
            file: File::open(&path)?,
            path,
            partial: Vec::new(),
            is_finished: false,
        })
    }

    /// Stored lines that were written since the last read.
    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.partial);
        // The file is looked up first: what is written before a rotation is then read here.
        let is_rotated = is_replaced(&self.path, &self.file);
        self.file.read_to_end(&mut bytes)?;
        if is_rotated {
            self.file = File::open(&self.path)?;
            self.file.read_to_end(&mut bytes)?;
        }
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        self.partial = bytes.split_off(end.map_or(0, |end| end + 1));
        self.is_finished |= has_end(&bytes) || !self.path.exists();
        Ok(bytes)
    }

    pub(super) fn stream(self, renderer: Renderer) -> BoxStream<'static, io::Result<Bytes>> {
        let parts = stream::unfold((self, renderer), |(mut follower, mut renderer)| async {
            loop {
                if follower.is_finished || renderer.is_full() {
                    return None;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
                let part = follower.read().map(|stored| renderer.render(&stored));
                match part {
                    Ok(part) if part.is_empty() => {}
                    Ok(part) => return Some((Ok(part.into()), (follower, renderer))),
                    Err(error) => {
                        follower.is_finished = true;
                        return Some((Err(error), (follower, renderer)));
                    }
                }
            }
        });
        parts.boxed()
    }
}

fn is_replaced(path: &Path, file: &File) -> bool {
    let inode = |metadata: io::Result<fs::Metadata>| metadata.map(|found| found.ino()).ok();
    let now = inode(fs::metadata(path));
    now.is_some() && now != inode(file.metadata())
}
