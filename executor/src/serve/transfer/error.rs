//! Errors of uploads and downloads.

use std::io;
use std::path::{Path, PathBuf};

use super::stream;
use crate::serve::files::FileError;

/// Errors with the texts of the Python server; the response has status 500.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    #[error("400: Destination must be an absolute path")]
    RelativeDestination,
    #[error("400: Recursive uploads must be zip files")]
    NoZipName,
    #[error("400: Path must be an absolute path")]
    RelativePath,
    #[error("404: File not found")]
    Missing,
    #[error("{} is not a zip file", .0.display())]
    NoZip(PathBuf),
    #[error("{name}: {reason}", name = .path.display())]
    Archive { path: PathBuf, reason: String },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the upload broke off")]
    Broken,
    #[error("cannot act for the sandbox user: {0}")]
    Identity(#[source] io::Error),
}

impl TransferError {
    pub(super) fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| {
            if stream::is_broken(&source) {
                return Self::Broken;
            }
            let path = path.to_path_buf();
            FileError::System { path, source }.into()
        }
    }

    pub(super) fn archive(path: &Path, reason: impl Into<String>) -> Self {
        let path = path.to_path_buf();
        let reason = reason.into();
        Self::Archive { path, reason }
    }
}
