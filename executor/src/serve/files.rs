//! The actions `read` and `write` (spec 6.1, 6.3), done with the sandbox user's rights.
//!
//! The original does them as root and leaves root's files behind; here the kernel decides.

mod binary;
mod charset;
mod directories;
mod document;
mod errno;
mod lines;
mod list;
mod nameless;
mod read;
mod replace;
mod text;
mod write;

use std::io;
use std::path::{Component, Path, PathBuf};

pub(super) use self::binary::is_binary;
pub(super) use self::directories::make as make_directories;
pub(super) use self::document::Document;
pub(super) use self::errno::{describe, is_absence};
pub(super) use self::list::list;
pub(super) use self::nameless::nameless;
pub(super) use self::read::read;
pub(super) use self::replace::{Links, Replacement, put};
pub(super) use self::text::bytes;
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
    #[error("File {path} written, but failed to change ownership and permissions: {source}")]
    Permissions {
        path: String,
        #[source]
        source: io::Error,
    },
    /// Answered as a failure of the server, in Python's form.
    #[error("{}", describe(source, path))]
    System {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    fn of(source: io::Error, path: &Path) -> Self {
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
}
