//! Replaces files atomically: a reader sees the old or the new content, never a part of it.
//!
//! The new content is written to an unnamed file in the same directory, which takes over mode and
//! name. If that would lose hard links or the owner, or if the directory is not writable, the
//! content is written in place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::unnamed_file;

/// Mode of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o644;

/// Handling of a symbolic link at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum SymlinkPolicy {
    /// Write to the target of the link.
    Follow,
    /// Replace the link by a file.
    Replace,
}

/// A file being written. `commit` puts it in place; dropping it discards it.
#[derive(Debug)]
pub(in crate::serve) struct Replacement {
    file: File,
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
pub(in crate::serve) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut replacement = Replacement::begin(path, SymlinkPolicy::Follow)?;
    replacement.write_all(content)?;
    replacement.commit()
}

impl Replacement {
    pub(in crate::serve) fn begin(path: &Path, links: SymlinkPolicy) -> io::Result<Self> {
        let link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if link && links == SymlinkPolicy::Replace {
            return Self::beside(path, NEW_FILE_MODE);
        }
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
        {
            Ok(old) => Self::of_existing(path, old),
            // A dangling link: only the kernel can resolve where its target is created.
            Err(error) if error.kind() == io::ErrorKind::NotFound && link => {
                let file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .mode(NEW_FILE_MODE)
                    .open(path)?;
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
        let (file, staging) = match unnamed_file::open(directory, mode & 0o777) {
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

    pub(in crate::serve) fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    pub(in crate::serve) fn commit(mut self) -> io::Result<()> {
        if let Staging::Unnamed = self.staging {
            match unnamed_file::link(&self.file, &self.target) {
                // `linkat` does not replace a file: a temporary name and a rename do.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let path = unnamed_file::temporary(&self.target);
                    if unnamed_file::link(&self.file, &path).is_err() {
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
    let path = unnamed_file::temporary(target);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode & 0o777)
        .open(&path)?;
    Ok((file, path))
}

impl Write for Replacement {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.file.write(content)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
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
