//! Private directory with the start-up files of the shell and the text of the next command.
//!
//! Commands pass through a file because a terminal accepts at most 4095 bytes per line and
//! interprets control characters. It belongs to the sandbox user and is written as that user.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use crate::serve::identity::Identity;
use crate::serve::private_dir;

const RC: &str = "rc";
const HOOKS: &str = "hooks";
const COMMAND: &str = "command";
/// Size of the file for commands. Commands up to this size are written in place, so that they need
/// no free space: the one that frees some must still reach the shell.
const RESERVED_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct ScratchDir {
    directory: PathBuf,
    identity: Arc<Identity>,
}

impl ScratchDir {
    /// Creates the directory in the first location that the user can write, with the start-up
    /// files that `files` makes: `rc` and `hooks`.
    pub(super) async fn create(
        identity: &Arc<Identity>,
        name: &str,
        fallback: &Path,
        files: impl FnOnce(&Path) -> [String; 2] + Send + 'static,
    ) -> io::Result<Self> {
        let places = private_dir::places(fallback);
        let name = format!(".sandbox-{name}");
        let made = identity.run(move || {
            let directory = private_dir::create_in_first(&places, &name)?;
            let [rc, hooks] = files(&directory);
            write(&directory.join(RC), rc.as_bytes())?;
            write(&directory.join(HOOKS), hooks.as_bytes())?;
            reserve(&directory.join(COMMAND))?;
            Ok::<_, io::Error>(directory)
        });
        Ok(Self {
            directory: made.await??,
            identity: Arc::clone(identity),
        })
    }

    pub(super) fn rc(&self) -> PathBuf {
        self.directory.join(RC)
    }

    /// Stores the next command. Creates the directory again if it was deleted.
    pub(super) async fn write_command(&self, command: String) -> io::Result<()> {
        let directory = self.directory.clone();
        let put = self.identity.run(move || {
            let file = directory.join(COMMAND);
            match write_in_place(&file, &command) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    private_dir::make(&directory)?;
                    write_in_place(&file, &command)
                }
                outcome => outcome,
            }
        });
        put.await?
    }

    pub(super) async fn remove(self) {
        let directory = self.directory;
        // A failure is harmless: the names are never used again.
        let removing = self.identity.run(|| fs::remove_dir_all(directory));
        let _ = tokio::time::timeout(private_dir::CLEANUP_TIMEOUT, removing).await;
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    open(path)?.write_all(content)
}

/// Fills the file with blocks that later writes reuse.
fn reserve(path: &Path) -> io::Result<()> {
    let mut file = open(path)?;
    let reserved = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVED_BYTES);
    if reserved.is_err() {
        // The file system cannot reserve space without content.
        io::copy(&mut io::repeat(0).take(RESERVED_BYTES), &mut file)?;
    }
    Ok(())
}

/// The shell reads up to the zero byte. Space beyond the reserve is freed with the next command.
fn write_in_place(path: &Path, command: &str) -> io::Result<()> {
    let mut file = open(path)?;
    if file.metadata()?.len() > RESERVED_BYTES {
        file.set_len(RESERVED_BYTES)?;
    }
    file.write_all(command.as_bytes())?;
    file.write_all(&[0])
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}
