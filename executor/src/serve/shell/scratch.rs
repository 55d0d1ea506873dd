//! A private directory through which commands reach the shell.
//!
//! A file, because the terminal takes at most 4095 bytes a line and gives some bytes a meaning.
//! It belongs to the sandbox user and is written with that user's rights only.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::serve::identity::Identity;
use crate::serve::private;

const RC: &str = "rc";
const COMMAND: &str = "command";

#[derive(Debug)]
pub(super) struct Scratch {
    directory: PathBuf,
    identity: Arc<Identity>,
}

impl Scratch {
    /// Makes the directory where the user may, and in it the file that the shell reads first.
    pub(super) async fn create(
        identity: &Arc<Identity>,
        name: &str,
        fallback: &Path,
        rc: impl FnOnce(&Path) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let places = private::places(fallback);
        let name = format!(".sandbox-{name}");
        let made = identity.run(move || {
            let directory = private::make_in_first(&places, &name)?;
            write(&directory.join(RC), rc(&directory).as_bytes())?;
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

    /// Puts down the next command. A cleaned-up directory is made again.
    pub(super) async fn put_command(&self, command: String) -> io::Result<()> {
        let directory = self.directory.clone();
        let put = self.identity.run(move || {
            let file = directory.join(COMMAND);
            match write(&file, command.as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    private::make(&directory)?;
                    write(&file, command.as_bytes())
                }
                outcome => outcome,
            }
        });
        put.await?
    }

    pub(super) async fn remove(self) {
        let directory = self.directory;
        // Nothing depends on it: the names are never used again.
        let removing = self.identity.run(|| fs::remove_dir_all(directory));
        let _ = tokio::time::timeout(private::END_LIMIT, removing).await;
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(content)
}
