//! Working directory for a new process. `chdir` and `exec` block the only thread of the runtime, so
//! the paths are tried on another thread first.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::shell::LaunchContext;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the directory to start `program` in.
///
/// # Errors
/// If the file system of the directory or of the program does not respond.
pub(super) async fn launch_dir(start: &LaunchContext, program: PathBuf) -> io::Result<PathBuf> {
    let context = start.clone();
    let tried = start.identity.run(move || {
        let directory = context.existing_dir().to_owned();
        // The result does not matter: a missing program is reported by its start.
        let _ = directory.join(program).metadata();
        directory
    });
    match tokio::time::timeout(RESPONSE_TIMEOUT, tried).await {
        Ok(directory) => directory,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the file system of the program or of the working directory does not respond",
        )),
    }
}
