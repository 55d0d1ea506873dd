//! Files without a name until they are complete: nothing is left behind if the server is killed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Number in the next temporary name.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Returns a unique temporary path in the directory of `path`.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!(".sandbox-executor-{}-{number}", std::process::id());
    path.with_file_name(name)
}

/// Opens an unnamed file in `directory` that `link` can name.
///
/// # Errors
/// Also on file systems without unnamed files, for example many network file systems.
pub(super) fn open(directory: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::from_raw_mode(mode))?.into())
}

/// Gives the file a name that must not exist.
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    // Linking by descriptor would need a capability.
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, source, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

/// Opens a file in `directory` that stays unnamed, or is unlinked immediately.
pub(in crate::serve) fn unnamed(directory: &Path) -> io::Result<File> {
    open(directory, 0o600).or_else(|_| {
        let path = temporary(&directory.join("x"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        std::fs::remove_file(path)?;
        Ok(file)
    })
}
