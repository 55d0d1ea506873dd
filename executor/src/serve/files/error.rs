//! Errors of files, in the words of the Python server and of Python: clients and models know these
//! texts.

use std::io;
use std::path::{Path, PathBuf};

use browser::python_repr::repr;
use rustix::io::Errno;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
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

/// Formats an error: `[Errno 13] Permission denied: '/path'`.
pub(crate) fn describe(error: &io::Error, path: &Path) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => {
            // The standard library appends the number.
            let (reason, _) = text.split_once(" (os error").unwrap_or((&text, ""));
            let path = repr(&Value::String(path.display().to_string()));
            format!("[Errno {number}] {reason}: {path}")
        }
        // The only error that the standard library finds before the system call.
        None if error.kind() == io::ErrorKind::InvalidInput => "embedded null byte".to_owned(),
        None => text,
    }
}

/// Returns whether the error means that the path does not exist, as for Python's `exists`.
pub(crate) fn is_not_found(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(errno) => [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].contains(&errno),
        None => error.kind() == io::ErrorKind::InvalidInput,
    }
}
