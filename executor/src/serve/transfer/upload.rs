//! Stores an upload (`docs/specs/executor.md`, section 2.5): a file, or the content of an archive.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::TransferError;
use super::stream::UploadReader;
use super::unpack::unpack;
use crate::serve::files::{Replacement, SymlinkPolicy, make_directories, unnamed};

#[derive(Debug)]
pub(in crate::serve) struct Upload {
    destination: PathBuf,
    name: String,
    unpack: bool,
}

impl Upload {
    /// Only the last component of `filename` is used.
    pub(in crate::serve) fn new(destination: &str, filename: &str, recursive: bool) -> Self {
        let name = filename.rsplit('/').next().unwrap_or_default();
        let name = if [".", ".."].contains(&name) {
            ""
        } else {
            name
        };
        Self {
            destination: PathBuf::from(destination),
            name: name.to_owned(),
            unpack: recursive || is_zip(name),
        }
    }

    pub(in crate::serve) fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        self.destination.join(&self.name)
    }
}

/// Case-sensitive, as in the Python server.
fn is_zip(name: &str) -> bool {
    name.as_bytes().ends_with(b".zip")
}

pub(in crate::serve) fn store(
    upload: &Upload,
    received: UploadReader,
) -> Result<(), TransferError> {
    let destination = &upload.destination;
    if !destination.is_absolute() {
        return Err(TransferError::RelativeDestination);
    }
    make_directories(destination).or_else(|failure| {
        // A file at the path of the directory fails below with a better error.
        if destination.exists() {
            return Ok(());
        }
        Err(TransferError::System {
            path: failure.path,
            source: failure.source,
        })
    })?;
    if upload.unpack {
        store_archive(upload, received)
    } else {
        store_file(&upload.path(), received)
    }
}

fn store_file(path: &Path, mut received: UploadReader) -> Result<(), TransferError> {
    let of = TransferError::of(path);
    let mut file = Replacement::begin(path, SymlinkPolicy::Replace).map_err(&of)?;
    io::copy(&mut received, &mut file).map_err(&of)?;
    file.commit().map_err(&of)
}

/// Stores the archive in an unnamed file, so that nothing has to be removed.
fn store_archive(upload: &Upload, mut received: UploadReader) -> Result<(), TransferError> {
    let path = upload.path();
    if !is_zip(&upload.name) {
        return Err(TransferError::NoZipName);
    }
    let of = TransferError::of(&path);
    let mut archive = unnamed(&upload.destination).map_err(&of)?;
    io::copy(&mut received.by_ref(), &mut archive).map_err(&of)?;
    unpack(archive, &path, &upload.destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_name_drops_directories() {
        for (filename, name) in [
            ("a.txt", "a.txt"),
            ("../b.txt", "b.txt"),
            ("/etc/passwd", "passwd"),
            ("a/..", ""),
            ("..", ""),
            (".", ""),
            ("", ""),
            ("a\\b", "a\\b"),
        ] {
            assert_eq!(Upload::new("/d", filename, false).name(), name);
        }
        assert!(Upload::new("/d", "x.zip", false).unpack);
        assert!(!Upload::new("/d", "x.ZIP", false).unpack);
    }
}
