//! The actions `read` and `write` (spec 6.1, 6.3), done with the sandbox user's rights.
//!
//! The original does them as root and leaves root's files behind; here the kernel decides.

mod lines;
mod read;
mod text;
mod write;

use std::io;
use std::path::{Component, Path, PathBuf};

pub(super) use self::read::read;
pub(super) use self::write::write;

#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
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
    /// Answered as a failure of the server, in Python's form.
    #[error("[Errno {number}] {text}: '{path}'", number = source.raw_os_error().unwrap_or(5), text = reason(source))]
    System {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    fn of(source: io::Error, path: &Path) -> Self {
        let path = path.display().to_string();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path),
            io::ErrorKind::IsADirectory => Self::Directory(path),
            _ => Self::System { path, source },
        }
    }
}

/// The system's text for an error, without the number that the standard library appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Joins a relative path to the shell's directory. `..` stays: links decide where it leads.
pub(super) fn resolve(path: &str, working_dir: &Path) -> PathBuf {
    let joined = working_dir.join(path);
    let kept = joined
        .components()
        .filter(|part| *part != Component::CurDir);
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_follow_the_shell() {
        let resolve = |path| resolve(path, Path::new("/w")).display().to_string();
        assert_eq!(resolve("a.txt"), "/w/a.txt");
        assert_eq!(resolve("./a//b/../c"), "/w/a/b/../c");
        assert_eq!(resolve("/etc/./x"), "/etc/x");
    }

    #[test]
    fn system_errors_look_like_pythons() {
        let source = io::Error::from_raw_os_error(13);
        let error = FileError::of(source, Path::new("/x"));
        assert_eq!(error.to_string(), "[Errno 13] Permission denied: '/x'");
    }
}
