//! Stores an upload (`docs/specs/executor.md`, section 2.5): a file, or the content of an archive.

use std::io;
use std::path::{Path, PathBuf};

use super::error::TransferError;
use super::stream::UploadReader;
use super::unpack::unpack;
use crate::serve::files::{Replacement, SymlinkPolicy, make_directories, unnamed};

#[derive(Debug)]
pub(crate) struct Upload {
    destination: PathBuf,
    pub(crate) name: String,
    unpack: bool,
}

impl Upload {
    /// Only the last component of `filename` is used.
    pub(crate) fn new(destination: &str, filename: &str, recursive: bool) -> Self {
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

    fn path(&self) -> PathBuf {
        self.destination.join(&self.name)
    }
}

/// Case-sensitive, as in the Python server.
fn is_zip(name: &str) -> bool {
    name.as_bytes().ends_with(b".zip")
}

pub(crate) fn store(upload: &Upload, received: UploadReader) -> Result<(), TransferError> {
    let destination = &upload.destination;
    if !destination.is_absolute() {
        return Err(TransferError::RelativeDestination);
    }
    // A file at the path of the directory fails below with a better error.
    if let Err(error) = make_directories(destination)
        && !destination.exists()
    {
        return Err(error.into());
    }
    if upload.unpack {
        store_archive(upload, received)
    } else {
        store_file(&upload.path(), received)
    }
}

fn store_file(path: &Path, mut received: UploadReader) -> Result<(), TransferError> {
    let of = TransferError::of(path);
    let mut new = Replacement::begin(path, SymlinkPolicy::Replace).map_err(&of)?;
    io::copy(&mut received, &mut new.file).map_err(&of)?;
    new.commit().map_err(&of)
}

/// Stores the archive in an unnamed file, so that nothing has to be removed.
fn store_archive(upload: &Upload, mut received: UploadReader) -> Result<(), TransferError> {
    let path = upload.path();
    if !is_zip(&upload.name) {
        return Err(TransferError::NoZipName);
    }
    let of = TransferError::of(&path);
    let mut archive = unnamed(&upload.destination).map_err(&of)?;
    io::copy(&mut received, &mut archive).map_err(&of)?;
    unpack(archive, &path, &upload.destination)
}
