//! Stores an upload (spec 2.5): a file under its name, or the content of an archive.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::unpack::unpack;
use super::{Received, TransferError};
use crate::serve::files::{Links, Replacement, make_directories, nameless};

#[derive(Debug)]
pub(in crate::serve) struct Upload {
    destination: PathBuf,
    name: String,
    unpack: bool,
}

impl Upload {
    /// `filename` as the client sent it; only its last part counts.
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

/// In lower case only, as in the original.
fn is_zip(name: &str) -> bool {
    name.as_bytes().ends_with(b".zip")
}

pub(in crate::serve) fn store(upload: &Upload, received: Received) -> Result<(), TransferError> {
    let destination = &upload.destination;
    if !destination.is_absolute() {
        return Err(TransferError::RelativeDestination);
    }
    make_directories(destination).or_else(|failure| {
        // A file in the place of the directory fails below, with its own words.
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

fn store_file(path: &Path, mut received: Received) -> Result<(), TransferError> {
    let of = TransferError::of(path);
    let mut file = Replacement::begin(path, Links::Replace).map_err(&of)?;
    io::copy(&mut received, &mut file).map_err(&of)?;
    file.commit().map_err(&of)
}

/// The archive itself never has a name that would have to be removed.
fn store_archive(upload: &Upload, mut received: Received) -> Result<(), TransferError> {
    let path = upload.path();
    if !is_zip(&upload.name) {
        return Err(TransferError::NoZipName);
    }
    let of = TransferError::of(&path);
    let mut archive = nameless(&upload.destination).map_err(&of)?;
    io::copy(&mut received.by_ref(), &mut archive).map_err(&of)?;
    unpack(archive, &path, &upload.destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_directories() {
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
