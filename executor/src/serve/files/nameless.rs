//! Files that have no name until they are whole: whatever ends the server in between, nothing is
//! left behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Makes the names of temporary files differ.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A name beside `path` that nothing else has.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!(".sandbox-executor-{}-{number}", std::process::id());
    path.with_file_name(name)
}

/// Opens a file in `directory` that `link` can name.
///
/// # Errors
/// Also where the file system has no such files, as network ones often do not.
pub(super) fn open(directory: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::from_raw_mode(mode))?.into())
}

/// Names the file, unless something has that name.
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    // By its descriptor alone only a privileged process could.
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, itself, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

/// A file in `directory` that never has a name, or had one for a moment only.
pub(in crate::serve) fn nameless(directory: &Path) -> io::Result<File> {
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
