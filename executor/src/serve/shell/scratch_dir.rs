//! Private directory with the start-up files of the shell and the text of the next command.
//!
//! Commands pass through a file because a terminal accepts at most 4095 bytes per line and
//! interprets control characters. It belongs to the sandbox user and is written as that user.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::serve::identity::Identity;
use crate::serve::private_dir::{self, PrivateDir};

const COMMAND: &str = "command";
/// Name of a file that the shell reads once.
const ONCE: &str = "once";
/// Size of the file for commands. Commands up to this size are written in place, so that they need
/// no free space: the one that frees some must still reach the shell.
const RESERVED_BYTES: usize = 64 << 10;

/// Content of the file with the next command.
#[derive(Debug)]
pub(super) enum CommandText {
    /// A command that is read up to a zero byte; the file keeps its reserve.
    Reserved(Vec<u8>),
    /// A script that is read to the end of the file. Only its first page needs no free space.
    Exact(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct ScratchDir {
    private: PrivateDir,
    identity: Arc<Identity>,
}

impl ScratchDir {
    /// Creates the directory with the start-up files that `files` makes: `rc` and `hooks`.
    pub(super) async fn create(
        identity: &Arc<Identity>,
        fallback: &Path,
        files: impl FnOnce(&Path) -> [Vec<u8>; 2] + Send + 'static,
    ) -> io::Result<Self> {
        let files = |directory: &Path| {
            let [rc, hooks] = files(directory);
            let reserved = vec![0; RESERVED_BYTES];
            vec![("rc", rc), ("hooks", hooks), (COMMAND, reserved)]
        };
        Ok(Self {
            private: PrivateDir::create(identity, fallback, files).await?,
            identity: Arc::clone(identity),
        })
    }

    pub(super) fn rc(&self) -> PathBuf {
        self.private.directory.join("rc")
    }

    /// Writes a file that the shell reads once.
    pub(super) async fn write_once(&self, content: Vec<u8>) -> io::Result<PathBuf> {
        let file = self.private.directory.join(ONCE);
        let path = file.clone();
        let written = self
            .identity
            .run(move || private_dir::write(&path, &content));
        written.await??;
        Ok(file)
    }

    pub(super) async fn remove_file(&self, file: PathBuf) -> io::Result<()> {
        self.identity.run(|| fs::remove_file(file)).await?
    }

    /// Stores the next command. Creates the directory again if it was deleted.
    pub(super) async fn write_command(&self, command: CommandText) -> io::Result<()> {
        let directory = self.private.directory.clone();
        let written = self.identity.run(move || {
            let file = directory.join(COMMAND);
            match write_in_place(&file, &command) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    DirBuilder::new().mode(0o700).create(&directory)?;
                    write_in_place(&file, &command)
                }
                outcome => outcome,
            }
        });
        written.await?
    }

    pub(super) async fn remove(self) {
        self.private.remove().await;
    }
}

/// Space beyond the reserve is freed with the next command.
fn write_in_place(path: &Path, command: &CommandText) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path)?;
    if file.metadata()?.len() > RESERVED_BYTES as u64 {
        file.set_len(RESERVED_BYTES as u64)?;
    }
    match command {
        CommandText::Reserved(text) => {
            file.write_all(text)?;
            file.write_all(&[0])
        }
        CommandText::Exact(text) => {
            file.write_all(text)?;
            file.set_len(text.len() as u64)
        }
    }
}
