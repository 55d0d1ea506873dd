//! Unfinished file of a download. A thread hashes and writes while the next bytes arrive; its lock
//! lets one task of all processes write.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{Digest, Hasher};

/// Pieces of a body that wait to be written.
const WAITING: usize = 64;
const BUFFER: usize = 1 << 20;

/// Handle of the writing thread.
pub(super) struct Part {
    commands: mpsc::Sender<Command>,
    written: JoinHandle<io::Result<Option<Digest>>>,
    /// Bytes that are written or will be.
    pub(super) length: u64,
}

enum Command {
    Append(Bytes),
    Restart,
    /// Compares the digest and gives the file its name.
    Finish(Digest),
}

struct PartFile {
    file: File,
    path: PathBuf,
    into: PathBuf,
    hasher: Hasher,
}

impl Part {
    /// Opens the part of the file `into`, with what an earlier attempt has left of it. Waits while
    /// another task writes it; `None` if `into` is there then.
    pub(super) async fn open(into: &Path) -> io::Result<Option<Self>> {
        let (commands, received) = mpsc::channel(WAITING);
        let (opened, length) = oneshot::channel();
        let into = into.to_owned();
        let written = spawn_blocking(move || {
            let Some(mut part) = PartFile::open(into)? else {
                return Ok(None);
            };
            let length = part.hash()?;
            let _ = opened.send(length);
            let written = part.run(received);
            if written.is_err() {
                // Space is needed more than a part of a blob.
                let _ = fs::remove_file(&part.path);
            }
            written
        });
        match length.await {
            Ok(length) => Ok(Some(Self {
                commands,
                written,
                length,
            })),
            Err(_) => written.await?.map(|_| None),
        }
    }

    /// Appends a piece; false if the disk has failed, which [`Self::keep`] explains.
    pub(super) async fn append(&mut self, piece: Bytes) -> bool {
        self.length += piece.len() as u64;
        self.commands.send(Command::Append(piece)).await.is_ok()
    }

    /// Begins anew with an empty file.
    pub(super) async fn restart(&mut self) {
        self.length = 0;
        let _ = self.commands.send(Command::Restart).await;
    }

    /// Leaves the part for the next attempt.
    pub(super) async fn keep(self) -> io::Result<()> {
        drop(self.commands);
        self.written.await?.map(drop)
    }

    /// Gives the file its name, or removes it and returns the digest that it has instead.
    pub(super) async fn finish(self, expected: Digest) -> io::Result<Option<Digest>> {
        let _ = self.commands.send(Command::Finish(expected)).await;
        drop(self.commands);
        self.written.await?
    }
}

impl PartFile {
    fn open(into: PathBuf) -> io::Result<Option<Self>> {
        let path = into.with_extension("part");
        loop {
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            let file = options.open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            let own = file.metadata()?.ino();
            if fs::metadata(&path).is_ok_and(|named| named.ino() == own) {
                if into.exists() {
                    fs::remove_file(&path)?;
                    return Ok(None);
                }
                return Ok(Some(Self {
                    file,
                    path,
                    into,
                    hasher: Hasher::default(),
                }));
            }
            if into.exists() {
                return Ok(None);
            }
        }
    }

    /// Hashes what is there; its length.
    fn hash(&mut self) -> io::Result<u64> {
        let mut buffer = vec![0; BUFFER];
        let mut length = 0;
        loop {
            let read = self.file.read(&mut buffer)?;
            if read == 0 {
                return Ok(length);
            }
            self.hasher.update(&buffer[..read]);
            length += read as u64;
        }
    }

    /// Writes until the end; the digest if it is not the expected one.
    fn run(&mut self, mut commands: mpsc::Receiver<Command>) -> io::Result<Option<Digest>> {
        while let Some(command) = commands.blocking_recv() {
            match command {
                Command::Append(piece) => {
                    self.file.write_all(&piece)?;
                    self.hasher.update(&piece);
                }
                Command::Restart => {
                    self.file.set_len(0)?;
                    self.file.rewind()?;
                    self.hasher = Hasher::default();
                }
                Command::Finish(expected) => {
                    let found = std::mem::take(&mut self.hasher).finish();
                    if found != expected {
                        fs::remove_file(&self.path)?;
                        return Ok(Some(found));
                    }
                    self.file.sync_data()?;
                    fs::rename(&self.path, &self.into)?;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }
}
