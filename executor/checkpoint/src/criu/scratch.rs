//! A private folder with the socket that CRIU connects to.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};

/// Removed with its socket when it is dropped.
#[derive(Debug)]
pub(super) struct ScratchFolder {
    path: PathBuf,
    folder: File,
}

impl ScratchFolder {
    /// Creates a folder with a random name, mode 0700.
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        let mut random = [0; 8];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| io::Error::other("cannot read random bytes"))?;
        let path = parent.join(format!("checkpoint-{:016x}", u64::from_be_bytes(random)));
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = File::open(&path)?;
        Ok(Self { path, folder })
    }

    pub(super) fn descriptor(&self) -> i32 {
        self.folder.as_raw_fd()
    }

    /// Binds a socket by the folder's descriptor: paths of sockets have at most 107 bytes.
    pub(super) fn listen(&self, name: &str) -> io::Result<UnixListener> {
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", self.descriptor()))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // An empty folder that stays does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}
