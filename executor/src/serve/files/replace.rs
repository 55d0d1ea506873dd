//! Replaces files as a whole: a reader sees the old or the new content, never half of it.
//!
//! The new content goes to a file beside the old one that takes over its mode and then its name;
//! until it is whole it has no name of its own. Where that would lose something (other names of
//! the file, its owner, a directory that may not be written), the content is put in place instead.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::nameless;

/// Mode of a new file, before the umask.
const NEW: u32 = 0o644;

/// What to do about a link at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Links {
    /// Write to where it leads.
    Follow,
    /// Put a file in its place.
    Replace,
}

/// A file being written, which takes its place on `commit` and vanishes without.
#[derive(Debug)]
pub(in crate::serve) struct Replacement {
    file: File,
    place: Place,
    target: PathBuf,
}

/// Where the content is before `commit`.
#[derive(Debug)]
enum Place {
    Target,
    Nowhere,
    /// In a file system that knows no files without names.
    Beside(PathBuf),
}

/// Writes a whole file, keeping the mode that it had.
pub(in crate::serve) fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut replacement = Replacement::begin(path, Links::Follow)?;
    replacement.write_all(content)?;
    replacement.commit()
}

impl Replacement {
    pub(in crate::serve) fn begin(path: &Path, links: Links) -> io::Result<Self> {
        let link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if link && links == Links::Replace {
            return Self::beside(path, NEW);
        }
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
        {
            Ok(old) => Self::of_existing(path, old),
            // A link that leads to nothing yet: only the system can tell where that is.
            Err(error) if error.kind() == io::ErrorKind::NotFound && link => {
                let file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .mode(NEW)
                    .open(path)?;
                Ok(Self::in_place(path, file))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::beside(path, NEW),
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
            place: Place::Target,
            target: path.to_path_buf(),
        }
    }

    fn beside(target: &Path, mode: u32) -> io::Result<Self> {
        let directory = target.parent().unwrap_or(Path::new("/"));
        let (file, place) = match nameless::open(directory, mode & 0o777) {
            Ok(file) => (file, Place::Nowhere),
            Err(_) => create(target, mode).map(|(file, path)| (file, Place::Beside(path)))?,
        };
        Ok(Self {
            file,
            place,
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
        if let Place::Nowhere = self.place {
            match nameless::link(&self.file, &self.target) {
                // A link never takes the place of a file: that takes a name first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let path = nameless::temporary(&self.target);
                    if nameless::link(&self.file, &path).is_err() {
                        return self.copy();
                    }
                    self.place = Place::Beside(path);
                }
                // No `/proc`, or a kernel that lets nobody link what was handed over.
                Err(_) => return self.copy(),
                Ok(()) => return Ok(()),
            }
        }
        let Place::Beside(path) = &self.place else {
            return Ok(());
        };
        match fs::rename(path, &self.target) {
            Ok(()) => {
                self.place = Place::Target;
                Ok(())
            }
            // The file is a mount point of its own, as files from config maps are.
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

/// A file with a name beside the target's.
fn create(target: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let path = nameless::temporary(target);
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
        if let Place::Beside(path) = &self.place {
            // Nobody can be told; the file carries our name.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
