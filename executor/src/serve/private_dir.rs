//! Directories of mode 0700 with random names, owned by the sandbox user.
//!
//! Shells and plugins exchange files and sockets with the server through them. The functions
//! that create them run on threads with the credentials of the user.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;

use super::identity::Identity;

/// Existing directories of this process, for the cleanup at its end.
static CREATED_DIRS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Limit for the cleanup at shutdown. A thread that hangs on a dead file system must not block the
/// exit; its directory is left behind.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// 128 random bits as hexadecimal digits.
pub(super) fn token() -> io::Result<String> {
    Ok(HEXLOWER.encode(&random()?))
}

pub(super) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// Private directory that is removed on drop.
#[derive(Debug)]
pub(super) struct PrivateDir {
    pub(super) directory: PathBuf,
    identity: Arc<Identity>,
    /// True once `remove` was called: it may hang, which a drop must not.
    is_removed: AtomicBool,
}

impl PrivateDir {
    /// Creates a directory with files. Their content may contain the path of the directory.
    pub(super) async fn create(
        identity: &Arc<Identity>,
        fallback: &Path,
        files: impl FnOnce(&Path) -> Vec<(&'static str, Vec<u8>)> + Send + 'static,
    ) -> io::Result<Self> {
        let name = format!(".sandbox-{}", &token()?[..16]);
        // Best first. The user may not be able to write to all of them.
        let places = [std::env::temp_dir(), "/dev/shm".into(), fallback.into()];
        let owner = Arc::clone(identity);
        let made = identity.run(move || {
            let directory = create_in_first(&places, &name)?;
            CREATED_DIRS.lock().insert(directory.clone());
            // From here on, dropping the future removes the directory.
            let private = Self {
                directory,
                identity: owner,
                is_removed: AtomicBool::new(false),
            };
            for (name, content) in files(&private.directory) {
                write(&private.directory.join(name), &content)?;
            }
            Ok(private)
        });
        made.await?
    }

    pub(super) async fn remove(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
        let directory = self.directory.clone();
        // An error has no effect: the random name is never reused.
        let removing = self.identity.run(move || remove(&directory));
        let _ = tokio::time::timeout(CLEANUP_TIMEOUT, removing).await;
    }
}

/// Covers a creation that was cancelled. The dropping thread may lack the credentials of the user;
/// the directory is then left to `remove_all`.
impl Drop for PrivateDir {
    fn drop(&mut self) {
        if !*self.is_removed.get_mut() {
            remove(&self.directory);
        }
    }
}

/// Removes remaining directories once their users have ended: a starting kernel creates files.
pub(super) async fn remove_all(identity: &Identity) {
    identity.wait_idle(CLEANUP_TIMEOUT).await;
    let left: Vec<_> = CREATED_DIRS.lock().iter().cloned().collect();
    if !left.is_empty() {
        let removing = identity.run(move || left.iter().for_each(|directory| remove(directory)));
        let _ = tokio::time::timeout(CLEANUP_TIMEOUT, removing).await;
    }
}

fn create_in_first(places: &[PathBuf], name: &str) -> io::Result<PathBuf> {
    let mut last = Err(io::ErrorKind::NotFound.into());
    for place in places {
        let directory = place.join(name);
        let made = DirBuilder::new().mode(0o700).create(&directory);
        last = made.map(|()| directory);
        if last.is_ok() {
            break;
        }
    }
    last
}

fn remove(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {}
        _ => drop(CREATED_DIRS.lock().remove(directory)),
    }
}

/// Writes a new file that only the user can read.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn removal_gives_up_after_its_timeout_when_threads_hang() {
        let identity = Arc::new(Identity::own());
        let fallback = tempfile::tempdir().unwrap();
        let private = PrivateDir::create(&identity, fallback.path(), |_| Vec::new());
        let private = private.await.unwrap();
        let _stuck = identity.occupy_all_threads().await;
        let ending = async {
            private.remove().await;
            remove_all(&identity).await;
        };
        tokio::time::timeout(CLEANUP_TIMEOUT * 4, ending)
            .await
            .unwrap();
    }
}
