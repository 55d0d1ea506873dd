//! Errors of actions on files, in the words of the Python server.

use std::io;
use std::path::{Path, PathBuf};

use super::os_error::describe;

#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum FileError {
    #[error("File not found: {0}")]
    NotFound(String),
    #[error("File could not be decoded as utf-8: {0}")]
    NotText(String),
    #[error("Path is a directory: {0}")]
    Directory(String),
    #[error("ERROR_BINARY_FILE")]
    Binary,
    #[error("File is too large or not a regular file: {0}")]
    Unreadable(String),
    #[error("File {path} written, but failed to change ownership and permissions: {source}")]
    Permissions {
        path: String,
        #[source]
        source: io::Error,
    },
    /// An error of the operating system in Python's form.
    #[error("{}", describe(source, path))]
    System {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    pub(super) fn of(source: io::Error, path: &Path) -> Self {
        let shown = path.display().to_string();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound(shown),
            io::ErrorKind::IsADirectory => Self::Directory(shown),
            _ => Self::System {
                path: path.to_path_buf(),
                source,
            },
        }
    }
}
