//! Directories that only the sandbox user can enter, and names that nobody can guess.
//!
//! Shells and plugins exchange files and sockets with this server through such directories. The
//! functions that make them are called with the user's rights.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::identity::Identity;

/// Those that are there. There is one process, so there is one set.
static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// For what is left to do at an end: threads that are stuck, as on a file system that is away, do not
/// hold it up. What is not removed then stays.
pub(super) const END_LIMIT: Duration = Duration::from_secs(2);

/// Where the user may be allowed to make one, the best place first.
pub(super) fn places(fallback: &Path) -> [PathBuf; 3] {
    [std::env::temp_dir(), "/dev/shm".into(), fallback.into()]
}

pub(super) fn make_in_first(places: &[PathBuf], name: &str) -> io::Result<PathBuf> {
    let mut last = Err(io::ErrorKind::NotFound.into());
    for place in places {
        let directory = place.join(name);
        last = make(&directory).map(|()| directory);
        if last.is_ok() {
            break;
        }
    }
    last
}

pub(super) fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)
}

/// 128 random bits in hexadecimal digits.
pub(super) fn token() -> io::Result<String> {
    let bytes = random()?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

pub(super) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// A private directory with files in it.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) directory: PathBuf,
    identity: Arc<Identity>,
}

impl Private {
    /// Makes a directory where the user may, with files in it that may name the directory.
    pub(super) async fn create(
        identity: &Arc<Identity>,
        fallback: &Path,
        files: impl FnOnce(&Path) -> Vec<(&'static str, Vec<u8>)> + Send + 'static,
    ) -> io::Result<Self> {
        let name = format!(".sandbox-{}", &token()?[..16]);
        let places = places(fallback);
        let owner = Arc::clone(identity);
        let made = identity.run(move || {
            let directory = make_in_first(&places, &name)?;
            MADE.lock().insert(directory.clone());
            // From here on it is removed if nobody waits for it any more.
            let private = Self {
                directory,
                identity: owner,
            };
            for (name, content) in files(&private.directory) {
                write(&private.directory.join(name), &content)?;
            }
            Ok(private)
        });
        made.await?
    }

    pub(super) async fn remove(&self) {
        let directory = self.directory.clone();
        // Nothing depends on it: the names are never used again.
        let removing = self.identity.run(move || remove(&directory));
        let _ = tokio::time::timeout(END_LIMIT, removing).await;
    }
}

/// Of one that was not removed in time, as when its making was given up. Whoever drops it may have
/// other rights; then it stays.
impl Drop for Private {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

/// Removes what is left when all that could use it has ended: a kernel that is on its way makes files
/// in a directory while it is being removed.
pub(super) async fn remove_all(identity: &Identity) {
    identity.settle(END_LIMIT).await;
    let left: Vec<_> = MADE.lock().iter().cloned().collect();
    if !left.is_empty() {
        let removing = identity.run(move || left.iter().for_each(|directory| remove(directory)));
        let _ = tokio::time::timeout(END_LIMIT, removing).await;
    }
}

fn remove(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {}
        _ => drop(MADE.lock().remove(directory)),
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stuck_threads_do_not_keep_the_server_from_ending() {
        let identity = Arc::new(Identity::own());
        let fallback = tempfile::tempdir().unwrap();
        let private = Private::create(&identity, fallback.path(), |_| Vec::new());
        let private = private.await.unwrap();
        let _stuck = identity.stick().await;
        let ending = async {
            private.remove().await;
            remove_all(&identity).await;
        };
        tokio::time::timeout(END_LIMIT * 4, ending).await.unwrap();
    }
}
