//! Replaces files atomically: a reader sees the old or the new content, never a part of it.
//!
//! The new content is written to an unnamed file in the same directory, which takes over mode and
//! name. If that would lose hard links or the owner, or if the directory is not writable, the
//! content is written in place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Mode of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o644;
/// Number in the next temporary name.
static COUNTER: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymlinkPolicy {
    /// Write to the target of the link.
    Follow,
    /// Replace the link by a file.
    Replace,
}

/// A file being written. `commit` puts it in place; dropping it discards it.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) file: File,
    staging: Staging,
    target: PathBuf,
}

/// Location of the content before `commit`.
#[derive(Debug)]
enum Staging {
    Target,
    Unnamed,
    /// A temporary name, on a file system without unnamed files.
    Beside(PathBuf),
}

/// Writes a whole file and keeps its mode.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut replacement = Replacement::begin(path, SymlinkPolicy::Follow)?;
    replacement.file.write_all(content)?;
    replacement.commit()
}

impl Replacement {
    pub(crate) fn begin(path: &Path, links: SymlinkPolicy) -> io::Result<Self> {
        let is_link = path.is_symlink();
        if is_link && links == SymlinkPolicy::Replace {
            return Self::beside(path, NEW_FILE_MODE);
        }
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags);
        match options.open(path) {
            Ok(old) => Self::of_existing(path, old),
            // A dangling link: only the kernel can resolve where its target is created.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_link => {
                let file = options.create(true).mode(NEW_FILE_MODE).open(path)?;
                Ok(Self::in_place(path, file))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::beside(path, NEW_FILE_MODE)
            }
            Err(error) => Err(error),
        }
    }

    fn of_existing(path: &Path, old: File) -> io::Result<Self> {
        let found = old.metadata()?;
        let mine = found.uid() == rustix::process::geteuid().as_raw();
        let root = rustix::process::geteuid().is_root();
        if found.is_file() && found.nlink() == 1 && (mine || root) {
            let target = path.canonicalize()?;
            if let Ok(new) = Self::beside(&target, found.mode() & 0o7777)
                && new.hand_over(&found).is_ok()
            {
                return Ok(new);
            }
        }
        if found.is_file() {
            old.set_len(0)?;
        }
        Ok(Self::in_place(path, old))
    }

    fn in_place(path: &Path, file: File) -> Self {
        Self {
            file,
            staging: Staging::Target,
            target: path.to_path_buf(),
        }
    }

    fn beside(target: &Path, mode: u32) -> io::Result<Self> {
        let directory = target.parent().unwrap_or(Path::new("/"));
        let (file, staging) = match open_unnamed(directory, mode & 0o777) {
            Ok(file) => (file, Staging::Unnamed),
            Err(_) => create(target, mode).map(|(file, path)| (file, Staging::Beside(path)))?,
        };
        Ok(Self {
            file,
            staging,
            target: target.to_path_buf(),
        })
    }

    /// Takes over owner and mode of the file that is to be replaced.
    fn hand_over(&self, old: &fs::Metadata) -> io::Result<()> {
        let new = self.file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(&self.file, Some(old.uid()), Some(old.gid()))?;
        }
        // The mode at creation has passed through the umask.
        self.set_mode(old.mode() & 0o7777)
    }

    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    pub(crate) fn commit(mut self) -> io::Result<()> {
        if let Staging::Unnamed = self.staging {
            match link(&self.file, &self.target) {
                // `linkat` does not replace a file: a temporary name and a rename do.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let path = temporary(&self.target);
                    if link(&self.file, &path).is_err() {
                        return self.copy();
                    }
                    self.staging = Staging::Beside(path);
                }
                // There is no `/proc`, or the kernel does not allow to link this file.
                Err(_) => return self.copy(),
                Ok(()) => return Ok(()),
            }
        }
        let Staging::Beside(path) = &self.staging else {
            return Ok(());
        };
        match fs::rename(path, &self.target) {
            Ok(()) => {
                self.staging = Staging::Target;
                Ok(())
            }
            // The file is a mount point, for example a file from a ConfigMap.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.copy(),
            Err(error) => Err(error),
        }
    }

    fn copy(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        let mode = self.file.metadata()?.mode();
        let mut target = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode & 0o777)
            .open(&self.target)?;
        io::copy(&mut self.file, &mut target).map(drop)
    }
}

/// Creates a file with a temporary name beside the target.
fn create(target: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let path = temporary(target);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode & 0o777)
        .open(&path)?;
    Ok((file, path))
}

/// Returns a unique temporary path in the directory of `path`.
fn temporary(path: &Path) -> PathBuf {
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!(".sandbox-executor-{}-{number}", std::process::id());
    path.with_file_name(name)
}

/// Opens an unnamed file in `directory` that `link` can name. Fails on file systems without unnamed
/// files, for example many network file systems.
fn open_unnamed(directory: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::from_raw_mode(mode))?.into())
}

/// Gives the file a name that must not exist.
fn link(file: &File, path: &Path) -> io::Result<()> {
    // Linking by descriptor would need a capability.
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, source, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

/// Opens a file in `directory` that stays unnamed, or is unlinked immediately.
pub(crate) fn unnamed(directory: &Path) -> io::Result<File> {
    open_unnamed(directory, 0o600).or_else(|_| {
        let (file, path) = create(&directory.join("x"), 0o600)?;
        fs::remove_file(path)?;
        Ok(file)
    })
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Staging::Beside(path) = &self.staging {
            // A failure cannot be reported here.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
