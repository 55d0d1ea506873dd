//! Working directory for a new process. `chdir` and `exec` block the only thread of the runtime, so
//! the paths are tried on another thread first.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::identity::Identity;
use crate::system;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the directory to start `program` in: `directory`, or `/` if it does not exist. Fails if
/// the file system of the directory or of the program does not respond.
pub(super) async fn launch_dir(
    identity: &Identity,
    directory: PathBuf,
    program: PathBuf,
) -> io::Result<PathBuf> {
    let try_paths = move || {
        let exists = Some(directory).filter(|path| path.is_dir());
        let directory = exists.unwrap_or_else(|| "/".into());
        // The result does not matter: a missing program is reported by its start.
        let _ = directory.join(program).metadata();
        directory
    };
    run(identity, try_paths).await
}

/// Uses the rights of the sandbox user. Fails if the file system does not respond.
pub(super) async fn is_dir(identity: &Identity, path: PathBuf) -> io::Result<bool> {
    run(identity, move || path.is_dir()).await
}

/// The first of the files that can be executed. Fails if a file system does not respond.
pub(super) async fn first_executable(
    identity: &Identity,
    files: Vec<PathBuf>,
) -> io::Result<Option<PathBuf>> {
    let find = move || files.into_iter().find(|file| system::is_executable(file));
    run(identity, find).await
}

async fn run<T: Send + 'static>(
    identity: &Identity,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    match tokio::time::timeout(RESPONSE_TIMEOUT, identity.run(work)).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the file system of the program or of the working directory does not respond",
        )),
    }
}
